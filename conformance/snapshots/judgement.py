"""Is what was found what was kept: shapes, dtypes and lengths exactly, signals within the limits of the snapshot."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from conformance.compare import QUIETEST
from conformance.snapshots import metrics
from conformance.snapshots.header import Fingerprint, Header, Limits, OutputHeader
from conformance.snapshots.record import Record

SAME_VALUES = 1e-4  # of the norm: what rounding may do to a fingerprint
_LINES = 12


class Tier(enum.Enum):
    """Which limits held: those of one device class, or those between two."""

    STRICT = "strict"
    LOOSE = "loose"


@dataclass(frozen=True)
class Measure:
    """One metric of one row, and its limit."""

    output: str
    row: int
    metric: str
    found: float
    limit: float

    @property
    def holds(self) -> bool:
        return self.found <= self.limit  # false for NaN


@dataclass(frozen=True)
class Judgement:
    """What a comparison found. `problems` are exact differences; `uncompared` says why no signal was compared."""

    tier: Tier
    against: str
    problems: tuple[str, ...]
    measures: tuple[Measure, ...]
    uncompared: str = ""
    other_weights: bool = False

    @property
    def matches(self) -> bool:
        return not self.problems and all(measure.holds for measure in self.measures)

    @property
    def worst(self) -> Mapping[tuple[str, str], Measure]:
        """By output and metric, the row that is furthest from its snapshot."""
        found: dict[tuple[str, str], Measure] = {}
        for one in self.measures:
            other = found.get((one.output, one.metric))
            if other is None or not one.found <= other.found:
                found[one.output, one.metric] = one
        return found

    def table(self) -> list[str]:
        """The worst row of every output and metric, as lines of text; exact differences come first."""
        lines = list(self.problems[:_LINES])
        worst = sorted(self.worst.values(), key=lambda one: one.holds)[:_LINES]
        if worst:
            width = max(6, *(len(one.output) for one in worst))
            lines.append(f"{'output':<{width}}  row  {'metric':<10}  {'found':>9}  {'limit':>9}")
        for one in worst:
            lines.append(
                f"{one.output:<{width}}  {one.row:>3}  {one.metric:<10}  {one.found:>9.2e}  {one.limit:>9.2e}"
                f"{'' if one.holds else '  over'}"
            )
        return lines

    def evidence(self) -> Mapping[str, Any]:
        told: dict[str, Any] = {"tier": self.tier.value, "against": self.against}
        if self.uncompared:
            told["uncompared"] = self.uncompared
        return told | {f"{output} {metric}": one.found for (output, metric), one in self.worst.items()}


def judge(found: Record, kept: Record) -> Judgement:
    """Hold `found` against `kept`, whose header has the limits."""
    tier = Tier.STRICT if found.header.device_class == kept.header.device_class else Tier.LOOSE
    problems = [*_header_problems(found.header, kept.header)]
    for name, output in kept.header.outputs.items():
        other = found.header.outputs.get(name)
        if other is not None:
            problems += _exact_problems(name, other, output)
    measures: list[Measure] = []
    other_weights = not _same_values(found.header.weights, kept.header.weights)
    uncompared = _uncompared(tier, kept.header, other_weights)
    for name, output in kept.header.outputs.items():
        if not problems and not uncompared:
            measures += _measure(name, output, tier, found, kept)
    problems += [*unheard(found), *(f"the snapshot's {problem}" for problem in unheard(kept))]
    return Judgement(tier, kept.header.device_class, tuple(problems), tuple(measures), uncompared, other_weights)


def _uncompared(tier: Tier, kept: Header, other_weights: bool) -> str:
    if tier is Tier.STRICT:
        return ""
    if kept.random:
        return "the call draws random numbers, which every device class draws its own way"
    return "the weights were drawn on the device, and differ" if other_weights else ""


def _header_problems(found: Header, kept: Header) -> Iterator[str]:
    if found.seed != kept.seed:
        yield f"the snapshot is of seed {kept.seed}, the call of seed {found.seed}"
        return
    if found.metric != kept.metric:
        yield "the snapshot's spectra were made in another way; write it again with `--snapshot-update`"
    for name in sorted(found.inputs.keys() | kept.inputs.keys()):
        one, other = found.inputs.get(name), kept.inputs.get(name)
        if one is None or other is None:
            yield f"input {name!r} is {'gone' if one is None else 'new'}"
        elif not _same_input(one, other):
            yield f"input {name!r} has other values than the snapshot's"
    for name in sorted(found.outputs.keys() ^ kept.outputs.keys()):
        yield f"output {name!r} is {'gone' if name in kept.outputs else 'new'}"


def _same_input(one: str | Fingerprint, other: str | Fingerprint) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return _same_values(one, other)


def _same_values(one: Fingerprint, other: Fingerprint) -> bool:
    return all(abs(a - b) <= SAME_VALUES * other[0] for a, b in zip(one, other, strict=True))


def _exact_problems(name: str, found: OutputHeader, kept: OutputHeader) -> list[str]:
    if found.dtype != kept.dtype:
        return [f"{name!r} is {found.dtype} where the snapshot has {kept.dtype}"]
    if len(found.shapes) != len(kept.shapes):
        return [f"{name!r} has {len(found.shapes)} rows where the snapshot has {len(kept.shapes)}"]
    problems = []
    for row, (one, other) in enumerate(zip(found.shapes, kept.shapes, strict=True)):
        if one != other:
            surplus = one[-1] - other[-1] if len(one) == len(other) and one[:-1] == other[:-1] else 0
            told = f": {abs(surplus)} samples {'more' if surplus > 0 else 'fewer'}" if surplus else ""
            problems.append(f"row {row} of {name!r} has shape {one} where the snapshot has {other}{told}")
    if not problems and found.digests != kept.digests:
        rows = [row for row, (a, b) in enumerate(zip(found.digests, kept.digests, strict=True)) if a != b]
        problems.append(f"rows {rows} of {name!r} hold other integers than the snapshot")
    if not problems and (found.kept, found.slices, found.bands) != (kept.kept, kept.slices, kept.bands):
        problems.append(f"{name!r}: the snapshot keeps other parts of the signal; write it again")
    return problems


def unheard(record: Record) -> list[str]:
    """NaN anywhere, and silence where something is to be heard. Neither ever matches, not even itself."""
    problems = []
    for name, output in record.header.outputs.items():
        if not output.slices:
            continue
        peaks, levels = record.arrays[f"{name}.peak"], record.arrays[f"{name}.rms"]
        for row, (peak, level) in enumerate(zip(peaks.tolist(), levels.tolist(), strict=True)):
            if not math.isfinite(peak) or not math.isfinite(level):
                problems.append(f"row {row} of {name!r} is not finite")
            elif output.heard and peak < QUIETEST and 0 not in output.shapes[row]:
                problems.append(f"row {row} of {name!r} is silent: a peak of {peak:.1e}")
    return problems


def _measure(name: str, output: OutputHeader, tier: Tier, found: Record, kept: Record) -> Iterator[Measure]:
    limits: Limits = output.strict if tier is Tier.STRICT else output.loose
    if not output.slices:
        return
    peaks, levels = kept.arrays[f"{name}.peak"], kept.arrays[f"{name}.rms"]
    for row, level in enumerate(levels.tolist()):
        now = found.arrays[f"{name}.rms"][row : row + 1]
        yield Measure(name, row, "level", metrics.max_abs(now, levels[row : row + 1], level), limits.l2)
    for row in output.kept:
        one, other = _values(found, name, row), _values(kept, name, row)
        yield Measure(name, row, "max_abs", metrics.max_abs(one, other, float(peaks[row])), limits.max_abs)
        yield Measure(name, row, "l2", metrics.relative_l2(one, other, float(levels[row])), limits.l2)
        if output.bands:
            bands = f"{name}.{row}.log_mel"
            distance = metrics.log_mel_distance(found.arrays[bands], kept.arrays[bands])
            yield Measure(name, row, "log-mel dB", distance, limits.log_mel)


def _values(record: Record, name: str, row: int) -> torch.Tensor:
    return torch.cat([record.arrays[f"{name}.{row}.{part}"] for part in ("head", "tail", "sample")])
