"""A run as Markdown: GitHub's step summary, which shows at most 1 MiB and cannot draw."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from conformance.handbook import FAMILIES, spelled_out
from conformance.outcome import CaseRecord
from conformance.report.document import RunReport
from conformance.report.files import write_whole
from conformance.report.summary import (
    COMPARED,
    KNOWN,
    Cause,
    Cell,
    State,
    by_harm,
    causes,
    cell_of,
    checks_of,
    conditions,
    family_of,
    harm_of,
    headline,
    in_short,
    one_line,
)
from conformance.verdict import Verdict

WORDS = Path(__file__).with_name("templates") / "words.html"
LIMIT = 1024 * 1024  # bytes of a step summary; GitHub shows none of a longer one
_NOTE_BYTES = 400
_INDEX = 40  # causes in the table of all
_ALIKE = 20  # further cases of one cause that are told
_BRIEF = 240  # characters of what each of them found

_MARKS = {
    State.FAIL: "❌",
    State.ERROR: "💥",
    State.XPASS: "❗",
    State.KNOWN: "⚠️",
    State.OPEN: "❔",
    State.PASS: "✅",
    State.APART: "➖",
    State.NOT_RUN: "",
}


def markdown(report: RunReport, limit: int = LIMIT) -> str:
    """The summary, of at most `limit` bytes: failures that do not fit are counted at its end."""
    mark = {Verdict.CONFORMANT: "✅", Verdict.NOT_CONFORMANT: "❌", Verdict.INCONCLUSIVE: "❔"}[report.verdict]
    sentences = (f"- {escaped(subject.sentence)}" for subject in report.subjects)
    stands = "; ".join(f"{label} {words}" for label, words in conditions(report).items())
    head = [
        *(f"## {mark} {report.verdict.value}", "", f"{escaped(headline(report))} {escaped(COMPARED)}", ""),
        *(f"Run {escaped(stands)}.", "", *sentences, ""),
        *_table(report),
    ]
    if any(record.known for subject in report.subjects for record in subject.cases):
        head += [f"{_MARKS[State.KNOWN]} {escaped(KNOWN)}", ""]
    head += _index(report, limit // 8)
    text = "\n".join(head)
    size, left_out = len(text.encode()), 0
    parts = [text]
    for block in map(_block, causes(report)):
        size += len(block.encode())
        if size + _NOTE_BYTES > limit:
            left_out += 1
        else:
            parts.append(block)
    if left_out:
        parts.append(
            f"\n**{left_out} more causes of failures are left out**: GitHub shows at most {limit} bytes of a summary. "
            "The JSON report holds all.\n"
        )
    return "".join(parts)


def write_markdown(report: RunReport, path: Path) -> None:
    write_whole(path, markdown(report))


def _table(report: RunReport) -> Iterator[str]:
    """Subjects × families of checks."""
    families = list(dict.fromkeys(map(family_of, checks_of(report))))
    if not families:
        return
    yield "| subject | " + " | ".join(f"{family}<br>{FAMILIES.get(family, '')}" for family in families) + " |"
    yield "|---|" + "---|" * len(families)
    for subject in report.subjects:
        cells = [
            cell_of([record for record in subject.cases if family_of(record.check) == family]) for family in families
        ]
        yield f"| {code(subject.name, table=True)} | " + " | ".join(map(_cell, cells)) + " |"
    yield ""
    yield "Cases that passed, of those that apply, by family of checks. " + " ".join(
        f"{mark} {state.value}" for state, mark in _MARKS.items() if mark
    )
    yield ""


def _index(report: RunReport, limit: int) -> Iterator[str]:
    """All causes in one table of at most `limit` bytes, what is worst first, and the words of the report."""
    found = sorted(causes(report), key=by_harm)
    if len(found) > 1:
        yield from ("| | harm | cause | subject | checks | cases |", "|---|---|---|---|---|---|")
        rows = list(map(_index_row, found))
        sizes = list(itertools.accumulate(len(row.encode()) + 1 for row in rows))
        shown = sum(size <= limit for size in sizes[:_INDEX])
        yield from (*rows[:shown], "")
        if shown < len(rows):
            yield from (f"and {len(rows) - shown} more causes", "")
    words = WORDS.read_text(encoding="utf-8").rstrip()
    if found and len(words.encode()) <= limit:
        yield from ("<details><summary>Words used here</summary>", "", words, "", "</details>", "")


def _index_row(cause: Cause) -> str:
    checks = ", ".join(dict.fromkeys(record.code for record in cause.records))
    told = (escaped(in_short(cause.shown)), code(cause.subject, table=True), checks, str(len(cause.records)))
    return f"| {_MARKS[_state(cause.shown)]} | {harm_of(cause).value} | " + " | ".join(told) + " |"


def _cell(cell: Cell) -> str:
    if cell.state in (State.APART, State.NOT_RUN):
        return _MARKS[cell.state] + (" n.a." if cell.state is State.APART else "")
    return f"{_MARKS[cell.state]} {cell.passed}/{cell.judged}"


def _block(cause: Cause) -> str:
    """One cause: its telling case in full, and further ones folded away."""
    shown = cause.shown
    lines = ["", f"### {_MARKS[_state(shown)]} {code(shown.id)}", "", *_rows(shown)]
    if cause.others:
        count = len(cause.others)
        checks = ", ".join(dict.fromkeys(record.code for record in cause.others))
        lines += ["", f"<details><summary>{count} more failing for the same cause, in {checks}</summary>", ""]
        told = cause.others[:_ALIKE]
        lines += [f"- {code(record.id.removeprefix(f'{record.adapter}/'))}: {_briefly(record)}" for record in told]
        if count > _ALIKE:
            lines.append(f"- and {count - _ALIKE} more, in the JSON report")
        lines += [*_command(_all_of(cause)), "", "</details>"]
    return "\n".join(lines) + "\n"


def _all_of(cause: Cause) -> str:
    """The command that repeats every case of these checks."""
    codes = " or ".join(dict.fromkeys(record.code for record in cause.records))
    return re.sub(r"-k (\"[^\"]*\"|'[^']*'|\S+)", f'-k "{codes}"', one_line(cause.shown.repeat), count=1)


def _state(record: CaseRecord) -> State:
    return cell_of([record]).state


def _briefly(record: CaseRecord) -> str:
    text = one_line(record.message)
    return escaped(text if len(text) <= _BRIEF else text[:_BRIEF].rpartition(" ")[0] + " …")


def _rows(record: CaseRecord) -> Iterator[str]:
    likely, kinds = spelled_out(record.likely)
    if record.known:
        reason, issue, until = (record.known[name] for name in ("reason", "issue", "until"))
        yield f"- **known** {escaped(reason)} See {_link(issue)}, known until {escaped(until)}"
    told = {"found": record.message, "promise": record.title}
    if not record.known:  # of a known failure one knows better
        told["likely"] = f"{likely} (kind of mistake: {'; '.join(kinds)})" if kinds else likely
        told["cure"] = record.cure
    for label, value in told.items():
        if value:
            yield f"- **{label}** {escaped(value)}"
    yield from _command(one_line(record.repeat))


def _link(address: str) -> str:
    return f"<{address}>" if re.fullmatch(r"https://[^\s<>\\]+", address) else escaped(address)


def _command(text: str) -> Iterator[str]:
    """A block of shell, which no backtick in it ends."""
    if text:
        fence = "`" * max(3, _longest_ticks(text) + 1)
        yield from ("", f"{fence}sh", text, fence)


_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~$!])")


def escaped(text: str) -> str:
    """`text` as words of a paragraph, a list or a table: no markup, no HTML, no formula, no line break of its own."""
    return html.escape(_SPECIAL.sub(r"\\\1", one_line(text)), quote=False)


def code(text: str, *, table: bool = False) -> str:
    """`text` as code, which GitHub shows as it is, but for the bar that would end a table's cell."""
    ticks = "`" * (_longest_ticks(text) + 1)
    room = " " if len(ticks) > 1 else ""
    return f"{ticks}{room}{one_line(text).replace('|', chr(92) + '|') if table else one_line(text)}{room}{ticks}"


def _longest_ticks(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
