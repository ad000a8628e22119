"""Inputs that contradict an adapter's declaration in one way each, with values that no kernel can trip over."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from conformance.subject import Inputs
from runner import GraphAdapter, InputSpec


def malformed_inputs(adapter: GraphAdapter, good: Inputs) -> Iterator[tuple[str, Inputs]]:
    """What is wrong, in words, and the inputs: `good` with one of them changed."""
    for spec in adapter.inputs:
        for kind, tensor in _of_one(adapter, spec, good[spec.name]):
            yield f"{spec.name} {kind}", {**good, spec.name: tensor}


def _of_one(adapter: GraphAdapter, spec: InputSpec, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    if not spec.host:
        other = torch.float32 if not tensor.is_floating_point() else torch.float64
        yield f"as {other}", tensor.to(other)
        if not tensor.is_floating_point():
            yield "as torch.int32", tensor.to(torch.int32)
        yield "without its first axis", tensor[0]
        yield "with an axis too many", tensor.unsqueeze(0)
        yield "on the host", tensor.cpu()
        for position, axis in enumerate(spec.axes):
            if axis not in adapter.axes and tensor.shape[position] > 1:
                yield f"with one {axis}", tensor.narrow(position, 0, 1)
                more = torch.cat([tensor, tensor.narrow(position, 0, 1)], dim=position)
                yield f"with one {axis} too many", more
    elif spec.axes and tensor.shape[0]:
        yield f"with one {spec.axes[0]} too many", torch.cat([tensor, tensor[:1]])
