"""Medians over commits, one JSON object a line, and a rule that speaks up where a benchmark gets worse for good.

The latest commit is compared with the worst of the earlier ones (the last WINDOW of them): a change is told only where
it is more than MARGIN worse than anything that was established over at least ENOUGH commits. It is told, and gates
nothing: machines of different days are compared here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.bench.results import Result
from conformance.report.files import ReportError
from conformance.report.speed import HistoryPoint

MARGIN = 0.05
ENOUGH = 5
WINDOW = 30


def points_of(result: Result, commit: str) -> list[HistoryPoint]:
    """A point for each benchmark, and one for eager beside it."""
    return [
        HistoryPoint(commit, result.date, timed.gpu, name, round(1e6 * median, 3))
        for timed in result.benchmarks.values()
        for name, median in ((timed.name, timed.graphed[1]), (f"{timed.name} eager", timed.eager[1]))
    ]


def append_history(path: Path, points: Sequence[HistoryPoint]) -> None:
    """Add the points to the file, which is made where there is none. The lines that are there must be readable."""
    if path.exists():
        read_history(path)
    text = "".join(json.dumps(point.to_json(), ensure_ascii=False) + "\n" for point in points)
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error


def read_history(path: Path) -> list[HistoryPoint]:
    """The points of the file, oldest first. Raises :class:`ReportError` naming the file and the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ReportError(f"{path}: not text: {error}") from error
    points = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                points.append(HistoryPoint.of(json.loads(line)))
            except (AttributeError, RecursionError, TypeError, ValueError) as error:
                raise ReportError(f"{path}:{number}: no point of a history: {error}") from error
    return points


def by_commit(points: Sequence[HistoryPoint]) -> dict[tuple[str, str], dict[str, float]]:
    """For each benchmark and GPU the median of each commit, oldest first; of a commit's runs the last counts."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for point in points:
        medians = found.setdefault((point.name, point.gpu), {})
        medians.pop(point.commit, None)
        medians[point.commit] = point.median_us
    return found


def history_lines(points: Sequence[HistoryPoint]) -> Iterator[str]:
    """What the rule says of each benchmark, what got worse first, and one line for all."""
    worse, quiet, young = [], 0, 0
    for (name, gpu), medians in by_commit(points).items():
        *earlier, last = medians.values()
        if len(earlier) < ENOUGH:
            young += 1
            continue
        worst = max(earlier[-WINDOW:])
        if last > worst * (1 + MARGIN):
            commit = list(medians)[-1]
            rise = 100 * (last / worst - 1) if worst else 100.0
            worse.append(f"worse  {name} on {gpu}: {last:.4g} µs at {commit}, {rise:.1f} % above the worst of before")
        else:
            quiet += 1
    yield from worse
    yield f"{len(worse)} worse than ever by more than {MARGIN:.0%}, {quiet} as before, {young} with too few commits"
