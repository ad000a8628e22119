"""Two results of one machine, benchmark by benchmark: ok, regressed, or undecided.

A host that others use too is twice as slow in some runs as in others, and a graphed call is the host's in part: times
of two runs say little by themselves. So each run times two more things beside: eager, which tells the host's pace, and
the same graph by hand, with no runner around it. What a graphed call of the head would take, were nothing changed, is::

    by hand in the head, less what its graph takes the device more than the base's
    + (graphed − by hand) in the base × eager in the head ÷ eager in the base

The rounds of each run are cut into blocks, of which the fastest calls count. Every block of the head against every
block of the base gives one ratio, found ÷ expected, and their quartiles decide::

    lower quartile above the limit             regressed
    upper quartile not above the limit         ok
    the quartiles further apart than the limit undecided
    else                                       by the median

Where nothing can be captured by hand, the ratio is that of graphed ÷ eager, of the medians of blocks. Where nothing
tells the device's part of a graph, as on the emulation, a module that got slower is slower by hand as well, and that is
not seen; `bench-history` keeps the times themselves. Eager that changes by itself looks like another pace of the host.
"""

from __future__ import annotations

import enum
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from conformance.bench.figures import Block, Quartiles, cut
from conformance.bench.results import Result, Timed
from conformance.errors import ConformanceError

DEFAULT_LIMIT = 0.075
GRAPH_VARIES = 0.08  # of a graph's time on the device, between processes of the same code: 49.6 or 53.2 µs on an H200
PACES_APART = 1.5  # of the host's pace as eager and as the graph by hand tell it: 99 of 100 differ by less than 1.31


class Change(enum.Enum):
    """What became of a benchmark."""

    OK = "ok"
    REGRESSED = "regressed"
    UNDECIDED = "undecided"
    VANISHED = "vanished"
    NEW = "new"


@dataclass(frozen=True)
class Compared:
    """`ratio` is found ÷ expected, `eager` head ÷ base; None where one of the two has no such benchmark.

    `remark` is what else a reader must know of how they were compared.
    """

    name: str
    change: Change
    ratio: Quartiles | None = None
    eager: float | None = None
    remark: str = ""


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
        elif bool(before.blocks) != bool(after.blocks) or bool(before.graph_seconds) != bool(after.graph_seconds):
            obstacles.append(f"{name}: timed by hand in one of the two alone; make both with one version of audiograph")
        else:
            compared.append(_compare(before, after, limit))
    return BenchComparison(tuple(compared), tuple(obstacles), allow_new)


def _compare(base: Timed, head: Timed, limit: float) -> Compared:
    ratio, remark = ratio_of(base, head), "" if base.blocks else ", by replay ÷ eager"
    change = judge_ratio(ratio, limit)
    if not paces_agree(base, head):
        change, remark = Change.UNDECIDED, ", which the graph by hand does not bear out: was eager itself changed?"
    return Compared(head.name, change, ratio, head.eager[1] / base.eager[1], remark)


def ratio_of(base: Timed, head: Timed) -> Quartiles:
    """Quartiles of found ÷ expected over all pairs of blocks; 1 where nothing changed."""
    if not (base.blocks and head.blocks):
        costs = product(_block_medians(base.costs), _block_medians(head.costs))
        return Quartiles.of([after / before for before, after in costs])
    slower, pairs = graph_growth(base, head), product(base.blocks, head.blocks)
    return Quartiles.of([after.graphed / expected(before, after, slower) for before, after in pairs])


def graph_growth(base: Timed, head: Timed) -> float:
    """Seconds that the head's graph takes the device more; 0 where that is no more than processes differ by."""
    if base.graph_seconds is None or head.graph_seconds is None:
        return 0.0
    slower = head.graph_seconds - base.graph_seconds
    return slower if abs(slower) > GRAPH_VARIES * base.graph_seconds else 0.0


def paces_agree(base: Timed, head: Timed) -> bool:
    """Whether eager and the host's part of the graph by hand tell about the same pace of the host, where both can."""
    if base.graph_seconds is None or head.graph_seconds is None:
        return True
    by_hand = [statistics.median(block.by_hand for block in timed.blocks) for timed in (base, head)]
    eager = [statistics.median(block.eager for block in timed.blocks) for timed in (base, head)]
    before, after = by_hand[0] - base.graph_seconds, by_hand[1] - head.graph_seconds
    if before < by_hand[0] / 10 or after < by_hand[1] / 10:  # the device's almost alone: what is left is noise
        return True
    return 1 / PACES_APART < (after * eager[0]) / (before * eager[1]) < PACES_APART


def expected(base: Block, head: Block, slower: float) -> float:
    """Seconds of a graphed call of the head, were nothing changed; its graph takes the device `slower` seconds more."""
    by_hand = max(head.by_hand - slower, 1e-9)
    own = base.graphed - base.by_hand
    return by_hand + own * head.eager / base.eager if own > 0 else by_hand * base.graphed / base.by_hand


def _block_medians(values: Sequence[float]) -> list[float]:
    return [statistics.median(values[part]) for part in cut(len(values), fewest=1)]


def judge_ratio(ratio: Quartiles, limit: float) -> Change:
    if ratio.q1 > 1 + limit:
        return Change.REGRESSED
    if ratio.q3 <= 1 + limit:
        return Change.OK
    if ratio.spread > limit:
        return Change.UNDECIDED
    return Change.REGRESSED if ratio.median > 1 + limit else Change.OK


def percent(text: str) -> float:
    """`7.5%` or `7.5` as 0.075. Raises :class:`ConformanceError` for what is no percentage above 0."""
    try:
        value = float(text.removesuffix("%")) / 100
    except ValueError:
        value = 0.0
    if not 0.0 < value < 100.0:
        raise ConformanceError(f"--fail-above={text}: expected a percentage above 0, such as 7.5%")
    return value


def comparison_lines(found: BenchComparison, limit: float) -> Iterator[str]:
    """One line a benchmark, what is worst first, then one line for all."""
    order = (Change.REGRESSED, Change.VANISHED, Change.NEW, Change.UNDECIDED, Change.OK)
    for one in sorted(found.compared, key=lambda one: order.index(one.change)):
        figures = ""
        if one.ratio is not None:
            change, low, high = (100 * (value - 1) for value in (one.ratio.median, one.ratio.q1, one.ratio.q3))
            figures = f"  {change:+.1f} % (quartiles {low:+.1f} to {high:+.1f} %)"
            figures += "" if one.eager is None else f"; eager {100 * (one.eager - 1):+.1f} %{one.remark}"
        yield f"{one.change.value:<9}  {one.name}{figures}"
    for obstacle in found.obstacles:
        yield f"not comparable: {obstacle}"
    counts = [(sum(one.change is change for one in found.compared), change.value) for change in order]
    told = ", ".join(f"{count} {word}" for count, word in counts if count or word == Change.OK.value)
    yield f"graphed calls against what was expected of them, limit +{100 * limit:g} %: {told}"
