"""Runs a row on the device that is there, and compares what it saw with what the table says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from conformance.emulation import emulated_cuda
from conformance.fidelity.row import Device, Refuses, Returns, Row
from conformance.fidelity.stage import open_stage


@dataclass(frozen=True)
class Verdict:
    """What one row came to: whether it agrees with the table, and what was seen."""

    name: str
    agrees: bool
    seen: str


def judge(row: Row, device: Device) -> Verdict:
    """Run `row` on `device`. Never raises for what the program does."""
    if device is Device.CUDA:
        return _judge_here(row)
    with emulated_cuda():
        return _judge_here(row)


def _judge_here(row: Row) -> Verdict:
    try:
        with open_stage() as stage:
            value = row.program(stage)
    except Exception as error:
        texts = [f"{type(link).__name__}: {link}" for link in _chain(error)]
        agrees = (
            isinstance(row.expected, Refuses)
            and isinstance(error, row.expected.error)
            and any(re.search(row.expected.pattern, text) for text in texts)
        )
        return Verdict(row.name, agrees, " <- ".join(text.splitlines()[0][:200] for text in texts))
    return Verdict(row.name, isinstance(row.expected, Returns) and row.expected.value == value, repr(value)[:300])


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def settle() -> bool:
    """Leave the device usable for the next row. False where a row has broken the process for good.

    A failed capture on CUDA leaves the default generator believing that a capture is open, until one has ended.
    """
    try:
        torch.cuda.synchronize()
        if torch.cuda.is_current_stream_capturing():
            return False
        x = torch.ones(4, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.graph(graph):
            x.add_(1)
        graph.replay()
        torch.cuda.synchronize()
        return bool(x.sum().item() == 8.0 and torch.randn(2, device="cuda").isfinite().all().item())
    except RuntimeError:
        return False
