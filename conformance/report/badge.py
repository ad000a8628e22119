"""The badge of a run: the JSON that a shields.io endpoint badge is drawn from (https://shields.io/badges/endpoint-badge)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from conformance.outcome import Outcome
from conformance.report.document import RunReport
from conformance.report.files import write_whole
from conformance.report.summary import is_whole, planned
from conformance.verdict import Verdict, judge_run, overall


def badge(report: RunReport) -> dict[str, Any]:
    """`CONFORMANT 235/235`: the verdict, the cases that passed, and those that apply.

    A run of a part of the cases proves nothing about the whole: it is INCOMPLETE, unless something failed in it.
    """
    records = [record for subject in report.subjects for record in subject.cases]
    passed = sum(record.outcome is Outcome.PASS for record in records)
    apart = sum(record.outcome is Outcome.NOT_APPLICABLE for record in records)
    whole = sum(map(planned, report.subjects)) - apart
    word = report.verdict.value
    color = {Verdict.CONFORMANT: "brightgreen", Verdict.NOT_CONFORMANT: "red", Verdict.INCONCLUSIVE: "yellow"}[
        report.verdict
    ]
    if report.verdict is not Verdict.NOT_CONFORMANT and not is_whole(report):
        word, color = "INCOMPLETE", "lightgrey"
    elif report.verdict is Verdict.NOT_CONFORMANT:
        stopped = report.ended != "complete"
        excused = overall(judge_run(one.cases, stopped=stopped, excuse_known=True) for one in report.subjects)
        color = "orange" if excused is Verdict.CONFORMANT else color
    return {"schemaVersion": 1, "label": "audiograph", "message": f"{word} {passed}/{whole}", "color": color}


def write_badge(report: RunReport, path: Path) -> None:
    write_whole(path, json.dumps(badge(report)) + "\n")
