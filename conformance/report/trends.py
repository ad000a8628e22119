"""Figures of speed as a page shows them: latency a case, and medians over commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from conformance.report.drawing import sparkline
from conformance.report.speed import Benchmark, HistoryPoint

_LINES = 80  # histories of one page


@dataclass(frozen=True)
class Latency:
    """The paths of one case beside one another; `widths` are percent of the slowest path of the subject."""

    case: str
    bucket: str
    bars: tuple[tuple[Benchmark, float], ...]
    speedup: float | None
    capture_seconds: float | None
    capture_bytes: int | None


@dataclass(frozen=True)
class History:
    name: str
    gpu: str
    line: Markup
    first: HistoryPoint
    last: HistoryPoint
    lowest: float
    highest: float

    @property
    def change(self) -> float:
        """Percent by which the last median is above the first."""
        return 100 * (self.last.median_us / self.first.median_us - 1) if self.first.median_us else 0.0


def latencies(benchmarks: Sequence[Benchmark]) -> dict[str, list[Latency]]:
    """By subject, in the order in which they were measured."""
    groups: dict[str, dict[str, list[Benchmark]]] = {}
    for row in benchmarks:
        groups.setdefault(row.subject, {}).setdefault(row.case, []).append(row)
    return {
        subject: [
            _latency(case, rows, max(row.median_us for of_case in cases.values() for row in of_case))
            for case, rows in cases.items()
        ]
        for subject, cases in groups.items()
    }


def _latency(case: str, rows: list[Benchmark], slowest: float) -> Latency:
    eager = next((row.median_us for row in rows if row.path == "eager"), None)
    replay = next((row.median_us for row in rows if row.path.startswith("replay")), None)
    return Latency(
        case,
        next((row.bucket for row in rows if row.bucket), ""),
        tuple((row, round(100 * row.median_us / (slowest or 1.0), 1)) for row in rows),
        eager / replay if eager and replay else None,
        next((row.capture_seconds for row in rows if row.capture_seconds is not None), None),
        next((row.capture_bytes for row in rows if row.capture_bytes is not None), None),
    )


def histories(points: Sequence[HistoryPoint]) -> list[History]:
    groups: dict[tuple[str, str], list[HistoryPoint]] = {}
    for point in points:
        groups.setdefault((point.name, point.gpu), []).append(point)
    return [_history(name, gpu, found) for (name, gpu), found in list(groups.items())[:_LINES]]


def _history(name: str, gpu: str, points: list[HistoryPoint]) -> History:
    values = [point.median_us for point in points]
    words = (
        f"{name} on {gpu} over {len(points)} commits: {values[0]:.4g} µs first, {values[-1]:.4g} µs last, "
        f"{min(values):.4g} to {max(values):.4g} µs in all."
    )
    return History(name, gpu, sparkline(values, words), points[0], points[-1], min(values), max(values))
