"""One size of call, prepared: which static views take the inputs, and which parts of the outputs are the caller's."""

from collections.abc import Mapping
from math import prod

from torch import Tensor

from runner.adapter import GraphAdapter, Sizes, Tensors
from runner.lengths import PerRowLengths


class CallPlan:
    """What `GraphAdapter.load` and `unload` do for calls of one size in one bucket, with their views made once.

    `whole` of an adapter that overrides one of the two, or whose rows have lengths of their own, is false: it is asked
    at each call.
    """

    def __init__(
        self, adapter: GraphAdapter, static: Tensors, outputs: Tensors, sizes: Sizes, bucket: Sizes, inputs: Tensors
    ) -> None:
        self.elements = prod(sizes.values())
        kind = type(adapter)
        own = kind.load is not GraphAdapter.load or kind.unload is not GraphAdapter.unload
        own = own or not {"load", "unload"}.isdisjoint(vars(adapter))
        self.whole = not own and not any(isinstance(spec.length, PerRowLengths) for spec in adapter.outputs)
        self._loads: list[tuple[str, Tensor, Tensor | None, float]] = []
        self._results: list[tuple[str, Tensor]] = []
        if not self.whole:
            return
        for spec in adapter.device_inputs():
            buffer, shape = static[spec.name], inputs[spec.name].shape
            view = buffer if buffer.shape == shape else buffer[tuple([slice(size) for size in shape])]
            self._loads.append((spec.name, view, None if view is buffer else buffer, spec.pad))
        kept = adapter.kept(outputs, sizes, bucket)
        self._results = [(spec.name, kept[spec.name]) for spec in adapter.outputs]

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        for name, view, buffer, pad in self._loads:
            if buffer is not None:
                buffer.fill_(pad)
            view.copy_(inputs[name])

    def unload(self) -> dict[str, Tensor]:
        return {name: view.clone() for name, view in self._results}
