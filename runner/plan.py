"""One size of call, prepared: which static views take the inputs, and which parts of the outputs are the caller's."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from torch import Tensor
from torch.cuda import CUDAGraph
from torch.utils._pytree import TreeSpec, tree_unflatten

from runner.adapter import GraphAdapter, Sizes, Tensors
from runner.buckets import Bucket
from runner.lengths import PerRowLengths

Captured = tuple[CUDAGraph, Tensors, Tensors, TreeSpec]  # the graph, its static inputs and outputs, result's structure


class CallSizes(dict[str, int]):
    """The size of each axis of calls of one shape, and what was prepared for them."""

    plan: "CallPlan | None" = None


class CallPlan:
    """What `GraphAdapter.load` and `unload` do for calls of one size in one bucket, with their views made once.

    An adapter that overrides one of the two, or whose rows have lengths of their own, is asked at each call. `live` is
    false once the bucket's graph was let go.
    """

    def __init__(
        self, adapter: GraphAdapter, captured: Captured, sizes: Sizes, bucket: Bucket, inputs: Mapping[str, Tensor]
    ) -> None:
        self.bucket, self.elements, self.live = bucket, prod(sizes.values()), True
        self._graph, self._static, self._outputs, self._structure = captured
        self._adapter, self._sizes = adapter, sizes
        kind = type(adapter)
        own = kind.load is not GraphAdapter.load or kind.unload is not GraphAdapter.unload
        own = own or not {"load", "unload"}.isdisjoint(vars(adapter))
        self._asks = own or any(isinstance(spec.length, PerRowLengths) for spec in adapter.outputs)
        self._loads: list[tuple[int, Tensor, Tensor | None, float]] = []
        self._views: list[Tensor] = []
        if not self._asks:
            for position, spec in enumerate(adapter.inputs):
                if not spec.host:
                    buffer, shape = self._static[spec.name], inputs[spec.name].shape
                    view = buffer if buffer.shape == shape else buffer[tuple([slice(size) for size in shape])]
                    self._loads.append((position, view, None if view is buffer else buffer, spec.pad))
            self._views = list(adapter.kept(self._outputs, sizes, bucket).values())
        self._single = self._views[0] if self._structure.is_leaf() and not self._asks else None

    def run(self, values: Sequence[Tensor]) -> Any:
        """Load, replay, unload. `values` are the inputs in the order of their declaration."""
        if self._asks:
            inputs = dict(zip(self._adapter.input_names, values, strict=True))
            self._adapter.load(self._static, inputs)
            self._graph.replay()
            results = self._adapter.unload(self._outputs, inputs, self._sizes, self.bucket)
            return tree_unflatten([results[name] for name in self._outputs], self._structure)
        for position, view, buffer, pad in self._loads:
            if buffer is not None:
                buffer.fill_(pad)
            view.copy_(values[position])
        self._graph.replay()
        if self._single is not None:
            return self._single.clone()
        return tree_unflatten([view.clone() for view in self._views], self._structure)
