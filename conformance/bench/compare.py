"""Two results of one machine, benchmark by benchmark: ok, regressed, or undecided.

Two things are compared, and neither may say that a benchmark is as fast as it was. One is graphed ÷ eager, measured in
turn within each run. The rounds of a run are cut into blocks, and the median of each block is taken, which a
disturbance of a few rounds does not move. Every block of the head over every block of the base gives one ratio, and
their quartiles decide::

    lower quartile above the limit             regressed
    upper quartile not above the limit         ok
    the quartiles further apart than the limit undecided
    else                                       by the median

The other are the fastest graphed calls of each run, as they are and over the fastest by hand: the same graph with no
runner around it. A host that is slower in the head moves those, but graphed ÷ eager the other way, since eager is
mostly the host's; one that is faster moves graphed ÷ eager alone. Where the first is undecided the fastest decide.
Where the two disagree the answer is undecided, but for graphed ÷ eager that grew while graphed calls did not: eager got
faster.

A change that slows eager and the graph by hand as much is not seen here; `bench-history` keeps the times themselves.
"""

from __future__ import annotations

import enum
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from conformance.bench.figures import Quartiles
from conformance.bench.results import Result, Timed
from conformance.errors import ConformanceError

BLOCKS = 12
DEFAULT_LIMIT = 0.055


class Change(enum.Enum):
    """What became of a benchmark."""

    OK = "ok"
    REGRESSED = "regressed"
    UNDECIDED = "undecided"
    VANISHED = "vanished"
    NEW = "new"


@dataclass(frozen=True)
class Compared:
    """`ratio` is head ÷ base, `fastest` that of the fastest calls; None where one of the two has no such benchmark."""

    name: str
    change: Change
    ratio: Quartiles | None = None
    fastest: float | None = None


@dataclass(frozen=True)
class BenchComparison:
    """`obstacles` say why the two results cannot be compared at all."""

    compared: tuple[Compared, ...]
    obstacles: tuple[str, ...]
    allow_new: bool = False

    @property
    def exit_code(self) -> int:
        """1 where something regressed, vanished or could not be compared at all; 6 where something is undecided."""
        changes = {one.change for one in self.compared}
        red = {Change.REGRESSED, Change.VANISHED} | (set() if self.allow_new else {Change.NEW})
        if self.obstacles or changes & red:
            return 1
        return 6 if Change.UNDECIDED in changes else 0


def compare_results(base: Result, head: Result, limit: float, *, allow_new: bool = False) -> BenchComparison:
    obstacles = [
        f"{result.path}: no benchmark ran; run `pytest --adapter=NAME --benchmark-only`, without -n (xdist)"
        for result in (base, head)
        if not result.benchmarks
    ]
    if not obstacles:
        one, other = base.alike(), head.alike()
        obstacles = [
            f"the {what} differs: {one[what]} → {other[what]}; times of two machines are not compared"
            for what in one
            if one[what] != other[what]
        ]
    if obstacles:
        return BenchComparison((), tuple(obstacles), allow_new)
    compared = []
    for name in {**base.benchmarks, **head.benchmarks}:
        before, after = base.benchmarks.get(name), head.benchmarks.get(name)
        if before is None or after is None:
            compared.append(Compared(name, Change.NEW if before is None else Change.VANISHED))
        elif before.path != after.path:
            obstacles.append(f"{name}: was served by {before.path}, and now by {after.path}: not the same work")
        else:
            ratio, fastest = ratio_of(before.costs, after.costs), fastest_of(before, after)
            typical = after.graphed[1] / before.graphed[1]
            change = judge_fastest(judge_ratio(ratio, limit), fastest, typical, limit)
            compared.append(Compared(name, change, ratio, max(fastest, default=None)))
    return BenchComparison(tuple(compared), tuple(obstacles), allow_new)


def ratio_of(base: Sequence[float], head: Sequence[float]) -> Quartiles:
    """Quartiles of head ÷ base over all pairs of blocks."""
    return Quartiles.of([after / before for before, after in product(_block_medians(base), _block_medians(head))])


def _block_medians(values: Sequence[float]) -> list[float]:
    """The median of each of up to BLOCKS runs of rounds that follow one another."""
    many = min(BLOCKS, len(values))
    edges = [len(values) * index // many for index in range(many + 1)]
    return [statistics.median(values[start:end]) for start, end in pairwise(edges)]


def judge_ratio(ratio: Quartiles, limit: float) -> Change:
    if ratio.q1 > 1 + limit:
        return Change.REGRESSED
    if ratio.q3 <= 1 + limit:
        return Change.OK
    if ratio.spread > limit:
        return Change.UNDECIDED
    return Change.REGRESSED if ratio.median > 1 + limit else Change.OK


def fastest_of(base: Timed, head: Timed) -> tuple[float, ...]:
    """Head ÷ base of the fastest graphed calls, as they are and over the fastest by hand; empty where one has none."""
    if base.floors is None or head.floors is None:
        return ()
    graphed, by_hand = (after / before for before, after in zip(base.floors, head.floors, strict=True))
    return graphed, graphed / by_hand


def judge_fastest(change: Change, fastest: Sequence[float], typical: float, limit: float) -> Change:
    """`change`, as graphed ÷ eager has it, together with the fastest calls; `typical` is head ÷ base of the medians.

    A regression that the fastest calls know nothing of is eager's gain, unless a typical graphed call got slower too.
    """
    if not fastest:
        return change
    if min(fastest) > 1 + limit:
        return Change.UNDECIDED if change is Change.OK else Change.REGRESSED
    doubtful = max(*fastest, typical if change is Change.REGRESSED else 0.0) > 1 + limit
    return Change.UNDECIDED if doubtful and change is not Change.OK else Change.OK


def percent(text: str) -> float:
    """`5.5%` or `5.5` as 0.055. Raises :class:`ConformanceError` for what is no percentage above 0."""
    try:
        value = float(text.removesuffix("%")) / 100
    except ValueError:
        value = 0.0
    if not 0.0 < value < 100.0:
        raise ConformanceError(f"--fail-above={text}: expected a percentage above 0, such as 5.5%")
    return value


def comparison_lines(found: BenchComparison, limit: float) -> Iterator[str]:
    """One line a benchmark, what is worst first, then one line for all."""
    order = (Change.REGRESSED, Change.VANISHED, Change.NEW, Change.UNDECIDED, Change.OK)
    for one in sorted(found.compared, key=lambda one: order.index(one.change)):
        figures = ""
        if one.ratio is not None:
            change, low, high = (100 * (value - 1) for value in (one.ratio.median, one.ratio.q1, one.ratio.q3))
            figures = f"  {change:+.1f} % (quartiles {low:+.1f} to {high:+.1f} %)"
            figures += "" if one.fastest is None else f", the fastest {100 * (one.fastest - 1):+.1f} %"
        yield f"{one.change.value:<9}  {one.name}{figures}"
    for obstacle in found.obstacles:
        yield f"not comparable: {obstacle}"
    counts = [(sum(one.change is change for one in found.compared), change.value) for change in order]
    told = ", ".join(f"{count} {word}" for count, word in counts if count or word == Change.OK.value)
    yield f"replay ÷ eager, limit +{100 * limit:g} %: {told}"
