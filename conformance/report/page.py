"""A run as one HTML page that needs nothing but itself: no script, no request, readable on a phone and by a reader."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.handbook import FAMILIES, spelled_out
from conformance.outcome import CaseRecord, Outcome
from conformance.report.document import RunReport, SubjectReport
from conformance.report.files import ReportError, write_whole
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
    headline_of,
    in_short,
    state_of,
)

TEMPLATES = Path(__file__).with_name("templates")
_PICTURES = 60  # of one page, so that a run in which all fails is a page that opens
_PICTURES_ALIKE = 2  # of further cases of one cause
_INDEX = 6  # causes in the table at the top; the others are folded
_ALIKE = 30  # further cases of one cause that are listed
_HEADLINE = 160  # characters
_OPEN_SUBJECTS = 4  # up to so many are shown unfolded


@dataclass(frozen=True)
class Told:
    """One failing case, and its picture where it has one."""

    record: CaseRecord
    picture: Any
    state: State

    @property
    def headline(self) -> str:
        """What is told first, in one line that can be read at a glance; :attr:`rest` goes on where it ends."""
        return self._parts[0]

    @property
    def rest(self) -> str:
        return self._parts[1]

    @property
    def _parts(self) -> tuple[str, str]:
        first, _, rest = headline_of(self.record).strip().partition("\n")
        if len(first) <= _HEADLINE:
            return first, rest
        ends = [found.end() for found in re.finditer(r"[.;:,] ", first[:_HEADLINE])]
        end = ends[-1] if ends else first.rfind(" ", 0, _HEADLINE) + 1 or _HEADLINE
        return first[:end].rstrip(" :;,"), first[end:] + (f"\n{rest}" if rest else "")


@dataclass(frozen=True)
class CauseView:
    anchor: str
    cause: Cause
    shown: Told
    others: tuple[Told, ...]
    unfolded: bool
    """The first of its subject, and the first that has a picture."""

    @property
    def left_out(self) -> int:
        return len(self.cause.others) - len(self.others)


@dataclass(frozen=True)
class Mark:
    """A cell of the matrix, and where its failure is told."""

    cell: Cell
    anchor: str


@dataclass(frozen=True)
class SubjectView:
    report: SubjectReport
    marks: Mapping[str, Mark]
    seconds: Mapping[str, float]
    sizes: Any
    facts: tuple[tuple[str, str], ...]
    memory: Any
    unfolded: bool


def require_html() -> None:
    """Raise :class:`ReportError` where the packages that make the page are not installed."""
    missing = [name for name in ("jinja2", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        raise ReportError(
            f"an HTML report needs {' and '.join(missing)}, not installed here: pip install 'audiograph[report]'"
        )


def write_html(report: RunReport, path: Path) -> None:
    require_html()
    write_whole(path, page(report))


def page(report: RunReport) -> str:
    """The page. Needs jinja2 and matplotlib."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "prose": _prose,
        "bytes": human_bytes,
        "short": in_short,
        "harm": harm_of,
        "spelled": spelled_out,
    }
    text: str = environment.get_template("report.html.j2").render(_context(report))
    return text


def _context(report: RunReport) -> dict[str, Any]:
    from conformance.report.trends import histories, latencies

    told = list(_causes(report))
    checks = checks_of(report)
    families: dict[str, list[str]] = {}
    for check in checks:
        families.setdefault(family_of(check), []).append(check)
    records = [record for subject in report.subjects for record in subject.cases]
    return {
        "report": report,
        "headline": headline(report),
        "conditions": conditions(report),
        "compared": COMPARED,
        "about_known": KNOWN if any(record.known for record in records) else "",
        "failing": [
            (subject, [view for view in told if view.cause.subject == subject.name])
            for subject in report.subjects
            if any(view.cause.subject == subject.name for view in told)
        ],
        "index_shown": _INDEX,
        "index": sorted(told, key=lambda view: by_harm(view.cause)),
        "checks": checks,
        "families": families,
        "family_names": FAMILIES,
        "subjects": [_subject(subject, told, len(report.subjects) <= _OPEN_SUBJECTS) for subject in report.subjects],
        "states": [state for state in State if state is not State.NOT_RUN],
        "latencies": latencies(report.benchmarks),
        "histories": histories(report.history),
    }


def _causes(report: RunReport) -> Iterator[CauseView]:
    from conformance.report.picture import picture

    left = _PICTURES
    seen: dict[str, list[bool]] = {}
    for number, cause in enumerate(causes(report), 1):
        shown = _told(cause.shown, picture if left > 0 else None)
        left -= shown.picture is not None
        others = []
        for position, record in enumerate(cause.others[:_ALIKE]):
            other = _told(record, picture if left > 0 and position < _PICTURES_ALIKE else None)
            left -= other.picture is not None
            others.append(other)
        before = seen.setdefault(cause.subject, [])
        unfolded = not before or (shown.picture is not None and not any(before))
        before.append(shown.picture is not None)
        yield CauseView(f"failure-{number}", cause, shown, tuple(others), unfolded)


def _told(record: CaseRecord, picture: Any) -> Told:
    return Told(record, picture(record.evidence) if picture else None, state_of(record))


def _subject(subject: SubjectReport, told: list[CauseView], unfolded: bool) -> SubjectView:
    from conformance.report.sizes import size_map

    anchors = {
        check: view.anchor
        for view in reversed(told)
        if view.cause.subject == subject.name
        for check in view.cause.checks
    }
    by_check: dict[str, list[CaseRecord]] = {}
    for record in subject.cases:
        by_check.setdefault(record.check, []).append(record)
    return SubjectView(
        subject,
        marks={check: Mark(cell_of(records), anchors.get(check, "")) for check, records in by_check.items()},
        seconds={check: sum(record.seconds for record in records) for check, records in by_check.items()},
        sizes=size_map(subject),
        facts=tuple(_facts(subject)),
        memory=_memory(subject),
        unfolded=unfolded,
    )


def _facts(subject: SubjectReport) -> Iterator[tuple[str, str]]:
    """The few figures that one asks for first."""
    cell = cell_of(subject.cases)
    yield f"{cell.passed} of {cell.judged}", "cases passed"
    evidence = _evidence(subject, "CG407")
    for name, words in (("hit_rate", "of typical calls replay"), ("padded_share", "of computed elements are padding")):
        if isinstance(evidence.get(name), (int, float)):
            yield f"{100 * evidence[name]:.3g} %", words
    together = _evidence(subject, "CG501").get("all_buckets")
    if isinstance(together, Mapping) and isinstance(together.get("live"), int):
        yield human_bytes(together["live"]), "of tensors for all buckets"
    yield f"{sum(record.seconds for record in subject.cases):.1f} s", "to judge it"


def _memory(subject: SubjectReport) -> list[tuple[str, int]]:
    """Rows of the memory table: the largest bucket alone, all of them, and each one's static buffers."""
    evidence = _evidence(subject, "CG501")
    rows: list[tuple[str, Any]] = []
    for name, words in (("largest_alone", "the largest bucket alone"), ("all_buckets", "all buckets together")):
        told = evidence.get(name)
        if isinstance(told, Mapping):
            rows += [
                (f"{words}: live tensors", told.get("live")),
                (f"{words}: taken from the device", told.get("taken")),
            ]
    static = evidence.get("static_bytes_by_bucket")
    if isinstance(static, Mapping):
        ordered = sorted(static.items(), key=lambda row: [int(size) for size in re.findall(r"\d+", row[0])])
        rows += [(f"static buffers of {bucket}", count) for bucket, count in ordered]
    return [(label, count) for label, count in rows if isinstance(count, int)]


def _evidence(subject: SubjectReport, code: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for record in subject.cases:
        if record.code == code and record.outcome in (Outcome.PASS, Outcome.FAIL, Outcome.XFAIL):
            found |= record.evidence
    return found


def human_bytes(count: float) -> str:
    """`1.5 MiB`."""
    if abs(count) < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if abs(count) < 1024 or unit == "GiB":
            break
    return f"{count:.1f} {unit}"


_MARKUP = re.compile(r"`([^`]+)`|(https://[^\s<>\"')]+[^\s<>\"').,;])")


def _prose(text: str) -> Any:
    """Text of a message: code between backticks is code, and an issue's address is a link."""
    from markupsafe import Markup, escape

    made, end = Markup(""), 0
    for found in _MARKUP.finditer(text):
        made += escape(text[end : found.start()])
        if found[1]:
            made += Markup("<code>{}</code>").format(found[1])
        else:
            made += Markup('<a href="{0}" rel="noreferrer">{0}</a>').format(found[2])
        end = found.end()
    return made + escape(text[end:])
