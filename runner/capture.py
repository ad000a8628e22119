"""One bucket's graph: how it is captured, and what a call of one size does with it."""

import traceback
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.cuda import CUDAGraph
from torch.utils._pytree import TreeSpec, tree_unflatten

from runner.adapter import GraphAdapter, Sizes, Tensors
from runner.buckets import Bucket
from runner.config import GraphConfig
from runner.lengths import PerRowLengths


@dataclass(eq=False)
class Captured:
    """A bucket's graph, the tensors that it reads and writes, and the structure of `forward`'s result."""

    bucket: Bucket
    graph: CUDAGraph
    static: Tensors
    outputs: Tensors
    structure: TreeSpec
    seconds: float = 0.0  # of its capture
    reserved: int = 0  # bytes that its capture took from the device
    live: bool = True  # until the runner lets it go: a plan made for it serves no call from then on


def capture(adapter: GraphAdapter, bucket: Bucket, config: GraphConfig, pool: Any, side: torch.cuda.Stream) -> Captured:
    """Run the bucket on padding, so that all that is made on first use is made, and capture it on the stream `side`."""
    graph, static, forward = CUDAGraph(), dict[str, torch.Tensor](), adapter.forward
    if config.compile:  # for each bucket anew, of which there may be more than torch's limit of 8
        forward = torch._dynamo.config.patch(recompile_limit=256)(torch.compile(forward, dynamic=False))
    errors = "thread_local" if config.lazy else "global"  # eager calls of other threads may need memory meanwhile
    sizes: dict[Any, Any] = {**adapter.fixed_sizes(), **bucket}
    with torch.inference_mode(False):  # an inference tensor could not be loaded outside inference mode
        for spec in adapter.device_inputs():
            shape = [sizes.get(axis, axis) for axis in spec.axes]
            static[spec.name] = torch.full(shape, spec.pad, dtype=spec.dtype, device=side.device)
    side.wait_stream(torch.cuda.current_stream())
    # torch.cuda.graph leaves its stream current when an operation was refused; the outer context puts it back.
    with torch.cuda.stream(side):
        for _ in range(config.warmup_iterations):
            forward(*static.values())
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=pool, stream=side, capture_error_mode=errors):
            result = forward(*static.values())
    return Captured(bucket, graph, static, *adapter.named_outputs(result, bucket))


def root_cause(error: BaseException) -> str:
    """The first error of the chain, as text. Clears the frames of all, which would keep static buffers alive."""
    traceback.clear_frames(error.__traceback__)
    earlier = error.__cause__ or error.__context__
    return root_cause(earlier) if earlier else f"{type(error).__name__}: {error}"


class CallPlan:
    """What `GraphAdapter.load` and `unload` do for calls of one size in one bucket, with their views made once.

    An adapter that overrides one of the two, or whose rows have lengths of their own, is asked at each call.
    """

    def __init__(self, adapter: GraphAdapter, captured: Captured, sizes: Sizes, inputs: Tensors) -> None:
        self.captured, self.sizes, self.elements, self._adapter = captured, sizes, prod(sizes.values()), adapter
        self._asks = any(isinstance(spec.length, PerRowLengths) for spec in adapter.outputs)
        self._asks |= adapter.overrides("load", "unload")
        if not self._asks:
            found = [(spec, captured.static[spec.name], inputs[spec.name].shape) for spec in adapter.device_inputs()]
            views = [(s, buffer, buffer[tuple(map(slice, shape))]) for s, buffer, shape in found]
            self._fills = [(s.name, view, None if b.shape == view.shape else b, s.pad) for s, b, view in views]
            self._kept = list(adapter.kept(captured.outputs, sizes, captured.bucket).values())

    def run(self, inputs: Tensors) -> Any:
        """Load, replay, unload."""
        captured = self.captured
        if self._asks:
            self._adapter.load(captured.static, inputs)
            captured.graph.replay()
            results = self._adapter.unload(captured.outputs, inputs, self.sizes, captured.bucket)
            return tree_unflatten([results[name] for name in captured.outputs], captured.structure)
        for name, view, buffer, pad in self._fills:
            if buffer is not None:
                buffer.fill_(pad)
            view.copy_(inputs[name])
        captured.graph.replay()
        if captured.structure.is_leaf():  # tree_unflatten takes longer than the clone
            return self._kept[0].clone()
        return tree_unflatten([view.clone() for view in self._kept], captured.structure)
