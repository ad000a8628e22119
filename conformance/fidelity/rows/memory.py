"""Memory figures."""

from __future__ import annotations

import torch

from conformance.fidelity.row import Group
from conformance.fidelity.stage import Stage

group = Group("memory figures are of real bytes")
GROUPS = (group,)

MEGABYTES = 8


def _block() -> torch.Tensor:
    return torch.zeros(MEGABYTES << 18, device="cuda")  # floats: four bytes each


@group.returns([MEGABYTES << 20, 0])
def allocated_grows_by_a_tensors_bytes_and_shrinks_again(stage: Stage) -> object:
    before = torch.cuda.memory_allocated()
    block = _block()
    grown = torch.cuda.memory_allocated() - before
    del block
    return [grown, torch.cuda.memory_allocated() - before]


@group.returns(0)
def a_view_takes_no_memory(stage: Stage) -> object:
    block = _block()
    before = torch.cuda.memory_allocated()
    view = block[10:].view(-1)
    return torch.cuda.memory_allocated() - before if view.numel() else None


@group.returns(0)
def host_memory_does_not_count(stage: Stage) -> object:
    before = torch.cuda.memory_allocated()
    host = torch.zeros(MEGABYTES << 18)
    return torch.cuda.memory_allocated() - before if host.numel() else None


@group.returns([True, True])
def the_peak_remembers_what_was_freed(stage: Stage) -> object:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    block = _block()
    del block
    peak = torch.cuda.max_memory_allocated()
    return [peak - before >= MEGABYTES << 20, torch.cuda.memory_allocated() == before]


@group.returns([True, True])
def reserved_is_no_less_than_allocated_and_free_is_told(stage: Stage) -> object:
    free, total = torch.cuda.mem_get_info()
    return [torch.cuda.memory_reserved() >= torch.cuda.memory_allocated(), 0 < free <= total]


@group.returns(True)
def an_output_of_a_graph_stays_allocated(stage: Stage) -> object:
    source = _block()
    stage.warm_up(lambda: source[:1] * 2)
    before = torch.cuda.memory_allocated()
    out = stage.capture(lambda: source * 2, warm=False)
    return torch.cuda.memory_allocated() - before >= out.numel() * 4


@group.returns(True)
def replays_allocate_nothing(stage: Stage) -> object:
    source = _block()
    stage.capture(lambda: (source * 2 + 1).sum())
    stage.replay()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        stage.replay()
    return torch.cuda.memory_allocated() == before


@group.returns(True)
def memory_stats_hold_the_same_figure(stage: Stage) -> object:
    return torch.cuda.memory_stats()["allocated_bytes.all.current"] == torch.cuda.memory_allocated()
