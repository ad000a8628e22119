"""What reports for people are made of: cells, causes, the badge."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.outcome import CaseRecord, Outcome
from conformance.report.badge import badge, write_badge
from conformance.report.document import RunReport, make_report
from conformance.report.markdown import markdown
from conformance.report.page import page
from conformance.report.summary import State, causes, cell_of, headline
from conformance.verdict import Verdict

PASS, FAIL, APART, KNOWN = Outcome.PASS, Outcome.FAIL, Outcome.NOT_APPLICABLE, Outcome.XFAIL


def record(check: str, outcome: Outcome, case: str = "", **fields: Any) -> CaseRecord:
    return CaseRecord("mine", check, "a promise", case, outcome, **{"planned": 2, **fields})


def run(*records: CaseRecord, ended: str = "complete") -> RunReport:
    return make_report(["mine"], records, seed=0, device="emulated", ended=ended)


@pytest.mark.parametrize(
    ("outcomes", "state", "passed", "judged"),
    [
        ([PASS, PASS], State.PASS, 2, 2),
        ([PASS, APART], State.PASS, 1, 1),
        ([APART], State.APART, 0, 0),
        ([PASS, FAIL], State.FAIL, 1, 2),
        ([FAIL, Outcome.ERROR], State.ERROR, 0, 2),
        ([PASS, KNOWN], State.KNOWN, 1, 2),
        ([PASS, Outcome.BLOCKED], State.OPEN, 1, 2),
        ([], State.NOT_RUN, 0, 0),
    ],
)
def test_a_cell_shows_the_worst_of_what_applies(
    outcomes: list[Outcome], state: State, passed: int, judged: int
) -> None:
    cell = cell_of([record("CG201-x", outcome) for outcome in outcomes])
    assert (cell.state, cell.passed, cell.judged) == (state, passed, judged)


def test_every_state_has_a_sign_of_its_own() -> None:
    assert len({state.symbol for state in State}) == len(State)


def test_failures_that_say_the_same_are_one_cause_told_by_the_plainest_check() -> None:
    same = {"likely": "the trim", "cure": "trim otherwise"}
    found = causes(
        run(
            record("CG104-failed", FAIL, "one", message="kept 6", **same),
            record("CG203-padded", FAIL, "b1-f5", message="kept 6", evidence={"waveform": {"samples": 40}}, **same),
            record("CG203-padded", FAIL, "b1-f7", message="kept 6", evidence={"waveform": {"samples": 56}}, **same),
            record("CG301-alias", FAIL, "x", likely="a clone is missing"),
            record("CG501-bytes", PASS),
        )
    )
    assert [cause.shown.check for cause in found] == ["CG203-padded", "CG301-alias"]
    assert found[0].shown.case == "b1-f7"
    assert found[0].checks == ("CG104-failed", "CG203-padded")
    assert [other.case for other in found[0].others] == ["one", "b1-f5"]


def test_known_failures_come_after_new_ones_and_build_errors_first() -> None:
    found = causes(
        run(
            record("CG201-x", KNOWN, message="since long"),
            record("CG202-x", FAIL, message="new"),
            record("CG203-x", Outcome.ERROR, message="cannot be built"),
            record("CG204-x", Outcome.ERROR, message="cannot be built"),
        )
    )
    assert [(cause.shown.message, len(cause.records)) for cause in found] == [
        ("cannot be built", 2),
        ("new", 1),
        ("since long", 1),
    ]


@pytest.mark.parametrize(
    ("outcomes", "ended", "message", "color"),
    [
        ([PASS, PASS], "complete", "CONFORMANT 2/2", "brightgreen"),
        ([PASS, APART], "complete", "CONFORMANT 1/1", "brightgreen"),
        ([PASS, FAIL], "complete", "NOT CONFORMANT 1/2", "red"),
        ([PASS, KNOWN], "complete", "NOT CONFORMANT 1/2", "orange"),
        ([KNOWN, Outcome.BLOCKED], "complete", "NOT CONFORMANT 0/2", "red"),
        ([PASS, Outcome.BLOCKED], "complete", "INCONCLUSIVE 1/2", "yellow"),
        ([PASS], "complete", "INCOMPLETE 1/2", "lightgrey"),
        ([PASS, PASS], "interrupted", "INCOMPLETE 2/2", "lightgrey"),
        ([FAIL], "interrupted", "NOT CONFORMANT 0/2", "red"),
        ([], "complete", "INCOMPLETE 0/0", "lightgrey"),
    ],
)
def test_the_badge_says_the_verdict_and_is_not_fooled_by_a_part(
    outcomes: list[Outcome], ended: str, message: str, color: str
) -> None:
    cases = [record(f"CG20{number}-x", outcome) for number, outcome in enumerate(outcomes, 1)]
    made = badge(run(*cases, ended=ended))
    assert made == {"schemaVersion": 1, "label": "audiograph", "message": message, "color": color}


def test_the_badge_is_a_file_of_json(tmp_path: Path) -> None:
    write_badge(run(record("CG201-x", PASS), record("CG202-x", PASS)), tmp_path / "badge.json")
    assert json.loads((tmp_path / "badge.json").read_text())["message"] == "CONFORMANT 2/2"


def test_the_headline_says_how_much_and_what_is_missing() -> None:
    whole = run(record("CG201-x", PASS), record("CG202-x", FAIL))
    assert headline(whole) == "mine does not conform. 1 case of 1 check fails. 1 case passed."
    known = record("CG202-x", Outcome.XFAIL, known={"reason": "it pads", "issue": "", "until": ""})
    assert "1 case of 1 check fails, all of them known failures. " in headline(run(record("CG201-x", PASS), known))
    both = run(record("CG201-x", FAIL), known)
    assert "mine does not conform. 2 cases of 2 checks fail, 1 of them known failures. 0 cases" in headline(both)
    part = run(record("CG201-x", PASS))
    assert headline(part) == "mine conforms. 1 case passed. Not every case was selected."
    assert "ended before its last case: interrupted" in headline(replace(whole, ended="interrupted"))


@pytest.mark.parametrize(
    ("outcomes", "ended", "verdict"),
    [
        ([PASS], "complete", Verdict.CONFORMANT),  # a selection of cases, which says so
        ([PASS], "interrupted", Verdict.INCONCLUSIVE),
        ([PASS, PASS], "interrupted", Verdict.CONFORMANT),  # after the last case
        ([FAIL], "interrupted", Verdict.NOT_CONFORMANT),
        ([], "interrupted", Verdict.INCONCLUSIVE),
    ],
)
def test_a_run_that_ended_early_has_not_shown_that_anything_conforms(
    outcomes: list[Outcome], ended: str, verdict: Verdict
) -> None:
    made = run(*(record(f"CG20{number}-x", outcome) for number, outcome in enumerate(outcomes, 1)), ended=ended)
    assert (made.verdict, made.subjects[0].verdict) == (verdict, verdict)
    assert f": {verdict.value}" in made.subjects[0].sentence
    title = page(made).partition("<h1>")[2].partition("</h1>")[0]
    assert ("## ✅" in markdown(made), "✓" in title) == (verdict is Verdict.CONFORMANT,) * 2
