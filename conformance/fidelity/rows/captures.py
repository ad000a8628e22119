"""Capture executes nothing, and a graph's life cycle."""

from __future__ import annotations

import torch

from conformance.fidelity.row import Device, Group, Only
from conformance.fidelity.stage import Stage

nothing = Group("capture executes nothing")
life = Group("a graph's life cycle")
GROUPS = (nothing, life)

WORST_CASE = Only(Device.EMULATED, "a GPU's unwritten memory may hold anything, the right values included")


@nothing.returns([False, True])
def a_float_output_is_computed_by_the_first_replay(stage: Stage) -> object:
    source = torch.zeros(512, device="cuda")
    out = stage.capture(lambda: source * 3 + 0.125)
    source.copy_(torch.arange(512) * 1.75)
    wanted = torch.arange(512) * 1.75 * 3 + 0.125
    before = torch.equal(out.cpu(), wanted)
    stage.replay()
    return [before, torch.equal(out.cpu(), wanted)]


@nothing.returns([False, True])
def an_integer_output_is_computed_by_the_first_replay(stage: Stage) -> object:
    source = torch.zeros(512, dtype=torch.long, device="cuda")
    out = stage.capture(lambda: source * 7 + 5)
    source.copy_(torch.arange(512))
    wanted = torch.arange(512) * 7 + 5
    before = torch.equal(out.cpu(), wanted)
    stage.replay()
    return [before, torch.equal(out.cpu(), wanted)]


@nothing.returns([False, True])
def a_bool_output_is_computed_by_the_first_replay(stage: Stage) -> object:
    source = torch.zeros(4096, device="cuda")
    out = stage.capture(lambda: source > 7)
    wanted = torch.arange(4096) % 13 > 7
    source.copy_(torch.arange(4096) % 13)
    before = torch.equal(out.cpu(), wanted)
    stage.replay()
    return [before, torch.equal(out.cpu(), wanted)]


@nothing.returns([False, True])
def a_complex_output_is_computed_by_the_first_replay(stage: Stage) -> object:
    source = torch.zeros(64, device="cuda")
    out = stage.capture(lambda: torch.complex(source, source + 1.375))
    source.copy_(torch.arange(64))
    before = bool((out.cpu().imag == torch.arange(64) + 1.375).all())
    stage.replay()
    return [before, bool((out.cpu().imag == torch.arange(64) + 1.375).all())]


@nothing.returns([[False, False, False], [True, True, True]])
def the_capture_call_itself_returns_unwritten_memory(stage: Stage) -> object:
    source = torch.arange(4096, device="cuda") % 17

    def body(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return values * 2.375, values * 11 + 3, values > 9

    stage.warm_up(lambda: body(torch.zeros_like(source)))
    results = stage.capture(lambda: body(source), warm=False)
    wanted = body(torch.arange(4096) % 17)
    before = [torch.equal(result.cpu(), value) for result, value in zip(results, wanted, strict=True)]
    stage.replay()
    return [before, [torch.equal(result.cpu(), value) for result, value in zip(results, wanted, strict=True)]]


@nothing.returns([True, True, True], only=WORST_CASE)
def unwritten_outputs_hold_poison(stage: Stage) -> object:
    floats, integers, flags = stage.capture(lambda: (stage.x + 1, stage.codes + 1, stage.codes >= 0))
    return [bool(floats.isnan().all()), bool((integers > 2**60).all()), not bool(flags.any())]


@nothing.returns([0.0, 1.0, 2.0])
def an_in_place_write_to_outside_memory_happens_at_each_replay(stage: Stage) -> object:
    state = torch.zeros(1, device="cuda")
    stage.capture(lambda: state.add_(1), warm=False)
    seen = [state.item()]
    for _ in range(2):
        stage.replay()
        seen.append(state.item())
    return seen


@nothing.returns([[0.0, 0.0], [5.0, 0.0]])
def a_cache_slot_is_written_at_replay_and_not_by_the_capture(stage: Stage) -> object:
    cache = torch.zeros(2, device="cuda")
    slot = torch.tensor([0], device="cuda")
    value = torch.tensor([5.0], device="cuda")
    stage.warm_up(lambda: cache.clone().index_copy_(0, slot, value))
    stage.capture(lambda: cache.index_copy_(0, slot, value), warm=False)
    before = cache.tolist()
    stage.replay()
    return [before, cache.tolist()]


@nothing.returns([1.0, 3.0])
def a_parameter_written_in_place_is_written_at_replay(stage: Stage) -> object:
    layer = torch.nn.Linear(1, 1, bias=False).to("cuda").requires_grad_(False)
    layer.weight.fill_(1.0)
    stage.capture(lambda: layer.weight.mul_(3), warm=False)
    before = layer.weight.item()
    stage.replay()
    return [before, layer.weight.item()]


@nothing.returns([0, 1, 2])
def a_batch_norm_counts_a_step_at_each_replay(stage: Stage) -> object:
    norm = torch.nn.BatchNorm1d(2).to("cuda").train()
    stage.warm_up(lambda: torch.nn.BatchNorm1d(2).to("cuda")(stage.square))
    stage.capture(lambda: norm(stage.square), warm=False)
    steps = norm.num_batches_tracked
    assert steps is not None
    seen = [steps.item()]
    for _ in range(2):
        stage.replay()
        seen.append(steps.item())
    return seen


@nothing.returns([1.0, 4.0])
def a_write_through_out_is_undone_until_replay(stage: Stage) -> object:
    target = torch.ones(1, device="cuda")
    source = torch.full((1,), 2.0, device="cuda")
    stage.capture(lambda: torch.mul(source, 2, out=target), warm=False)
    before = target.item()
    stage.replay()
    return [before, target.item()]


@nothing.returns([1.0, 9.0])
def a_write_through_a_view_is_undone_until_replay(stage: Stage) -> object:
    base = torch.ones(4, device="cuda")
    stage.capture(lambda: base[1:3].fill_(9.0), warm=False)
    before = base[2].item()
    stage.replay()
    return [before, base[2].item()]


@nothing.returns([[0.0, 0.0], [2.0, 2.0]])
def a_foreach_write_is_undone_until_replay(stage: Stage) -> object:
    states = [torch.zeros(1, device="cuda"), torch.zeros(3, device="cuda")]
    stage.capture(lambda: torch._foreach_add_(states, 2.0), warm=False)
    before = [state[0].item() for state in states]
    stage.replay()
    return [before, [state[0].item() for state in states]]


@nothing.returns(6)
def the_body_is_run_by_python_once(stage: Stage) -> object:
    calls = []
    stage.capture(lambda: calls.append(stage.x + 1), warm=False)
    stage.replay()
    stage.replay()
    return len(calls) + 5


@life.refuses("Called CUDAGraph::replay without a preceding successful capture")
def replay_without_a_capture_is_refused(stage: Stage) -> object:
    stage.graph.replay()
    return None


@life.refuses("Called CUDAGraph::pool.. without a preceding successful capture")
def pool_without_a_capture_is_refused(stage: Stage) -> object:
    return stage.graph.pool()


@life.refuses("already owns a captured graph")
def a_second_capture_into_one_object_is_refused(stage: Stage) -> object:
    stage.capture(lambda: stage.x + 1)
    return stage.capture(lambda: stage.x + 2)


@life.refuses("Called CUDAGraph::replay without a preceding successful capture")
def replay_after_reset_is_refused(stage: Stage) -> object:
    stage.capture(lambda: stage.x + 1)
    stage.graph.reset()
    stage.graph.replay()
    return None


@life.refuses("Called CUDAGraph::pool.. without a preceding successful capture")
def pool_after_reset_is_refused(stage: Stage) -> object:
    stage.capture(lambda: stage.x + 1)
    stage.graph.reset()
    return stage.graph.pool()


@life.returns(2.5)
def an_object_that_was_reset_captures_again(stage: Stage) -> object:
    stage.capture(lambda: stage.x + 1)
    stage.graph.reset()
    out = stage.capture(lambda: stage.x + 2)
    stage.replay()
    return out[0].item()


@life.returns(None)
def reset_of_a_fresh_object_is_allowed(stage: Stage) -> object:
    stage.graph.reset()
    return None


@life.returns(None)
def an_empty_capture_can_be_replayed(stage: Stage) -> object:
    stage.capture(lambda: None)
    stage.replay()
    return None


@life.refuses("must be captured on a non-default stream")
def a_capture_on_the_default_stream_is_refused(stage: Stage) -> object:
    with torch.cuda.stream(torch.cuda.default_stream()):
        stage.graph.capture_begin()
        return None


@life.refuses("CUDA error")
def the_end_of_a_capture_that_never_began_is_refused(stage: Stage) -> object:
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.CUDAGraph().capture_end()
        return None


@life.returns(["refused", 1.5])
def a_capture_must_end_on_the_stream_it_began_on(stage: Stage) -> object:
    stage.warm_up(lambda: stage.x + 1)
    with torch.cuda.stream(torch.cuda.Stream()):
        stage.graph.capture_begin()
        out = stage.x + 1
        with torch.cuda.stream(torch.cuda.Stream()):
            try:
                stage.graph.capture_end()
                answer = "allowed"
            except RuntimeError as error:
                answer = "refused" if "must end on the same stream" in str(error) else str(error)
        stage.graph.capture_end()
    stage.replay()
    return [answer, out[0].item()]


@life.returns(1.5)
def begin_and_end_may_be_called_by_hand(stage: Stage) -> object:
    stage.warm_up(lambda: stage.x + 1)
    with torch.cuda.stream(torch.cuda.Stream()):
        stage.graph.capture_begin()
        out = stage.x + 1
        stage.graph.capture_end()
    stage.replay()
    return out[0].item()


@life.returns(1.5)
def the_context_takes_its_graph_by_keyword(stage: Stage) -> object:
    with torch.cuda.graph(cuda_graph=stage.graph, pool=None, stream=torch.cuda.Stream()):
        out = stage.x + 1
    stage.replay()
    return out[0].item()


@life.returns([1.5, 1.5, 1.5])
def every_capture_error_mode_is_accepted(stage: Stage) -> object:
    seen = []
    for mode in ("global", "thread_local", "relaxed"):
        graph = torch.cuda.CUDAGraph()
        out = stage.capture(lambda: stage.x + 1, graph=graph, capture_error_mode=mode)
        stage.replay(graph)
        seen.append(out[0].item())
    return seen


@life.refuses("Unknown capture error mode|capture_error_mode")
def an_unknown_capture_error_mode_is_refused(stage: Stage) -> object:
    return stage.capture(lambda: stage.x + 1, capture_error_mode="careless")


@life.returns([False, True, False])
def the_capturing_flag_is_up_during_the_capture_alone(stage: Stage) -> object:
    before = torch.cuda.is_current_stream_capturing()
    during = stage.capture(torch.cuda.is_current_stream_capturing, warm=False)
    return [before, during, torch.cuda.is_current_stream_capturing()]


@life.returns(True)
def a_graph_has_a_pool_that_another_capture_may_use(stage: Stage) -> object:
    stage.capture(lambda: stage.x + 1)
    second = torch.cuda.CUDAGraph()
    stage.capture(lambda: stage.x + 2, graph=second, pool=stage.graph.pool())
    return second.pool() == stage.graph.pool()
