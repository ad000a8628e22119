"""Nested and failed captures."""

from __future__ import annotations

import contextlib

import torch

from conformance.fidelity.row import REFUSED_IN_CAPTURE, Group
from conformance.fidelity.stage import Stage

nested = Group("nested captures and replays are refused")
failed = Group("a failed capture leaves what torch leaves")
GROUPS = (nested, failed)

_never_deleted: list[torch.cuda.CUDAGraph] = []
"""Torch 2.11 ends the process when a graph is deleted whose capture could not begin within another."""


def _raise_key_error() -> None:
    raise KeyError("absent")


@nested.refuses(REFUSED_IN_CAPTURE)
def a_capture_within_a_capture_is_refused(stage: Stage) -> object:
    inner = torch.cuda.CUDAGraph()
    return stage.capture(lambda: stage.capture(lambda: stage.x + 1, graph=inner, warm=False), warm=False)


@nested.refuses("captur")
def a_capture_begun_by_hand_within_a_capture_is_refused(stage: Stage) -> object:
    inner = torch.cuda.CUDAGraph()
    _never_deleted.append(inner)
    return stage.capture(inner.capture_begin, warm=False)


@nested.refuses("Cannot prepare for replay during capturing stage")
def a_replay_within_a_capture_is_refused(stage: Stage) -> object:
    inner = torch.cuda.CUDAGraph()
    stage.capture(lambda: stage.x + 1, graph=inner)
    return stage.capture(inner.replay, warm=False)


@nested.returns(["refused", 2.5])
def the_outer_capture_survives_a_refused_replay(stage: Stage) -> object:
    inner = torch.cuda.CUDAGraph()
    stage.capture(lambda: stage.x + 1, graph=inner)
    answers = []

    def body() -> torch.Tensor:
        try:
            inner.replay()
        except RuntimeError:
            answers.append("refused")
        return stage.x + 2

    out = stage.capture(body, warm=False)
    stage.replay()
    return [*answers, out[0].item()]


@nested.returns([1.5, 2.5])
def a_graph_refused_within_a_capture_replays_afterwards(stage: Stage) -> object:
    inner = torch.cuda.CUDAGraph()
    inner_out = stage.capture(lambda: stage.x + 1, graph=inner)

    def body() -> torch.Tensor:
        try:
            inner.replay()
        except RuntimeError:
            return stage.x + 2
        return stage.x

    out = stage.capture(body, warm=False)
    stage.replay(inner)
    stage.replay()
    return [inner_out[0].item(), out[0].item()]


@failed.returns(False)
def the_capturing_flag_is_down_after_a_refused_operation(stage: Stage) -> object:
    stage.failing_capture()
    return torch.cuda.is_current_stream_capturing()


@failed.returns(1.5)
def the_next_capture_works_after_a_refused_operation(stage: Stage) -> object:
    stage.failing_capture()
    out = stage.capture(lambda: stage.x + 1)
    stage.replay()
    return out[0].item()


@failed.returns([True, 1.5])
def eager_work_goes_on_after_a_refused_operation(stage: Stage) -> object:
    stage.failing_capture()
    torch.cuda.synchronize()
    return [bool((stage.x * 2)[0].item() == 1.0), (stage.x + 1)[0].item()]


@failed.returns([True, True])
def the_current_stream_is_not_restored_after_a_refused_operation(stage: Stage) -> object:
    before, side = torch.cuda.current_stream(), torch.cuda.Stream()
    stage.failing_capture(stream=side)
    return [torch.cuda.current_stream() == side, side != before]


@failed.returns(True)
def the_current_stream_is_restored_after_a_python_exception(stage: Stage) -> object:
    before = torch.cuda.current_stream()
    try:
        stage.capture(_raise_key_error, warm=False, stream=torch.cuda.Stream())
    except KeyError:
        return torch.cuda.current_stream() == before
    return None


@failed.refuses("absent", KeyError)
def a_python_exception_leaves_a_capture_as_itself(stage: Stage) -> object:
    return stage.capture(_raise_key_error, warm=False)


@failed.returns([False, 2.5])
def after_a_python_exception_the_next_capture_works(stage: Stage) -> object:
    try:
        stage.capture(_raise_key_error, warm=False)
    except KeyError:
        flag = torch.cuda.is_current_stream_capturing()
    second = torch.cuda.CUDAGraph()
    out = stage.capture(lambda: stage.x + 2, graph=second)
    stage.replay(second)
    return [flag, out[0].item()]


@failed.returns(9.0)
def what_was_captured_before_a_python_exception_replays(stage: Stage) -> object:
    target = torch.zeros(1, device="cuda")

    def body() -> None:
        target.fill_(9.0)
        raise KeyError("absent")

    try:
        stage.capture(body, warm=False)
    except KeyError:
        target.zero_()
    stage.replay()
    return target.item()


@failed.returns(0.0)
def writes_of_a_failed_capture_never_happen(stage: Stage) -> object:
    state = torch.zeros(1, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with contextlib.suppress(RuntimeError):
        stage.capture(lambda: state.add_(1).item(), graph=graph, warm=False)
    return state.item()


@failed.refuses("Called CUDAGraph::replay without a preceding successful capture")
def a_graph_whose_capture_failed_cannot_be_replayed(stage: Stage) -> object:
    try:
        stage.capture(lambda: stage.x[0].item())
    except RuntimeError:
        torch.cuda.synchronize()
    stage.graph.replay()
    return None


@failed.refuses("previous error during capture")
def the_capture_fails_although_the_refusal_was_caught(stage: Stage) -> object:
    def body() -> torch.Tensor:
        with contextlib.suppress(RuntimeError):
            stage.x[0].item()
        return stage.x + 1

    return stage.capture(body, warm=False)


@failed.returns(["refused", "refused"])
def every_kernel_after_the_refused_operation_is_refused_too(stage: Stage) -> object:
    answers: list[str] = []

    def body() -> None:
        for operation in (lambda: stage.x[0].item(), lambda: stage.x + 1):
            try:
                operation()
                answers.append("allowed")
            except RuntimeError:
                answers.append("refused")

    try:
        stage.capture(body, warm=False)
    except RuntimeError:
        torch.cuda.synchronize()
    return answers


@failed.refuses("beginAllocateToPool: already recording to mempool_id")
def a_refused_operation_leaves_its_pool_recording(stage: Stage) -> object:
    pool = torch.cuda.graph_pool_handle()
    stage.failing_capture(pool=pool)
    return stage.capture(lambda: stage.x + 1, pool=pool)


@failed.returns(1.5)
def a_fresh_pool_works_after_a_refused_operation(stage: Stage) -> object:
    stage.failing_capture(pool=torch.cuda.graph_pool_handle())
    out = stage.capture(lambda: stage.x + 1, pool=torch.cuda.graph_pool_handle())
    stage.replay()
    return out[0].item()


@failed.returns(1.5)
def a_pool_survives_a_python_exception(stage: Stage) -> object:
    pool = torch.cuda.graph_pool_handle()
    with contextlib.suppress(KeyError):
        stage.capture(_raise_key_error, graph=torch.cuda.CUDAGraph(), warm=False, pool=pool)
    out = stage.capture(lambda: stage.x + 1, pool=pool)
    stage.replay()
    return out[0].item()


@failed.returns([2.5, 1.5])
def earlier_graphs_replay_after_a_failed_capture(stage: Stage) -> object:
    out = stage.capture(lambda: stage.x + 2)
    stage.failing_capture()
    stage.replay()
    return [out[0].item(), (out[0] - 1).item()]


@failed.refuses("Offset increment outside graph capture encountered unexpectedly")
def a_refused_operation_leaves_the_default_generator_in_capture_mode(stage: Stage) -> object:
    stage.failing_capture()
    return torch.randn(2, device="cuda").isfinite().tolist()


@failed.returns([True, True])
def the_next_capture_gives_the_default_generator_back(stage: Stage) -> object:
    stage.failing_capture()
    stage.capture(lambda: stage.x + 1)
    return torch.randn(2, device="cuda").isfinite().tolist()


@failed.returns(["at least two devices", 1.5])
def a_mix_of_devices_is_refused_and_the_capture_goes_on(stage: Stage) -> object:
    answers = []

    def body() -> torch.Tensor:
        try:
            stage.x + stage.host
        except RuntimeError as error:
            answers.append("at least two devices" if "at least two devices" in str(error) else str(error))
        return stage.x + 1

    out = stage.capture(body, warm=False)
    stage.replay()
    return [*answers, out[0].item()]
