"""Eager and graphed calls of one size, timed in turn, so that a change of the machine's load meets both alike.

Eager goes first in every other round, and the same by hand last: eager, graphed, by hand, by hand, graphed, eager. Each
time begins and ends with the device idle.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from conformance.bench.by_hand import ByHand, by_hand
from conformance.bench.figures import Quartiles, blocks_of
from conformance.bench.timer import PlainTimer
from conformance.device import CUDA
from conformance.instruments.footprint import allocated
from conformance.subject import Inputs, Subject

WARM = 3  # calls before any that counts, of each kind


@dataclass
class Times:
    """Seconds of the calls of each round. `full` is eager at the size of the bucket, where a call is padded.

    `hand` is the bucket's graph without a runner around it, where it can be captured so.
    """

    eager: list[float] = field(default_factory=list)
    graphed: list[float] = field(default_factory=list)
    full: list[float] = field(default_factory=list)
    hand: list[float] = field(default_factory=list)

    @property
    def speedups(self) -> list[float]:
        """Eager ÷ graphed, round by round."""
        return [eager / graphed for eager, graphed in zip(self.eager, self.graphed, strict=True)]

    @property
    def costs(self) -> list[float]:
        """Graphed ÷ eager, round by round."""
        return [graphed / eager for eager, graphed in zip(self.eager, self.graphed, strict=True)]

    @property
    def costs_at_bucket(self) -> list[float]:
        """Graphed ÷ eager of the same work: the bucket's, where a call is padded."""
        return [graphed / eager for eager, graphed in zip(self.full or self.eager, self.graphed, strict=True)]


@dataclass(frozen=True)
class Measured:
    """What the rounds showed, beside their times."""

    times: Times
    captures: int
    replays: int  # of the graphed calls
    calls: int  # graphed calls
    grown: int  # bytes of live tensors after the rounds, less those before
    graph_seconds: float | None = None  # of a replay by hand, on a GPU alone
    refused: str = ""  # why nothing was captured by hand


class Rounds:
    """The calls of `subject` at one size, round after round."""

    def __init__(self, subject: Subject, inputs: Inputs, full: Inputs | None, hand: ByHand | None) -> None:
        self._subject, self._inputs, self._full, self._hand = subject, inputs, full, hand
        self.times = Times()
        self._eager_first = True

    def before(self) -> None:
        if self._eager_first:
            self.times.eager.append(self._eager(self._inputs))
        else:
            self._by_hand()
        self._subject.fresh_start()
        torch.cuda.synchronize()

    def graphed(self) -> None:
        start = time.perf_counter()
        self._subject.raw(self._inputs)
        torch.cuda.synchronize()
        self.times.graphed.append(time.perf_counter() - start)

    def after(self) -> None:
        if self._eager_first:
            self._by_hand()
        else:
            self.times.eager.append(self._eager(self._inputs))
        if self._full is not None:
            self.times.full.append(self._eager(self._full))
        self._eager_first = not self._eager_first

    def _by_hand(self) -> None:
        if self._hand is not None:
            self._subject.fresh_start()
            torch.cuda.synchronize()
            start = time.perf_counter()
            self._hand()
            torch.cuda.synchronize()
            self.times.hand.append(time.perf_counter() - start)

    def _eager(self, inputs: Inputs) -> float:
        self._subject.fresh_start()
        torch.cuda.synchronize()
        start = time.perf_counter()
        self._subject.eager_as_served(inputs)
        torch.cuda.synchronize()
        return time.perf_counter() - start


def measure(
    subject: Subject,
    inputs: Inputs,
    full: Inputs | None,
    timer: PlainTimer,
    doubtful: Callable[[Times], bool],
    *,
    graphed: bool = True,
) -> Measured:
    """Time the rounds that `timer` asks for, and thrice as many again, at most twice, while the times are `doubtful`.

    The counting of module calls is off meanwhile: it costs eager calls time, and replays none. Calls that are not
    `graphed`, since no bucket holds them, are not compared with a graph by hand.
    """
    hand, refused = by_hand(subject, full or inputs) if graphed else (None, "")
    rounds = Rounds(subject, inputs, full, hand)
    with subject.observe() as seen, subject.without_module_counts(), _no_garbage_collection():
        for _ in range(WARM):
            _one(rounds)
        times = rounds.times
        each = sum(kind[-1] for kind in (times.eager, times.graphed, times.full, times.hand) if kind)
        rounds.times = Times()
        before = allocated()
        many = timer.rounds(each)
        timer.run(rounds.before, rounds.graphed, rounds.after, many)
        for _ in range(2):
            if doubtful(rounds.times):
                timer.run(rounds.before, rounds.graphed, rounds.after, 3 * many)
        grown = allocated() - before
    replays = seen.replays - (hand.calls if hand else 0)
    alone = hand.device_seconds() if hand and subject.machine.device == CUDA else None
    return Measured(rounds.times, seen.captures, replays, WARM + len(rounds.times.graphed), grown, alone, refused)


def _one(rounds: Rounds) -> None:
    rounds.before()
    rounds.graphed()
    rounds.after()


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _CountedCalls(TorchDispatchMode):
    """How many operators are called from Python or from torch's composite ones."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def operator_calls(call: Callable[[], Any]) -> int:
    """How many operators `call` dispatches. A replay dispatches none."""
    counted = _CountedCalls()
    with counted:
        call()
    return counted.calls


def rounds_in_short(measured: Measured) -> dict[str, Any]:
    """What two runs are compared by: `costs` is graphed ÷ eager of each round, the rest are seconds."""
    times, alone = measured.times, measured.graph_seconds
    blocks = blocks_of(times.graphed, times.hand, times.eager)
    return {
        "costs": [round(cost, 6) for cost in times.costs],
        **({"blocks": [[round(seconds, 9) for seconds in astuple(block)] for block in blocks]} if blocks else {}),
        **({"graph_seconds": round(alone, 9)} if alone else {}),
        **({"by_hand_refused": measured.refused} if measured.refused else {}),
    }


def describe_times(times: Times) -> dict[str, Any]:
    """The figures of the rounds, in seconds."""
    eager, graphed, speedup = Quartiles.of(times.eager), Quartiles.of(times.graphed), Quartiles.of(times.speedups)
    return {
        "eager_median": eager.median,
        "eager_q1": eager.q1,
        "eager_q3": eager.q3,
        "median": graphed.median,
        "ratio": round(speedup.median, 4),
        "ratio_q1": round(speedup.q1, 4),
        "ratio_q3": round(speedup.q3, 4),
        "rounds": len(times.graphed),
    }
