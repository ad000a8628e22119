"""One bucket's graph: how it is captured, and what a call of one size does with it."""

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.cuda import CUDAGraph
from torch.utils._pytree import TreeSpec, tree_unflatten

from runner.adapter import GraphAdapter, Sizes, Tensors
from runner.buckets import Bucket
from runner.config import GraphConfig


@dataclass(eq=False)
class Captured:
    """A bucket's graph, the tensors that it reads and writes, and the structure of `forward`'s result."""

    bucket: Bucket
    graph: CUDAGraph
    static: Tensors
    outputs: Tensors
    structure: TreeSpec
    cost: tuple[float, int] = (0.0, 0)  # seconds that its capture took, and bytes of the device's memory
    live: bool = True  # until the runner lets it go: a plan made for it serves no call from then on


def capture(adapter: GraphAdapter, bucket: Bucket, config: GraphConfig, pool: Any, side: torch.cuda.Stream) -> Captured:
    """Run the bucket on padding, so that all that is made on first use is made, and capture it on the stream `side`.

    `side` comes with its pool and nothing else computes on it: cuBLAS keeps a workspace for each stream, and graphs
    write to it. Made in the pool it stays mapped as long as they live, whoever lets go of workspaces meanwhile:
    https://github.com/pytorch/pytorch/issues/193402, https://github.com/vllm-project/vllm-omni/pull/6587.
    """
    graph, static, forward = CUDAGraph(), dict[str, torch.Tensor](), adapter.forward
    forward = compiled(forward) if config.compile else forward
    errors = "thread_local" if config.lazy else "global"  # eager calls of other threads may need memory meanwhile
    sizes: dict[Any, Any] = {**adapter.fixed_sizes(), **bucket}
    with torch.inference_mode(False):  # an inference tensor could not be loaded outside inference mode
        for spec in adapter.device_inputs():
            shape = [sizes.get(axis, axis) for axis in spec.axes]
            static[spec.name] = torch.full(shape, spec.pad, dtype=spec.dtype, device=side.device)
    for _ in range(config.warmup_iterations):
        forward(*static.values())
    torch.cuda.synchronize()
    # torch.cuda.graph leaves its stream current when an operation was refused; the outer context puts it back.
    with torch.cuda.stream(side), torch.cuda.graph(graph, pool=pool, stream=side, capture_error_mode=errors):
        result = forward(*static.values())
    return Captured(bucket, graph, static, *adapter.named_outputs(result, bucket))


def compiled(forward: Any) -> Any:
    """`forward` as the compile tier captures it: for each bucket anew, of which there may be more than torch's 8."""
    return torch._dynamo.config.patch(recompile_limit=256)(torch.compile(forward, dynamic=False))


def root_cause(error: BaseException) -> str:
    """The first error of the chain, as text. Clears the frames of all, which would keep static buffers alive."""
    traceback.clear_frames(error.__traceback__)
    earlier = error.__cause__ or error.__context__
    return root_cause(earlier) if earlier else f"{type(error).__name__}: {error}"


class CallPlan:
    """What an adapter's `load` and `unload` do for calls of one size in one bucket, with their views made once."""

    def __init__(self, adapter: GraphAdapter, captured: Captured, sizes: Sizes, inputs: Any, served: list[int]) -> None:
        self.captured, self.sizes, self.served = captured, sizes, served
        graph, structure, fills = captured.graph, captured.structure, list[tuple[int, Any, Any]]()

        def run_asking(given: Sequence[Any]) -> Any:
            named = {spec.name: tensor for spec, tensor in zip(adapter.inputs, given, strict=True)}
            adapter.load(captured.static, named)
            graph.replay()
            results = adapter.unload(captured.outputs, named, sizes, captured.bucket)
            return tree_unflatten([results[name] for name in captured.outputs], structure)

        def run(given: Sequence[Any]) -> Any:
            for at, fill, part in fills:
                if fill:
                    fill()
                part.copy_(given[at])
            graph.replay()
            return alone.clone() if alone is not None else tree_unflatten([view.clone() for view in kept], structure)

        self.run = run  # load, replay and unload; the inputs come in the order of their declaration
        if adapter.has_rows() or adapter.overrides("load", "unload"):  # what they do may differ from call to call
            self.run = run_asking
            return
        for at, spec in [(at, spec) for at, spec in enumerate(adapter.inputs) if not spec.host]:
            buffer, shape = captured.static[spec.name], inputs[at].shape
            whole = buffer.shape == shape  # a whole tensor takes torch less time than a view of all of it
            fill = None if whole else partial(buffer.fill_, spec.pad)
            fills.append((at, fill, buffer if whole else buffer[tuple(map(slice, shape))]))
        views = adapter.kept(captured.outputs, sizes, captured.bucket)
        pairs = [(views[name], output) for name, output in captured.outputs.items()]
        kept = [output if view.is_set_to(output) and view.dtype is output.dtype else view for view, output in pairs]
        alone = kept[0] if structure.is_leaf() else None  # tree_unflatten takes longer than its clone
