"""Streams and events."""

from __future__ import annotations

import threading

import torch

from conformance.fidelity.row import Group
from conformance.fidelity.stage import Stage

group = Group("streams and events")
GROUPS = (group,)


@group.returns([True, True])
def a_stream_context_sets_and_restores_the_current_stream(stage: Stage) -> object:
    before, side = torch.cuda.current_stream(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        inside = torch.cuda.current_stream() == side
    return [inside, torch.cuda.current_stream() == before]


@group.returns([True, True])
def with_a_stream_is_its_context_too(stage: Stage) -> object:
    before, side = torch.cuda.current_stream(), torch.cuda.Stream()
    with side:
        inside = torch.cuda.current_stream() == side
    return [inside, torch.cuda.current_stream() == before]


@group.returns(True)
def a_stream_context_of_none_changes_nothing(stage: Stage) -> object:
    before = torch.cuda.current_stream()
    with torch.cuda.stream(None):
        return torch.cuda.current_stream() == before


@group.returns([True, True])
def set_stream_holds_until_it_is_set_again(stage: Stage) -> object:
    before, side = torch.cuda.current_stream(), torch.cuda.Stream()
    torch.cuda.set_stream(side)
    inside = torch.cuda.current_stream() == side
    torch.cuda.set_stream(before)
    return [inside, torch.cuda.current_stream() == before]


@group.returns([0, True, True])
def the_default_stream_is_stream_zero(stage: Stage) -> object:
    default = torch.cuda.default_stream()
    return [default.cuda_stream, default == torch.cuda.default_stream(), torch.cuda.Stream() != default]


@group.returns(["cuda:0", True])
def a_stream_says_where_it_is_and_can_be_hashed(stage: Stage) -> object:
    stream = torch.cuda.Stream(device="cuda:0", priority=-1)
    return [str(stream.device), stream in {stream}]


@group.returns([True, True])
def streams_and_events_are_of_torchs_base_classes(stage: Stage) -> object:
    return [isinstance(torch.cuda.Stream(), torch.Stream), isinstance(torch.cuda.Event(), torch.Event)]


@group.returns(True)
def another_thread_starts_on_the_default_stream(stage: Stage) -> object:
    seen = []
    with torch.cuda.stream(torch.cuda.Stream()):
        thread = threading.Thread(target=lambda: seen.append(torch.cuda.current_stream().cuda_stream))
        thread.start()
        thread.join()
    return seen == [0]


@group.returns(4.0)
def work_on_a_side_stream_is_seen_after_waiting(stage: Stage) -> object:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        out = torch.full((1,), 2.0, device="cuda") * 2
    torch.cuda.current_stream().wait_stream(side)
    out.record_stream(torch.cuda.current_stream())
    return out.item()


@group.returns([True, True])
def an_event_measures_time(stage: Stage) -> object:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    stage.x.mul_(2)
    end.record()
    end.synchronize()
    return [start.elapsed_time(end) >= 0.0, end.query()]


@group.refuses("enable_timing=True|invalid resource handle|not recorded|must be created", Exception)
def an_event_without_timing_measures_none(stage: Stage) -> object:
    start, end = torch.cuda.Event(), torch.cuda.Event()
    start.record()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


@group.returns(True)
def a_stream_records_and_waits_for_events(stage: Stage) -> object:
    side = torch.cuda.Stream()
    event = torch.cuda.current_stream().record_event()
    side.wait_event(event)
    event.wait(side)
    side.synchronize()
    return bool(event.query() and side.query())


@group.returns(True)
def an_unrecorded_event_counts_as_done(stage: Stage) -> object:
    return torch.cuda.Event().query()


@group.returns(3.5)
def a_stream_forked_and_joined_is_part_of_the_capture(stage: Stage) -> object:
    side = torch.cuda.Stream()

    def body() -> torch.Tensor:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            half = stage.x * 2
        torch.cuda.current_stream().wait_stream(side)
        return half + 1.5

    out = stage.capture(body)
    stage.x.fill_(1.0)
    stage.replay()
    return out[0].item()


@group.returns([True, True])
def a_forked_stream_is_capturing(stage: Stage) -> object:
    side = torch.cuda.Stream()
    seen = []

    def body() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            seen.append(torch.cuda.is_current_stream_capturing())
        torch.cuda.current_stream().wait_stream(side)
        seen.append(torch.cuda.is_current_stream_capturing())

    stage.capture(body, warm=False)
    return seen


@group.refuses("unjoined work")
def a_forked_stream_that_is_not_joined_is_refused(stage: Stage) -> object:
    side = torch.cuda.Stream()

    def body() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            stage.x.mul_(1)

    return stage.capture(body, warm=False)


@group.refuses("uncaptured work|captur")
def a_wait_within_a_capture_for_work_outside_it_is_refused(stage: Stage) -> object:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        stage.x.mul_(1)
    return stage.capture(lambda: torch.cuda.current_stream().wait_stream(side), warm=False)


@group.returns([False, 5.0])
def a_stream_that_was_not_forked_runs_at_once(stage: Stage) -> object:
    side, target = torch.cuda.Stream(), torch.zeros(1, device="cuda")
    seen = []

    def body() -> None:
        with torch.cuda.stream(side):
            target.fill_(5.0)
            seen.append(torch.cuda.is_current_stream_capturing())

    stage.capture(body, warm=False)
    torch.cuda.synchronize()
    return [*seen, target.item()]


@group.returns(False)
def another_thread_is_not_capturing(stage: Stage) -> object:
    seen = []

    def body() -> None:
        thread = threading.Thread(target=lambda: seen.append(torch.cuda.is_current_stream_capturing()))
        thread.start()
        thread.join()

    stage.capture(body, warm=False)
    return seen[0]


@group.returns(1.5)
def a_replay_may_run_on_any_stream(stage: Stage) -> object:
    out = stage.capture(lambda: stage.x + 1)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        stage.replay()
    return out[0].item()
