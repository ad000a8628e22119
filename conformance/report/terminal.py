"""What the terminal shows: the text of a failure, the word of each outcome, the closing sentence."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from conformance.outcome import CaseRecord, Outcome
from conformance.session import KitSession
from conformance.verdict import Verdict, judge_run, overall, overall_sentence, sentence

_WIDTH = 108
_LABEL = "  {:<10}"

_WORDS = {
    Outcome.ERROR: ("error", "E", ("ERROR", {"red": True})),
    Outcome.XFAIL: ("known failure", "x", ("KNOWN FAILURE", {"yellow": True})),
    Outcome.XPASS: ("known failure passed", "X", ("KNOWN FAILURE PASSED", {"red": True})),
    Outcome.NOT_APPLICABLE: ("not applicable", "n", ("NOT APPLICABLE", {"yellow": True})),
    Outcome.BLOCKED: ("blocked", "b", ("BLOCKED", {"yellow": True})),
    Outcome.INCONCLUSIVE: ("inconclusive", "i", ("INCONCLUSIVE", {"yellow": True})),
}

Status = tuple[str, str, tuple[str, Mapping[str, bool]]]


@dataclass(frozen=True)
class _Crash:
    message: str
    path: str = ""
    lineno: int = 0


@dataclass(frozen=True)
class FailureText:
    """A failure as pytest's own reporters want it: the whole text, and one line for summaries and JUnit."""

    text: str
    message: str

    @property
    def reprcrash(self) -> _Crash:
        return _Crash(self.message)

    def toterminal(self, writer: Any) -> None:
        for line in self.text.splitlines():
            writer.line(line, red=line.startswith(("FAILED ", "ERROR ")), bold=line.startswith(("FAILED ", "ERROR ")))

    def __str__(self) -> str:
        return self.text


def status(record: CaseRecord) -> Status | None:
    """pytest's category, letter and word for an outcome; None where pytest's own are right."""
    return _WORDS.get(record.outcome)


def failure_text(record: CaseRecord, traceback: str = "") -> str:
    """The rows that an author reads. An error shows the traceback too: its cause may be anywhere."""
    rows = {
        "promise": record.title,
        "found": record.message,
        "likely": record.likely,
        "cure": record.cure,
    }
    lines = [f"{'ERROR' if record.outcome is Outcome.ERROR else 'FAILED'} {record.id}"]
    for label, value in rows.items():
        if value:
            lines.append(
                textwrap.fill(
                    " ".join(value.split()),
                    _WIDTH,
                    initial_indent=_LABEL.format(label),
                    subsequent_indent=_LABEL.format(""),
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )
        if label == "found":
            lines += [_LABEL.format("") + line for line in record.evidence.get("table", ())]
    lines.append(_LABEL.format("repeat") + record.repeat)
    if traceback:
        lines += ["", traceback]
    return "\n".join(lines)


def close_run(reporter: Any, kit: KitSession, records: Sequence[CaseRecord], exitstatus: int, *, stopped: bool) -> int:
    """Print the closing lines and return the exit status of the run.

    An author's own failing test keeps its 1, and a run that pytest broke off keeps pytest's code and has no verdict.
    """
    if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        _write(reporter, f"audiograph: no verdict — pytest ended with exit code {int(exitstatus)}", None)
        return exitstatus
    verdicts: dict[str, Verdict] = {}
    excusing: list[Verdict] = []
    for adapter in kit.adapters:
        name = adapter.spec.name
        own = [record for record in records if record.adapter == name]
        verdicts[name] = judge_run(own, stopped=stopped)
        excusing.append(judge_run(own, stopped=stopped, excuse_known=True))
        for note in snapshot_notes(own):
            _write(reporter, f"{name}: {note}", None)
        _write(reporter, sentence(name, own, seed=kit.options.seed, stopped=stopped), verdicts[name])
    run = overall(verdicts.values())
    if len(verdicts) > 1:
        _write(reporter, overall_sentence(verdicts), run)
    if exitstatus == pytest.ExitCode.TESTS_FAILED:
        return exitstatus
    left = overall(excusing)
    if kit.options.allow_known and run is Verdict.NOT_CONFORMANT and left is not Verdict.NOT_CONFORMANT:
        beside = "" if left is Verdict.CONFORMANT else "; beside them the run is INCONCLUSIVE"
        told = f"every failure is a known one, and --conformance-allow-known was given{beside}"
        _write(reporter, f"exit {left.exit_code}: {told}", run)
        return left.exit_code
    return run.exit_code


def tell_unwritten(reporter: Any, lines: Sequence[str]) -> None:
    """Say which reports could not be written. The closing sentence stays the last line."""
    for line in lines:
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(f"ERROR: {line}", bold=True, red=True)


def snapshot_notes(records: Sequence[CaseRecord]) -> list[str]:
    """What a reader must know of snapshots: those compared at the loose tier, another device's; and those deleted."""
    notes = []
    loose = [record for record in records if record.evidence.get("tier") == "loose"]
    if loose:
        classes = sorted({str(record.evidence.get("against")) for record in loose})
        skipped = sum("uncompared" in record.evidence for record in loose)
        but = f", {skipped} by lengths and loudness alone" if skipped else ""
        notes.append(f"{len(loose)} snapshots of {' and '.join(classes)} were compared at the loose tier{but}")
    deleted = [str(name) for record in records for name in record.evidence.get("deleted", ())]
    if deleted:
        notes.append(f"deleted, for no case stands for it any more: {', '.join(deleted)}")
    return notes


def _write(reporter: Any, line: str, verdict: Verdict | None) -> None:
    if reporter is None:
        return
    color = {Verdict.CONFORMANT: "green", Verdict.NOT_CONFORMANT: "red"}.get(verdict, "yellow") if verdict else "yellow"
    reporter.ensure_newline()
    reporter.write_line(line, bold=True, **{color: True})
