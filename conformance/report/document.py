"""A run as a document: one schema-versioned JSON, from which every other report is made.

`schema.json` beside this file says what it holds. A later version of the kit reads the versions it knows and refuses
others with one line.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from conformance.outcome import CaseRecord, Outcome
from conformance.report.files import ReportError, write_whole
from conformance.report.speed import Benchmark, HistoryPoint
from conformance.verdict import Verdict, judge_run, overall, sentence
from conformance.versions import kit_version

SCHEMA_VERSION = 2
KIND = "audiograph.conformance"
SCHEMA = Path(__file__).with_name("schema.json")


@dataclass(frozen=True)
class SubjectReport:
    """One adapter's part of a run. `packages` are the versions of those that it needs, by name."""

    name: str
    verdict: Verdict
    sentence: str
    cases: tuple[CaseRecord, ...]
    packages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunReport:
    """A run: its subjects, and what it ran with. `ended` is `complete`, or why it ended before its last case.

    `checkpoint` names the real weights, and is empty where they were tiny and random. `benchmarks` and `history` are
    figures of speed, where somebody measured them.
    """

    subjects: tuple[SubjectReport, ...]
    seed: int
    device: str
    ended: str = "complete"
    created: str = ""
    kit: str = ""
    checkpoint: str = ""
    benchmarks: tuple[Benchmark, ...] = ()
    history: tuple[HistoryPoint, ...] = ()

    @property
    def verdict(self) -> Verdict:
        return overall(subject.verdict for subject in self.subjects)

    def subject(self, name: str) -> SubjectReport | None:
        return next((subject for subject in self.subjects if subject.name == name), None)


def make_report(
    names: Sequence[str],
    records: Iterable[CaseRecord],
    *,
    seed: int,
    device: str,
    ended: str = "complete",
    checkpoint: str = "",
    packages: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> RunReport:
    """The report of a run from the records of its cases; a subject without any is part of it all the same.

    `packages` are the versions of what each subject needs, by the subject's name.
    """
    kept = list(records)
    subjects = []
    for name in names:
        own = tuple(record for record in kept if record.adapter == name)
        stopped = ended != "complete"
        verdict, said = judge_run(own, stopped=stopped), sentence(name, own, seed=seed, stopped=stopped)
        subjects.append(SubjectReport(name, verdict, said, own, packages.get(name, {})))
    return RunReport(
        tuple(subjects),
        seed=seed,
        device=device,
        ended=ended,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        kit=kit_version(),
        checkpoint=checkpoint,
    )


def to_document(report: RunReport) -> dict[str, Any]:
    """`report` as plain JSON values, as `schema.json` describes them."""
    document = {
        "kind": KIND,
        "schema": SCHEMA_VERSION,
        "kit": report.kit,
        "created": report.created,
        "seed": report.seed,
        "device": report.device,
        "checkpoint": report.checkpoint,
        "ended": report.ended,
        "verdict": report.verdict.value,
        "checks": {record.check: record.title for subject in report.subjects for record in subject.cases},
        "subjects": [
            {
                "name": subject.name,
                "verdict": subject.verdict.value,
                "sentence": subject.sentence,
                "packages": dict(subject.packages),
                "cases": [_case(record) for record in subject.cases],
            }
            for subject in report.subjects
        ],
    }
    if report.benchmarks:
        document["benchmarks"] = [row.to_json() for row in report.benchmarks]
    if report.history:
        document["history"] = [row.to_json() for row in report.history]
    return document


def _case(record: CaseRecord) -> dict[str, Any]:
    """A case without what is empty, and without its title, which is the check's: most of a run is cases that passed."""
    values = {"code": record.code, **asdict(record), "outcome": record.outcome.name}
    for name in ("adapter", "title", *(name for name in _MAY_BE_LEFT_OUT if not values[name])):
        del values[name]
    plain: dict[str, Any] = _finite(json.loads(json.dumps(values, default=str)))
    return plain


_MAY_BE_LEFT_OUT = ("message", "likely", "cure", "evidence", "known")


def _finite(value: Any) -> Any:
    """`value` without NaN and infinities, which JSON does not have: as the words `nan` and `inf`."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


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
                tuple(_record(subject["name"], case, found["checks"]) for case in subject["cases"]),
                _texts(subject["packages"]),
            )
            for subject in found["subjects"]
        )
        return RunReport(
            subjects,
            seed=found["seed"],
            device=found["device"],
            ended=found["ended"],
            created=found["created"],
            kit=found["kit"],
            checkpoint=found["checkpoint"],
            benchmarks=tuple(Benchmark.of(row) for row in found.get("benchmarks", ())),
            history=tuple(HistoryPoint.of(row) for row in found.get("history", ())),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ReportError(f"{where}: damaged: {type(error).__name__}: {error}") from error


def _record(adapter: str, case: Mapping[str, Any], checks: Mapping[str, str]) -> CaseRecord:
    values = {name: value for name, value in case.items() if name != "code"}
    values |= {"adapter": adapter, "title": checks[case["check"]], "outcome": Outcome[case["outcome"]]}
    record = CaseRecord(**values)
    for name, kind in _KINDS.items():
        if not isinstance(getattr(record, name), kind):
            raise TypeError(f"{name} of {record.check}[{record.case}] is {getattr(record, name)!r}")
    return record


def _texts(found: Any) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise TypeError(f"expected texts by name, found {found!r}")
    return found


_KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("adapter", "check", "title", "case", "message", "likely", "cure", "machine", "torch"), str),
    "repeat": str,
    "evidence": Mapping,
    "known": Mapping,
    "planned": int,
    "seconds": (int, float),
}


def read_report(path: Path) -> RunReport:
    """The report in the file. Raises :class:`ReportError` naming the file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error
    except (RecursionError, ValueError) as error:
        raise ReportError(f"{path}: not a whole JSON document: {error}") from error
    return from_document(found, str(path))


def write_report(report: RunReport, path: Path) -> None:
    """Write the JSON with one case a line, for people who look into it and for `grep`."""
    text = json.dumps(to_document(report), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    write_whole(path, text.replace('{"code":', '\n{"code":') + "\n")  # no string holds a quote that is not escaped
