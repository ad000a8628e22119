"""Graphs that share a pool."""

from __future__ import annotations

import torch

from conformance.fidelity.row import Device, Group, Only
from conformance.fidelity.stage import Stage

group = Group("shared pools")
GROUPS = (group,)

WORST_CASE = Only(Device.EMULATED, "whether a GPU's allocator gives a block away depends on sizes and on its history")


@group.returns(True)
def a_pool_handle_is_a_pair_and_each_is_another(stage: Stage) -> object:
    first, second = torch.cuda.graph_pool_handle(), torch.cuda.graph_pool_handle()
    return isinstance(first, tuple) and len(first) == 2 and first != second


@group.returns(True)
def a_graph_reports_the_pool_it_was_given(stage: Stage) -> object:
    pool = torch.cuda.graph_pool_handle()
    stage.capture(lambda: stage.x + 1, pool=pool)
    return stage.graph.pool() == pool


@group.returns([1.5, 2.5])
def an_output_of_an_earlier_graph_survives_the_replay_of_a_later_one(stage: Stage) -> object:
    later = torch.cuda.CUDAGraph()
    first = stage.capture(lambda: stage.x + 1)
    second = stage.capture(lambda: stage.x + 2, graph=later, pool=stage.graph.pool())
    stage.replay()
    stage.replay(later)
    return [first[0].item(), second[0].item()]


@group.returns([1.5, 2.5])
def outputs_cloned_after_each_replay_are_right_in_any_order(stage: Stage) -> object:
    later = torch.cuda.CUDAGraph()
    first = stage.capture(lambda: stage.x + 1)
    second = stage.capture(lambda: stage.x + 2, graph=later, pool=stage.graph.pool())
    stage.replay(later)
    cloned = second.clone()
    stage.replay()
    return [first[0].item(), cloned[0].item()]


@group.returns(2.5)
def a_graph_replays_right_after_another_of_its_pool(stage: Stage) -> object:
    later = torch.cuda.CUDAGraph()
    stage.capture(lambda: ((stage.x * 3) + 4) / 2)
    out = stage.capture(lambda: ((stage.x * 4) + 3) / 2, graph=later, pool=stage.graph.pool())
    stage.replay(later)
    stage.replay()
    stage.replay(later)
    return out[0].item()


@group.returns(2.5)
def a_graph_replays_after_another_of_its_pool_was_dropped(stage: Stage) -> object:
    pool = torch.cuda.graph_pool_handle()
    dropped = torch.cuda.CUDAGraph()
    stage.capture(lambda: stage.x * 2, graph=dropped, pool=pool)
    out = stage.capture(lambda: stage.x + 2, pool=pool)
    del dropped
    stage.replay()
    return out[0].item()


@group.returns(2.5)
def a_graph_replays_after_another_of_its_pool_was_reset(stage: Stage) -> object:
    pool = torch.cuda.graph_pool_handle()
    other = torch.cuda.CUDAGraph()
    stage.capture(lambda: stage.x * 2, graph=other, pool=pool)
    out = stage.capture(lambda: stage.x + 2, pool=pool)
    other.reset()
    stage.replay()
    return out[0].item()


@group.returns([1.5, 2.5])
def private_pools_do_not_meet(stage: Stage) -> object:
    other = torch.cuda.CUDAGraph()
    first = stage.capture(lambda: stage.x + 1)
    second = stage.capture(lambda: stage.x + 2, graph=other)
    stage.replay(other)
    stage.replay()
    return [first[0].item(), second[0].item()]


@group.returns(3.5)
def an_output_of_one_graph_may_feed_another_of_its_pool(stage: Stage) -> object:
    later = torch.cuda.CUDAGraph()
    middle = stage.capture(lambda: stage.x + 1)
    out = stage.capture(lambda: middle + 2, graph=later, pool=stage.graph.pool())
    stage.replay()
    stage.replay(later)
    return out[0].item()


@group.returns(True, only=WORST_CASE)
def replaying_an_earlier_graph_clobbers_a_later_ones_output(stage: Stage) -> object:
    later = torch.cuda.CUDAGraph()
    stage.capture(lambda: ((stage.x * 3) + 4) / 2)
    out = stage.capture(lambda: stage.x + 2, graph=later, pool=stage.graph.pool())
    stage.replay(later)
    stage.replay()
    return bool(out.isnan().all())
