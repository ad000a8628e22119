"""Figures of speed that a report may carry: those of this run, and those of earlier commits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self


class _Row:
    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From a JSON object. Raises TypeError where a field is missing or no word or number as it should be.

        A field that this version does not know is left out.
        """
        known = {field.name: str(field.type) for field in fields(cls)}  # type: ignore[arg-type]
        given = {name: value for name, value in values.items() if name in known}
        for name, value in given.items():
            if not isinstance(value, str if known[name].startswith("str") else (int, float)):
                raise TypeError(f"{name} of a {cls.__name__} is {value!r}")
        return cls(**given)

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}  # type: ignore[call-overload]


@dataclass(frozen=True)
class Benchmark(_Row):
    """How long one path of one case takes. `path` is `eager`, `replay exact`, `replay padded` or `fallback`.

    `case` names the sizes and `bucket` the bucket that serves them, as test ids do: `b1-f5`, `b1-f8`. `capture_bytes`
    and `capture_seconds` are what its graph took. The quartiles stand beside the median; None is not measured.
    """

    subject: str
    case: str
    path: str
    median_us: float
    q1_us: float | None = None
    q3_us: float | None = None
    rounds: int | None = None
    bucket: str | None = None
    capture_bytes: int | None = None
    capture_seconds: float | None = None


@dataclass(frozen=True)
class HistoryPoint(_Row):
    """A median of an earlier commit, oldest first. `name` is the benchmark's, `gpu` where it was measured."""

    commit: str
    date: str
    gpu: str
    name: str
    median_us: float
