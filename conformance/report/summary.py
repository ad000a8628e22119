"""What every report for people is made of: the state of each subject under each check, and failures by their cause."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from conformance.outcome import CaseRecord, Outcome
from conformance.report.document import RunReport, SubjectReport
from conformance.verdict import Verdict, worse
from conformance.waveform import WAVEFORM

_SHORT = 110  # characters


class State(enum.Enum):
    """What a cell of a table says. The value is its word; `symbol` says it without colour."""

    FAIL = "failed"
    ERROR = "error"
    XPASS = "known failure passed"
    KNOWN = "known failure"
    OPEN = "not judged"
    PASS = "passed"
    APART = "not applicable"
    NOT_RUN = "not run"

    @property
    def symbol(self) -> str:
        return _SYMBOLS[self]


_SYMBOLS = {
    State.FAIL: "✕",
    State.ERROR: "!",
    State.XPASS: "⤒",
    State.KNOWN: "≈",
    State.OPEN: "?",
    State.PASS: "✓",
    State.APART: "–",
    State.NOT_RUN: "",
}
_STATES = {
    Outcome.FAIL: State.FAIL,
    Outcome.ERROR: State.ERROR,
    Outcome.XPASS: State.XPASS,
    Outcome.XFAIL: State.KNOWN,
    Outcome.BLOCKED: State.OPEN,
    Outcome.INCONCLUSIVE: State.OPEN,
    Outcome.PASS: State.PASS,
    Outcome.NOT_APPLICABLE: State.APART,
}


@dataclass(frozen=True)
class Cell:
    """One subject under one check, or under all checks of one family."""

    state: State
    passed: int
    judged: int
    """Cases that apply: all but those that do not."""
    broken: int


def cell_of(records: Sequence[CaseRecord]) -> Cell:
    """The worst outcome counts, except that one case which does not apply does not hide others that pass."""
    judged = [record for record in records if record.outcome is not Outcome.NOT_APPLICABLE]
    shown = judged or records
    return Cell(
        _STATES[reduce(worse, shown).outcome] if shown else State.NOT_RUN,
        passed=sum(record.outcome is Outcome.PASS for record in judged),
        judged=len(judged),
        broken=sum(record.outcome.breaks for record in judged),
    )


def state_of(record: CaseRecord) -> State:
    return _STATES[record.outcome]


def checks_of(report: RunReport) -> dict[str, str]:
    """Every check that any subject met, by name and in the order of the codes, with its promise."""
    found = {record.check: record.title for subject in report.subjects for record in subject.cases}
    return {name: found[name] for name in sorted(found)}


def family_of(check: str) -> str:
    """`CG2` of `CG203-padded-bucket`."""
    return check[:3]


@dataclass(frozen=True)
class Cause:
    """Failures of one subject that say the same: one mistake breaks many promises, and is mended once."""

    subject: str
    records: tuple[CaseRecord, ...]

    @property
    def shown(self) -> CaseRecord:
        """The case that tells it: of those with a picture, where there are any, the plainest check's longest."""
        return min(self.records, key=_tells)

    @property
    def others(self) -> tuple[CaseRecord, ...]:
        return tuple(record for record in self.records if record is not self.shown)

    @property
    def checks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(record.check for record in self.records))


def causes_of(subject: SubjectReport) -> list[Cause]:
    """The failures of a subject, grouped: new ones before known ones, and those of plain checks before the others.

    A known failure whose reason begins with "As CG203" goes with those of CG203.
    """
    groups: dict[tuple[object, ...], list[CaseRecord]] = {}
    for record in subject.cases:
        if record.outcome.breaks and not _pointed_at(record):
            groups.setdefault(_said(record), []).append(record)
    for record in subject.cases:
        if record.outcome.breaks and (code := _pointed_at(record)):
            same = [group for group in groups.values() if any(other.code == code and other.known for other in group)]
            (same[0] if same else groups.setdefault(_said(record), [])).append(record)
    found = [Cause(subject.name, tuple(records)) for records in groups.values()]
    return sorted(found, key=lambda cause: (_URGENCY.index(cause.shown.outcome), _rank(cause.shown.code)))


def _said(record: CaseRecord) -> tuple[object, ...]:
    return (record.outcome, *((record.likely, record.cure) if record.likely else (record.message,)))


def _pointed_at(record: CaseRecord) -> str:
    """The check whose known failure this one is as well."""
    found = re.match(r"As (CG\d{3})", record.known.get("reason", ""))
    return found[1] if found else ""


_URGENCY = (Outcome.ERROR, Outcome.FAIL, Outcome.XPASS, Outcome.XFAIL)
_PLAIN = ["CG001", "CG002", "CG101", "CG103", "CG201", "CG202", "CG203", "CG204", "CG401", "CG402", "CG301"]
"""Checks of one call or two. Where they fail, so do many others, which say less clearly why."""


def _tells(record: CaseRecord) -> tuple[bool, tuple[int, str], int]:
    wave = record.evidence.get(WAVEFORM)
    samples = wave.get("samples") if isinstance(wave, Mapping) else None
    return (samples is None, _rank(record.code), -samples if isinstance(samples, int) else 0)


def _rank(code: str) -> tuple[int, str]:
    return (_PLAIN.index(code) if code in _PLAIN else len(_PLAIN), code)


class Harm(enum.Enum):
    """What a failed check means for whoever serves the model; what is worst first."""

    WRONG = "wrong audio"
    BREAKS = "breaks or refuses"
    OTHERWISE = "not as configured"
    SLOW = "eager for ever"
    MEMORY = "memory"
    TOLD = "told wrongly"


_HARMS = {
    "CG0": Harm.TOLD,
    "CG1": Harm.SLOW,
    "CG2": Harm.WRONG,
    "CG3": Harm.WRONG,
    "CG4": Harm.BREAKS,
    "CG5": Harm.MEMORY,
    "CG6": Harm.WRONG,
    "CG7": Harm.TOLD,
    "CG8": Harm.SLOW,
    "CG9": Harm.WRONG,
    **dict.fromkeys(("CG401", "CG403", "CG406", "CG407", "CG408"), Harm.OTHERWISE),
    "CG604": Harm.BREAKS,  # a forked child's call raises
}


def harm_of(cause: Cause) -> Harm:
    """The harm of the check that tells it."""
    code = cause.shown.code
    return _HARMS.get(code) or _HARMS.get(family_of(code), Harm.TOLD)


def by_harm(cause: Cause) -> tuple[int, int, int]:
    """The place in a table of all: new before known, what is worst first, and of that what breaks most cases."""
    return _URGENCY.index(cause.shown.outcome), list(Harm).index(harm_of(cause)), -len(cause.records)


def causes(report: RunReport) -> list[Cause]:
    return [cause for subject in report.subjects for cause in causes_of(subject)]


def planned(subject: SubjectReport) -> int:
    """How many cases the subject has before any selection; 0 where none was run, so that nobody knows."""
    return max((record.planned for record in subject.cases), default=0)


def is_whole(report: RunReport) -> bool:
    """Whether every case of every subject was run."""
    return report.ended == "complete" and all(
        subject.cases and len(subject.cases) == planned(subject) for subject in report.subjects
    )


def headline(report: RunReport) -> str:
    """One sentence under the verdict: how many subjects conform, and what keeps the others."""
    total = len(report.subjects)
    conform = sum(subject.verdict is Verdict.CONFORMANT for subject in report.subjects)
    records = [record for subject in report.subjects for record in subject.cases]
    broken = [record for record in records if record.outcome.breaks]
    if total == 1:
        words = f"{report.subjects[0].name} {'conforms' if conform else 'does not conform'}."
        if report.verdict is Verdict.INCONCLUSIVE:
            words = f"{report.subjects[0].name} could not be judged."
    else:
        words = f"{conform} of {total} subjects conform."
    if broken:
        checks = len({record.check for record in broken})
        words += f" {_many(len(broken), 'case')} of {_many(checks, 'check')} {'fails' if len(broken) == 1 else 'fail'}"
        known = sum(bool(record.known) for record in broken)
        words += f", {'all' if known == len(broken) else known} of them known failures" if known else ""
        words += "."
    passed = sum(record.outcome is Outcome.PASS for record in records)
    words += f" {_many(passed, 'case')} passed."
    if report.ended != "complete":
        words += f" The run ended before its last case: {report.ended}."
    elif not is_whole(report):
        words += " Not every case was selected."
    return words


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def headline_of(record: CaseRecord) -> str:
    """What is told first of a failing case: why it is known, in a person's words, or what was found."""
    return record.known.get("reason", record.message)


def in_short(record: CaseRecord) -> str:
    """What is told first of a case, cut to one line: for lists."""
    text = one_line(headline_of(record)).replace("`", "")
    if len(text) <= _SHORT:
        return text
    clauses = [found.start() for found in re.finditer(r"[.;:,]? \(|[.;:,] ", text[:_SHORT])]
    end = clauses[-1] if clauses and clauses[-1] > _SHORT // 2 else text.rfind(" ", 0, _SHORT)
    return text[: end if end > 0 else _SHORT] + "…"


COMPARED = (
    "Each subject replays CUDA graphs, and is held against its module run eagerly. NAME@PACKAGE is the package's own "
    "wrapper, NAME audiograph's adapter."
)
KNOWN = (
    "A known failure is one that the adapter's expectations.toml declares, with a reason, the nearest public issue and "
    "a last day. It is a failure all the same."
)


def conditions(report: RunReport) -> dict[str, str]:
    """What the run stands on: machine, packages, weights, seed."""
    records = [record for subject in report.subjects for record in subject.cases]
    packages = {f"{name} {version}" for subject in report.subjects for name, version in subject.packages.items()}
    told = {
        "on": machines(records),
        "package": ", ".join(sorted(packages)),
        "weights": report.checkpoint or "tiny and random",
        "seed": str(report.seed),
    }
    return {label: words for label, words in told.items() if words}


def one_line(text: str) -> str:
    return " ".join(text.split())


def machines(records: Iterable[CaseRecord]) -> str:
    """`emulated CUDA, torch 2.13.0`."""
    kept = list(records)
    parts = [*sorted({record.machine for record in kept if record.machine})]
    parts += [f"torch {version}" for version in sorted({record.torch for record in kept if record.torch})]
    return ", ".join(parts)
