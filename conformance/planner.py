"""Which buckets to capture for the calls that serving makes: the set that pads least, found exactly.

Along one padded axis the best K sizes are found by dynamic programming over the sizes of the trace: an optimal bucket
is always a size that some call has. Calls of other rows, or of another size of any further axis, are another group
with graphs of its own; a second dynamic program divides the K graphs among the groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from conformance.errors import ConformanceError
from conformance.traces import Trace, TracedCall
from runner import EXACT, AxisMode, BucketTable

Sizes = Mapping[str, int]


class PlanError(ConformanceError):
    """What was asked of the planner cannot be done."""


@dataclass(frozen=True)
class Coverage:
    """What a set of buckets makes of a trace. Work is the product of a call's sizes; eager calls compute no padding."""

    buckets: tuple[Sizes, ...]
    hits: int
    calls: int
    asked: int  # work of the calls that replay
    computed: int  # work of their buckets

    @property
    def hit_rate(self) -> float:
        return self.hits / self.calls if self.calls else 0.0

    @property
    def padded_share(self) -> float:
        """Padded ÷ computed, of the calls that replay."""
        return 1 - self.asked / self.computed if self.computed else 0.0


def coverage(trace: Trace, buckets: Iterable[Sizes], axes: Mapping[str, AxisMode]) -> Coverage:
    """What `buckets` make of `trace`, by the runner's own lookup."""
    given = tuple(dict(bucket) for bucket in buckets)
    table = BucketTable(given, axes)
    hits = asked = computed = 0
    for call in trace.calls:
        bucket = table.lookup(call.sizes)
        if bucket is not None:
            hits += call.count
            asked += call.count * prod(call.sizes.values())
            computed += call.count * bucket.work
    return Coverage(given, hits, trace.total, asked, computed)


def plan_buckets(
    trace: Trace, graphs: int, axes: Mapping[str, AxisMode], axis: str, most_work: float | None = None
) -> tuple[Sizes, ...]:
    """At most `graphs` buckets that serve every call of `trace` with the least padded work along `axis`.

    With more groups than graphs, or with `most_work` (the product of sizes that memory allows), the calls that cost
    eager most are served first. Where `axis` is exact, the sizes with the most work are taken. Raises PlanError.
    """
    if graphs < 1:
        raise PlanError(f"--graphs must be at least 1, found {graphs}")
    if axis not in axes:
        raise PlanError(f"no axis {axis!r}; the axes are {', '.join(axes)}")
    calls = [call for call in trace.calls if most_work is None or prod(call.sizes.values()) <= most_work]
    if not calls:
        raise PlanError(f"no call of the trace fits into a bucket of {most_work:g} elements: allow more memory")
    if axes[axis] is EXACT:
        heaviest = sorted(calls, key=lambda call: -call.count * prod(call.sizes.values()))
        return tuple(dict(call.sizes) for call in heaviest[:graphs])
    groups: dict[tuple[tuple[str, int], ...], list[TracedCall]] = defaultdict(list)
    for call in calls:
        groups[tuple((name, size) for name, size in call.sizes.items() if name != axis)].append(call)
    ranked = sorted(groups.items(), key=lambda item: -sum(c.count * prod(c.sizes.values()) for c in item[1]))[:graphs]
    curves = [_best_sizes(_histogram(calls_, axis), prod(size for _, size in rest), graphs) for rest, calls_ in ranked]
    shares = _divide([[cost for cost, _ in curve] for curve in curves], graphs)
    return tuple(
        {name: dict(rest).get(name, size) for name in axes}
        for (rest, _), curve, share in zip(ranked, curves, shares, strict=True)
        for size in curve[share - 1][1]
    )


def powers_of_two(trace: Trace, graphs: int, axes: Mapping[str, AxisMode], axis: str) -> tuple[Sizes, ...]:
    """The same number of graphs at powers of two, the largest first that some call needs, for each group in turn."""
    groups: dict[tuple[tuple[str, int], ...], int] = {}
    for call in trace.calls:
        rest = tuple((name, size) for name, size in call.sizes.items() if name != axis)
        groups[rest] = max(groups.get(rest, 0), call.sizes[axis])
    chosen: list[Sizes] = []
    step = 0
    while len(chosen) < graphs and any((1 << (most - 1).bit_length()) >> step for most in groups.values()):
        for rest, most in groups.items():
            size = (1 << (most - 1).bit_length()) >> step
            if size and len(chosen) < graphs:
                chosen.append({name: dict(rest).get(name, size) for name in axes})
        step += 1
    return tuple(chosen)


def _histogram(calls: Sequence[TracedCall], axis: str) -> list[tuple[int, int]]:
    counts: dict[int, int] = defaultdict(int)
    for call in calls:
        counts[call.sizes[axis]] += call.count
    return sorted(counts.items())


def _best_sizes(histogram: list[tuple[int, int]], weight: int, graphs: int) -> list[tuple[int, list[int]]]:
    """For 1, 2, … graphs: the least padded work, times `weight`, and the sizes that have it."""
    sizes = [size for size, _ in histogram]
    count, work = [0], [0]
    for size, many in histogram:
        count.append(count[-1] + many)
        work.append(work[-1] + many * size)

    def padded(first: int, last: int) -> int:
        """Padding of the sizes `first … last`, all served by the last one."""
        return sizes[last] * (count[last + 1] - count[first]) - (work[last + 1] - work[first])

    best = [(padded(0, last), [sizes[last]]) for last in range(len(sizes))]
    curve = [(best[-1][0] * weight, best[-1][1])]
    for _ in range(1, min(graphs, len(sizes))):
        # best[last]: everything up to `last` is served, by one graph more than before
        best = [
            min(
                ((best[cut][0] + padded(cut + 1, last), [*best[cut][1], sizes[last]]) for cut in range(last)),
                key=lambda option: option[0],
                default=best[last],
            )
            for last in range(len(sizes))
        ]
        curve.append((best[-1][0] * weight, best[-1][1]))
    return curve


def _divide(costs: list[list[int]], graphs: int) -> list[int]:
    """How many graphs each group gets, at least one each and at most `graphs` together, at the least total cost."""
    best: dict[int, tuple[int, list[int]]] = {0: (0, [])}
    for position, curve in enumerate(costs):
        left = len(costs) - position - 1
        options: dict[int, tuple[int, list[int]]] = {}
        for used, (cost, shares) in best.items():
            for share in range(1, min(len(curve), graphs - used - left) + 1):
                option = (cost + curve[share - 1], [*shares, share])
                if used + share not in options or option[0] < options[used + share][0]:
                    options[used + share] = option
        best = options
    return min(best.values(), key=lambda option: option[0])[1]
