"""The work of a graphed call with nothing around it: one graph of `forward`, loaded, replayed and cloned.

A graphed call is held against it between two runs: what it takes more is the runner's or wrapper's own, and the host's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from conformance.bench.figures import floor
from conformance.places import told
from conformance.subject import Inputs, Subject
from runner.capture import root_cause

_QUEUED = 2_000_000  # cycles of the device, about a millisecond: longer than the host takes to launch a graph


def capture_by_hand(
    forward: Callable[..., Any], tensors: Sequence[torch.Tensor]
) -> tuple[torch.cuda.CUDAGraph, list[torch.Tensor], Any]:
    """A graph of `forward` on copies of `tensors`; those copies, and the result that a replay writes."""
    static, graph = [tensor.clone() for tensor in tensors], torch.cuda.CUDAGraph()
    with torch.no_grad():
        for _ in range(2):
            forward(*static)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            result = forward(*static)
    return graph, static, result


class ByHand:
    """`forward` of the subject's adapter, captured for inputs of one size, apart from its runner and wrapper."""

    def __init__(self, subject: Subject, inputs: Inputs) -> None:
        tensors = [inputs[spec.name] for spec in subject.adapter.device_inputs()]
        self._graph, static, result = capture_by_hand(subject.adapter.forward, tensors)
        self._pairs = list(zip(static, tensors, strict=True))
        self._outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.calls = 0

    def __call__(self) -> list[torch.Tensor]:
        self.calls += 1
        with torch.no_grad():
            for static, tensor in self._pairs:
                static.copy_(tensor)
            self._graph.replay()
            return [output.clone() for output in self._outputs]

    def device_seconds(self, samples: int = 30) -> float:
        """What a replay takes the GPU alone: it is queued behind other work, so that its launch is no part of it."""
        found = []
        for _ in range(samples):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(_QUEUED)
            start.record()
            self._graph.replay()
            end.record()
            torch.cuda.synchronize()
            found.append(start.elapsed_time(end) / 1e3)
        return floor(found)


def by_hand(subject: Subject, inputs: Inputs) -> tuple[ByHand | None, str]:
    """None and the error for a `forward` that cannot be captured so, as one that reads a value of the device."""
    made, refused = None, ""
    try:
        made = ByHand(subject, inputs)
    except Exception as error:
        refused = told(root_cause(error))
        subject.settle()  # a refused operation leaves the device capturing
    subject.fresh_start()
    return made, refused
