"""The picture of a failure: eager and replay over each other, where they part, and by how much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from conformance.report.drawing import Drawing
from conformance.waveform import WAVEFORM

_WIDTH, _HEIGHT = 720, 240
_LIMIT_OF_EMPTINESS = 1.6  # the bucket's end is drawn where that makes the picture at most so much wider
_LEAST_SCALE = 0.02  # of the peak: rounding errors stay the flat line that they are
_EDGES = {"actual": "eager ends", "bucket": "bucket ends"}


@dataclass(frozen=True)
class Edge:
    """A vertical line: where it stands, in percent of the width, and what it says."""

    name: str
    left: float
    label: str

    @property
    def leans_left(self) -> bool:
        """Whether its label stands on its left side, so that it stays within the picture."""
        return self.left > 55


@dataclass(frozen=True)
class Picture:
    svg: Markup
    shown: str
    wrong: str
    edges: tuple[Edge, ...]
    beyond: tuple[str, ...]
    """Edges that lie outside of the picture."""
    starts: str
    ends: str
    peak: str
    error: str


def picture(evidence: Mapping[str, Any]) -> Picture | None:
    """The picture of a failure's evidence; None where it holds no waveform, or one that cannot be read."""
    record = evidence.get(WAVEFORM)
    if not isinstance(record, Mapping):
        return None
    try:
        return _draw(_Waveform(record))
    except (KeyError, TypeError, ValueError, IndexError):
        return None


class _Waveform:
    """The record of conformance.waveform, with what a picture derives from it."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.found, self.expected = _points(record["found"]), _points(record["expected"])
        self.difference = _points(record["difference"])
        self.start, self.step, self.samples = int(record["start"]), int(record["step"]), int(record["samples"])
        self.rate = int(record["sample_rate"])
        self.first_wrong, self.last_wrong = (int(sample) for sample in record["wrong"])
        self.edges = {name: int(record["edges"][name]) for name in _EDGES if name in record["edges"]}
        width = max(len(self.found), len(self.expected)) * self.step
        self.stop = min(self.start + width, self.samples)
        far = max([self.stop, *self.edges.values()])
        near = self.stop == self.samples and far - self.start <= width * _LIMIT_OF_EMPTINESS
        self.end = far if near else self.stop

    @property
    def peak(self) -> float:
        return max([abs(value) for value in (*self.found, *self.expected) if value is not None], default=0.0) or 1.0

    @property
    def error(self) -> float:
        return max([value for value in self.difference if value is not None], default=0.0)

    def percent(self, sample: float) -> float:
        return round(100 * (sample - self.start) / (self.end - self.start), 2)

    def time(self, sample: float) -> str:
        return f"{sample / self.rate * 1e3:.1f} ms"

    def span(self) -> str:
        if self.first_wrong == self.last_wrong:
            return f"sample {self.first_wrong} ({self.time(self.first_wrong)})"
        times = f"{self.time(self.first_wrong)} to {self.time(self.last_wrong + 1)}"
        return f"samples {self.first_wrong} to {self.last_wrong} ({times})"


def _points(values: Any) -> list[float | None]:
    return [None if value is None else float(value) for value in values]


def _draw(wave: _Waveform) -> Picture:
    drawn, width = Drawing(_WIDTH, _HEIGHT), (wave.start, wave.end)
    loudest, worst = 1.08 * wave.peak, 1.08 * max(wave.error, _LEAST_SCALE * wave.peak)
    above = drawn.panel(width, (-loudest, loudest), bottom=0.31, height=0.69)
    below = drawn.panel(width, (0.0, worst), height=0.25)
    for panel in (above, below):
        panel.span("wrong", wave.first_wrong, wave.last_wrong + 1)
        panel.level("zero", 0.0)
        for name, sample in wave.edges.items():
            if wave.start <= sample <= wave.end:
                panel.upright(f"edge-{name}", sample)
    above.line("eager", _middles(wave, len(wave.expected)), wave.expected)
    above.line("replay", _middles(wave, len(wave.found)), wave.found)
    below.area("difference", _middles(wave, len(wave.difference)), [value or 0.0 for value in wave.difference])
    return Picture(
        drawn.svg(_description(wave)),
        shown=f"samples {wave.start} to {wave.stop - 1} of {wave.samples}",
        wrong=wave.span(),
        edges=tuple(
            Edge(name, wave.percent(sample), f"{_EDGES[name]} · {sample}")
            for name, sample in wave.edges.items()
            if wave.start <= sample <= wave.end
        ),
        beyond=tuple(
            f"{_EDGES[name].capitalize()} at sample {sample}, outside of the picture."
            for name, sample in wave.edges.items()
            if not wave.start <= sample <= wave.end
        ),
        starts=f"sample {wave.start}, {wave.time(wave.start)}",
        ends=f"sample {wave.end}, {wave.time(wave.end)}",
        peak=f"{wave.peak:.2g}",
        error=f"{wave.error:.2g}",
    )


def _middles(wave: _Waveform, count: int) -> list[float]:
    """Where points stand: in the middle of the samples that each of them is."""
    return [wave.start + (index + 0.5) * wave.step for index in range(count)]


def _description(wave: _Waveform) -> str:
    """What one sees, in words."""
    words = [
        f"Waveforms of eager and replay over each other, {wave.time(wave.start)} to {wave.time(wave.stop)}.",
        f"They part at {wave.span()}.",
    ]
    if len(wave.found) != len(wave.expected):
        longer = "replay" if len(wave.found) > len(wave.expected) else "eager"
        words.append(f"Only {longer} has samples there.")
    words.append(f"Greatest difference {wave.error:.2g} on a peak of {wave.peak:.2g}.")
    words += [f"{_EDGES[name].capitalize()} at sample {sample}." for name, sample in wave.edges.items()]
    return " ".join(words)
