"""What a migration changes: two subjects of two reports, check by check, and case by case where both have the case.

Pure functions over records; a wrapper and its replacement may have other axes, and so other cases, but the same checks.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from conformance.outcome import CaseRecord, Outcome
from conformance.report.document import SubjectReport
from conformance.verdict import worse


class Change(enum.Enum):
    """What became of a check. The value heads its list; only NEWLY_FAILING turns a gate red."""

    NEWLY_FAILING = "newly failing"
    NEWLY_PASSING = "newly passing"
    STILL_FAILING = "still failing"
    NO_LONGER_JUDGED = "passed before, not judged now"
    STILL_PASSING = "still passing"
    NOT_COMPARED = "not judged before"


@dataclass(frozen=True)
class Difference:
    """One check, or one case of it, before and after. None stands for a check that did not run at all."""

    check: str
    case: str
    change: Change
    before: CaseRecord | None
    after: CaseRecord | None


@dataclass(frozen=True)
class EvidenceChange:
    """A figure that a passing check measured in both. `case` is empty where the cases have other names."""

    check: str
    case: str
    figure: str
    before: float
    after: float


@dataclass(frozen=True)
class Comparison:
    before: SubjectReport
    after: SubjectReport
    differences: tuple[Difference, ...]
    evidence: tuple[EvidenceChange, ...]

    @property
    def regressed(self) -> bool:
        """Whether anything that passed before fails now."""
        return any(difference.change is Change.NEWLY_FAILING for difference in self.differences)

    def of(self, change: Change) -> list[Difference]:
        return [difference for difference in self.differences if difference.change is change]


def compare(before: SubjectReport, after: SubjectReport) -> Comparison:
    differences = [*_checks(before, after), *_cases(before, after)]
    return Comparison(before, after, tuple(differences), tuple(_figures(before, after)))


def change_of(before: CaseRecord | None, after: CaseRecord | None) -> Change:
    """What became of a check or case; one that gave no answer before is not compared."""
    if before is None or not (before.outcome.breaks or before.outcome is Outcome.PASS):
        return Change.NOT_COMPARED
    if before.outcome is Outcome.PASS:
        if after is None or not (after.outcome.breaks or after.outcome is Outcome.PASS):
            return Change.NO_LONGER_JUDGED
        return Change.NEWLY_FAILING if after.outcome.breaks else Change.STILL_PASSING
    return Change.NEWLY_PASSING if after is not None and after.outcome is Outcome.PASS else Change.STILL_FAILING


def _checks(before: SubjectReport, after: SubjectReport) -> Iterator[Difference]:
    one, other = _worst_by_check(before), _worst_by_check(after)
    for check in sorted({**one, **other}):
        yield Difference(check, "", change_of(one.get(check), other.get(check)), one.get(check), other.get(check))


def _cases(before: SubjectReport, after: SubjectReport) -> Iterator[Difference]:
    """Cases that fail now and passed before, in checks that failed already and so show no change as a whole."""
    earlier = {(record.check, record.case): record for record in before.cases}
    worst = _worst_by_check(before)
    for record in after.cases:
        known = earlier.get((record.check, record.case))
        if known is not None and record.case and worst[record.check].outcome.breaks:
            change = change_of(known, record)
            if change is Change.NEWLY_FAILING:
                yield Difference(record.check, record.case, change, known, record)


def _worst_by_check(subject: SubjectReport) -> dict[str, CaseRecord]:
    found: dict[str, CaseRecord] = {}
    for record in subject.cases:
        found[record.check] = worse(found[record.check], record) if record.check in found else record
    return found


def _figures(before: SubjectReport, after: SubjectReport) -> Iterator[EvidenceChange]:
    earlier = {(record.check, record.case): record for record in before.cases}
    for record in after.cases:
        known = earlier.get((record.check, record.case))
        if known is None or Outcome.PASS not in (known.outcome, record.outcome):
            continue
        one, other = _flat(known.evidence), _flat(record.evidence)
        for figure in one.keys() & other.keys():
            if one[figure] != other[figure]:
                yield EvidenceChange(record.check, record.case, figure, one[figure], other[figure])


def _flat(evidence: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """`{"bytes": {"live": 3}}` as `{"bytes.live": 3.0}`: the numbers alone."""
    found: dict[str, float] = {}
    for name, value in evidence.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        elif type(value) in (int, float):
            found[f"{prefix}{name}"] = float(value)
    return found


HEADLINES = {
    "CG407": {"hit_rate": "calls of the trace that replay", "padded_share": "padding waste (padded ÷ computed)"},
    "CG501": {
        "all_buckets.live": "bytes of live tensors, all buckets",
        "all_buckets.taken": "bytes taken from the device, all buckets",
    },
}
"""Figures that a migration is asked for first, by code and name in the evidence."""


def lines(comparison: Comparison, changed_figures: int = 12) -> Iterator[str]:
    """The comparison as text: what got worse first."""
    yield f"before  {comparison.before.sentence}"
    yield f"after   {comparison.after.sentence}"
    for change in (Change.NEWLY_FAILING, Change.NEWLY_PASSING, Change.STILL_FAILING, Change.NO_LONGER_JUDGED):
        found = comparison.of(change)
        yield ""
        yield f"{change.value}: {len(found)}"
        for difference in found:
            shown = difference.before if change is Change.NEWLY_PASSING else difference.after
            name = f"{difference.check}[{difference.case}]" if difference.case else difference.check
            why = " ".join(shown.told.split()) if shown else "the check did not run"
            yield f"  {name:<34} {'was: ' if change is Change.NEWLY_PASSING else ''}{why[:200]}"
    yield ""
    yield from _headlines(comparison)
    rest = [item for item in comparison.evidence if item.figure not in HEADLINES.get(item.check[:5], {})]
    yield f"changed evidence: {len(rest)}"
    for item in rest[:changed_figures]:
        name = f"{item.check}[{item.case}]" if item.case else item.check
        yield f"  {name:<34} {item.figure}: {item.before:g} → {item.after:g}"
    if len(rest) > changed_figures:
        yield f"  … and {len(rest) - changed_figures} more in the reports"
    yield ""
    told = (Change.NEWLY_PASSING, Change.NEWLY_FAILING, Change.STILL_FAILING)
    counts = ", ".join(f"{len(comparison.of(change))} {change.value}" for change in told)
    yield f"{comparison.before.name} → {comparison.after.name}: {counts}"


def _headlines(comparison: Comparison) -> Iterator[str]:
    for code, figures in HEADLINES.items():
        sides = [_evidence_of(subject, code) for subject in (comparison.before, comparison.after)]
        for figure, words in figures.items():
            told = [f"{side[figure]:g}" if figure in side else "not measured" for side in sides]
            yield f"{words}: {told[0]} → {told[1]}"


def _evidence_of(subject: SubjectReport, code: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for record in subject.cases:
        if record.code == code:
            found |= _flat(record.evidence)
    return found
