"""Inputs of a call, rearranged row by row. Pure functions: what they are given stays as it is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import torch

from runner import GraphAdapter

if TYPE_CHECKING:
    from conformance.subject import Inputs


def row_axis(adapter: GraphAdapter) -> str | None:
    """The axis of a batch's rows, where the adapter has one."""
    return "batch" if "batch" in adapter.axes else None


def time_axis(adapter: GraphAdapter) -> str | None:
    """The axis that the outputs' lengths depend on."""
    return next((spec.of for spec in adapter.outputs if spec.length is not None), None)


def row_alone(adapter: GraphAdapter, inputs: Inputs, row: int, length: int) -> Inputs:
    """Row `row` of `inputs` in a batch of one, cut to `length` frames."""
    alone: Inputs = {}
    for spec in adapter.inputs:
        tensor = inputs[spec.name]
        for position, axis in enumerate(spec.axes):
            if axis == row_axis(adapter):
                tensor = tensor.narrow(position, row, 1)
            elif axis == time_axis(adapter):
                tensor = tensor.narrow(position, 0, length)
        alone[spec.name] = tensor.contiguous()
    return alone


def with_row(adapter: GraphAdapter, inputs: Inputs, position: int, row: Inputs, slots_input: str | None) -> Inputs:
    """`inputs` with the first row of `row` in place of the one at `position`.

    A neighbour that had its slot, of those that `slots_input` names, takes the slot of the row that went.
    """
    rows = row_axis(adapter)
    placed: Inputs = {}
    for spec in adapter.inputs:
        tensor = inputs[spec.name].clone()
        if rows in spec.axes:
            at = spec.axes.index(rows)
            new, old = row[spec.name].select(at, 0), tensor.select(at, position).clone()
            if spec.name == slots_input:
                tensor = torch.where(tensor == new, old, tensor)
            tensor.select(at, position).copy_(new)
        placed[spec.name] = tensor
    return placed


def with_lengths(adapter: GraphAdapter, inputs: Inputs, lengths: Sequence[int], asked: Collection[str]) -> Inputs:
    """`inputs` with row i padded after `lengths[i]` frames, and the lengths in those inputs that are `asked`."""
    rows, time = row_axis(adapter), time_axis(adapter)
    shortened: Inputs = {}
    for spec in adapter.inputs:
        tensor = inputs[spec.name].clone()
        if spec.name in asked:
            tensor.copy_(torch.tensor(lengths, dtype=tensor.dtype))
        elif rows in spec.axes and time in spec.axes:
            at, along = spec.axes.index(rows), spec.axes.index(time)
            for row, length in enumerate(lengths):
                tail = tensor.select(at, row)
                position = along - (along > at)
                tail.narrow(position, length, tail.shape[position] - length).fill_(spec.pad)
        shortened[spec.name] = tensor
    return shortened
