"""The graph that graphed calls are held against: `forward` alone, or nothing where it cannot be captured."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from conformance.bench.by_hand import by_hand
from conformance.bench.measure import measure, rounds_in_short
from conformance.bench.timer import PlainTimer
from conformance.device import open_device
from conformance.registry import spec_of
from conformance.subject import open_subject

SIZES = {"batch": 1, "frames": 8}


@pytest.fixture
def subject() -> Any:
    with open_device("emulated") as machine:
        opened = open_subject(spec_of("reference"), machine, 0, None)
        yield opened
        opened.close()


def test_it_gives_what_forward_gives_for_the_inputs_as_they_are_now(subject: Any) -> None:
    inputs = subject.draw(SIZES, "one")
    hand, refused = by_hand(subject, inputs)
    assert hand is not None
    assert not refused
    first = hand()
    assert torch.allclose(first[0], subject.eager_as_served(inputs), atol=1e-6)
    inputs["codes"].copy_(subject.draw(SIZES, "another")["codes"])
    assert torch.allclose(hand()[0], subject.eager_as_served(inputs), atol=1e-6)
    assert not torch.equal(first[0], hand()[0]), "a result is the caller's"


def test_a_forward_that_waits_for_the_device_is_timed_without_one_and_costs_nothing_else(
    subject: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, forward = subject.draw(SIZES, "one"), subject.adapter.forward

    def waits(codes: torch.Tensor) -> Any:
        torch.cuda.synchronize()
        return forward(codes)

    monkeypatch.setattr(subject.adapter, "forward", waits)
    hand, refused = by_hand(subject, inputs)
    assert hand is None
    assert "synchronize" in refused
    measured = measure(subject, inputs, None, PlainTimer(0.01), lambda _: False)
    assert rounds_in_short(measured)["by_hand_refused"] == refused
    assert "blocks" not in rounds_in_short(measured)
    monkeypatch.undo()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        subject.adapter.forward(inputs["codes"])


@pytest.mark.gpu
def test_a_gpu_tells_what_its_graph_takes_apart_from_the_call() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    with open_device("cuda") as machine:
        subject = open_subject(spec_of("reference"), machine, 0, None)
        measured = measure(subject, subject.draw(SIZES, "one"), None, PlainTimer(0.01), lambda _: False)
        subject.close()
    assert measured.graph_seconds is not None
    assert 0 < measured.graph_seconds < min(measured.times.hand) < min(measured.times.eager)


def test_its_replays_are_not_counted_as_the_runners(subject: Any) -> None:
    measured = measure(subject, subject.draw(SIZES, "one"), None, PlainTimer(0.01), lambda _: False)
    assert measured.replays == measured.calls
    assert (measured.captures, measured.grown) == (0, 0)
    assert len(measured.times.hand) == len(measured.times.graphed)
