"""Which sizes of calls were tried, which bucket served each, and how far it was from eager: one map a subject."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.outcome import CaseRecord, Outcome
from conformance.report.document import SubjectReport

_SIZES = r"[a-z]\d+(?:-[a-z]\d+)*"
_CASE = re.compile(rf"({_SIZES})(?:-in-({_SIZES}))?")
_BY_NAME = {"CG201": True, "CG202": True, "CG203": True, "CG206": True, "CG401": False}
"""Checks whose case ids are sizes, and whether a bucket serves those that name none: itself."""
_LEVELS = (0.0, 1e-6, 1e-4, 1e-2)
"""Errors up to each of these are of one shade, from bit-equal on."""


@dataclass(frozen=True)
class Tried:
    """One size. `bucket` is empty where the call ran eagerly; `error` is None where no figure was kept."""

    size: str
    bucket: str
    error: float | None
    broken: str = ""
    """What is wrong, in a few characters; empty where nothing is."""

    @property
    def level(self) -> int:
        """The shade: 0 is bit-equal, 4 the greatest."""
        return 0 if self.error is None else sum(self.error > limit for limit in _LEVELS)

    @property
    def text(self) -> str:
        return self.broken or short(self.error)

    @property
    def fills(self) -> bool:
        return self.size == self.bucket


@dataclass(frozen=True)
class Span:
    """Neighbouring sizes that one bucket serves; `tried` is false for sizes of the row that nobody called."""

    bucket: str
    width: int
    tried: bool


@dataclass(frozen=True)
class Line:
    label: str
    cells: tuple[Tried | None, ...]

    @property
    def spans(self) -> tuple[Span, ...]:
        found: list[Span] = []
        for cell in self.cells:
            bucket, tried = (cell.bucket, True) if cell else ("", False)
            if found and (found[-1].bucket, found[-1].tried) == (bucket, tried):
                found[-1] = Span(bucket, found[-1].width + 1, tried)
            else:
                found.append(Span(bucket, 1, tried))
        return tuple(found)


@dataclass(frozen=True)
class SizeMap:
    """Sizes along the last axis as columns, and every combination of the other axes as a row."""

    axis: str
    columns: tuple[int, ...]
    lines: tuple[Line, ...]

    @property
    def buckets(self) -> int:
        return len({cell.bucket for line in self.lines for cell in line.cells if cell and cell.bucket})

    @property
    def tried(self) -> int:
        return sum(cell is not None for line in self.lines for cell in line.cells)

    @property
    def broken(self) -> int:
        return sum(bool(cell and cell.broken) for line in self.lines for cell in line.cells)


def size_map(subject: SubjectReport) -> SizeMap | None:
    """The map, or None where no case tells of sizes."""
    tried: dict[str, Tried] = {}
    for record in subject.cases:
        for one in _tried(record):
            tried[one.size] = _joined(tried[one.size], one) if one.size in tried else one
    cells = {_place(size): one for size, one in tried.items()}
    if not cells:
        return None
    columns = tuple(sorted({column for _, column in cells}))
    rows = sorted({row for row, _ in cells}, key=lambda row: [int(part[1:]) for part in row])
    axis = next(iter(tried)).rpartition("-")[2][0]
    lines = (Line(" ".join(row), tuple(cells.get((row, column)) for column in columns)) for row in rows)
    return SizeMap(axis, columns, tuple(lines))


def _place(size: str) -> tuple[tuple[str, ...], int]:
    """`b2-f8` as row `("b2",)` and column 8."""
    *row, last = size.split("-")
    return tuple(row), int(last[1:])


def _tried(record: CaseRecord) -> Iterator[Tried]:
    evidence = record.evidence
    if record.outcome is Outcome.PASS:
        by_size = evidence.get("by_size")
        for size, told in by_size.items() if isinstance(by_size, Mapping) else ():
            if _CASE.fullmatch(size) and isinstance(told, Sequence) and len(told) == 2:
                yield Tried(size, str(told[0]), _number(told[1]))
    at = _CASE.fullmatch(str(evidence.get("at", "")))
    named = _CASE.fullmatch(record.case) if record.code in _BY_NAME else None
    found = at or named
    if found is None or not (record.outcome.breaks or record.outcome is Outcome.PASS):
        return
    bucket = found[2] or (found[1] if named and not at and _BY_NAME[record.code] else "")
    broken = _wrong(evidence) if record.outcome.breaks and record.outcome is not Outcome.XPASS else ""
    yield Tried(found[1], bucket, _number(evidence.get("max_error")), broken)


def _wrong(evidence: Mapping[str, Any]) -> str:
    """`✕ 0.24`, or `✕ +6` for six samples too many."""
    counts = [evidence.get(name) for name in ("found_samples", "expected_samples")]
    if all(isinstance(count, int) for count in counts):
        return f"✕ {counts[0] - counts[1]:+d}"  # type: ignore[operator]
    error = _number(evidence.get("max_error"))
    return "✕" if error is None else f"✕ {short(error)}"


def _joined(one: Tried, other: Tried) -> Tried:
    errors = [error for error in (one.error, other.error) if error is not None]
    return Tried(one.size, one.bucket or other.bucket, max(errors, default=None), one.broken or other.broken)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def short(error: float | None) -> str:
    """`0`, `3e-8`, `0.24`: as little as tells the size of an error."""
    if error is None:
        return "·"
    if error == 0 or not math.isfinite(error):
        return f"{error:g}"
    return f"{error:.0e}".replace("e-0", "e-").replace("e+0", "e") if error < 0.01 else f"{error:.2g}"
