"""A run as a document: one schema-versioned JSON, from which every other report is made.

`schema.json` beside this file says what it holds. A later version of the kit reads the versions it knows and refuses
others with one line.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from conformance.errors import ConformanceError
from conformance.outcome import CaseRecord, Outcome
from conformance.verdict import Verdict, judge, overall, sentence

SCHEMA_VERSION = 1
KIND = "audiograph.conformance"
SCHEMA = Path(__file__).with_name("schema.json")


class ReportError(ConformanceError):
    """A report that cannot be read or written. The message begins with its path."""


@dataclass(frozen=True)
class SubjectReport:
    """One adapter's part of a run."""

    name: str
    verdict: Verdict
    sentence: str
    cases: tuple[CaseRecord, ...]


@dataclass(frozen=True)
class RunReport:
    """A run: its subjects, and what it ran with. `ended` is `complete`, or why it ended before its last case."""

    subjects: tuple[SubjectReport, ...]
    seed: int
    device: str
    ended: str = "complete"
    created: str = ""
    kit: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        return overall(subject.verdict for subject in self.subjects)

    def subject(self, name: str) -> SubjectReport | None:
        return next((subject for subject in self.subjects if subject.name == name), None)


def make_report(
    names: Sequence[str], records: Iterable[CaseRecord], *, seed: int, device: str, ended: str = "complete"
) -> RunReport:
    """The report of a run from the records of its cases; a subject without any is part of it all the same."""
    kept = list(records)
    subjects = []
    for name in names:
        own = tuple(record for record in kept if record.adapter == name)
        said = sentence(name, own, seed=seed, stopped=ended != "complete")
        subjects.append(SubjectReport(name, judge(record.outcome for record in own), said, own))
    return RunReport(
        tuple(subjects),
        seed=seed,
        device=device,
        ended=ended,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        kit=kit_version(),
    )


def kit_version() -> str:
    """The installed version, or what a checkout that is not installed can say."""
    try:
        return importlib.metadata.version("audiograph")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def to_document(report: RunReport) -> dict[str, Any]:
    """`report` as plain JSON values, as `schema.json` describes them."""
    return {
        "kind": KIND,
        "schema": SCHEMA_VERSION,
        "kit": report.kit,
        "created": report.created,
        "seed": report.seed,
        "device": report.device,
        "ended": report.ended,
        "verdict": report.verdict.value,
        "subjects": [
            {
                "name": subject.name,
                "verdict": subject.verdict.value,
                "sentence": subject.sentence,
                "cases": [_case(record) for record in subject.cases],
            }
            for subject in report.subjects
        ],
    }


def _case(record: CaseRecord) -> dict[str, Any]:
    values = {**asdict(record), "outcome": record.outcome.name, "code": record.code}
    del values["adapter"]
    plain: dict[str, Any] = json.loads(json.dumps(values, default=str))
    return plain


def from_document(found: Any, where: str) -> RunReport:
    """The report that a document holds. Raises :class:`ReportError` where it is none of ours, or of another version."""
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise ReportError(f"{where}: expected a report of `pytest --adapter=NAME --conformance-json=FILE`")
    if found.get("schema") != SCHEMA_VERSION:
        raise ReportError(
            f"{where}: schema version {found.get('schema')!r}; this audiograph reads {SCHEMA_VERSION}: write it again"
        )
    try:
        subjects = tuple(
            SubjectReport(
                subject["name"],
                Verdict(subject["verdict"]),
                subject["sentence"],
                tuple(_record(subject["name"], case) for case in subject["cases"]),
            )
            for subject in found["subjects"]
        )
        return RunReport(subjects, found["seed"], found["device"], found["ended"], found["created"], found["kit"])
    except (KeyError, TypeError, ValueError) as error:
        raise ReportError(f"{where}: damaged: {type(error).__name__}: {error}") from error


def _record(adapter: str, case: Mapping[str, Any]) -> CaseRecord:
    values = {name: value for name, value in case.items() if name != "code"}
    return CaseRecord(**{**values, "adapter": adapter, "outcome": Outcome[values["outcome"]]})


def read_report(path: Path) -> RunReport:
    """The report in the file. Raises :class:`ReportError` naming the file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ReportError(f"{path}: not a whole JSON document: {error}") from error
    return from_document(found, str(path))


def write_report(report: RunReport, path: Path) -> None:
    write_whole(path, json.dumps(to_document(report), indent=1) + "\n")


def require_writable(path: Path) -> None:
    """Raise :class:`ReportError` before a run whose report could not be written after it."""
    folder = path.absolute().parent
    if path.is_dir():
        raise ReportError(f"{path}: is a folder; expected the name of a file to write")
    if not folder.is_dir():
        raise ReportError(f"{path}: there is no folder {folder}; make it first")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ReportError(f"{path}: may not be written")


def write_whole(path: Path, text: str) -> None:
    """Write `text` so that a reader meets the old file or the new one, never half of it."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_text(text, encoding="utf-8")
        half.replace(path)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise ReportError(f"{path}: {error.strerror}") from error
