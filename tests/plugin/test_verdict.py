"""From outcomes to a verdict, an exit code and a sentence."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from conformance.outcome import CaseRecord, Outcome, case_id, record_of
from conformance.verdict import Verdict, judge, overall, overall_sentence, sentence, worse

PASS, FAIL, ERROR = Outcome.PASS, Outcome.FAIL, Outcome.ERROR
APART, BLOCKED, OPEN = Outcome.NOT_APPLICABLE, Outcome.BLOCKED, Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("outcomes", "verdict", "exit_code"),
    [
        ([PASS], Verdict.CONFORMANT, 0),
        ([PASS, APART], Verdict.CONFORMANT, 0),
        ([], Verdict.INCONCLUSIVE, 6),
        ([APART], Verdict.INCONCLUSIVE, 6),
        ([BLOCKED, BLOCKED], Verdict.INCONCLUSIVE, 6),
        ([PASS, BLOCKED], Verdict.INCONCLUSIVE, 6),
        ([PASS, OPEN], Verdict.INCONCLUSIVE, 6),
        ([PASS, FAIL], Verdict.NOT_CONFORMANT, 1),
        ([PASS, ERROR], Verdict.NOT_CONFORMANT, 1),
        ([FAIL, BLOCKED, OPEN, APART], Verdict.NOT_CONFORMANT, 1),
        ([ERROR], Verdict.NOT_CONFORMANT, 1),
    ],
)
def test_the_verdict_on_one_adapter(outcomes: list[Outcome], verdict: Verdict, exit_code: int) -> None:
    for order in itertools.permutations(outcomes):
        assert judge(order) is verdict
    assert verdict.exit_code == exit_code


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], Verdict.INCONCLUSIVE),
        ([Verdict.CONFORMANT], Verdict.CONFORMANT),
        ([Verdict.CONFORMANT, Verdict.INCONCLUSIVE], Verdict.INCONCLUSIVE),
        ([Verdict.INCONCLUSIVE, Verdict.NOT_CONFORMANT, Verdict.CONFORMANT], Verdict.NOT_CONFORMANT),
    ],
)
def test_the_worst_adapter_makes_the_run(verdicts: list[Verdict], expected: Verdict) -> None:
    assert overall(verdicts) is expected


def record(outcome: Outcome, case: str = "b1", planned: int = 1) -> CaseRecord:
    return CaseRecord("toy", "CG201-exact", "it holds", case, outcome, machine="GPU", torch="2.13.0", planned=planned)


@pytest.mark.parametrize(
    ("records", "line"),
    [
        ([record(PASS)], "toy: CONFORMANT — 1 passed, 0 failed; GPU, torch 2.13.0, seed 4"),
        (
            [record(FAIL, planned=3), record(APART, planned=3)],
            "toy: NOT CONFORMANT in the 2 of 3 cases selected — 0 passed, 1 failed, 1 not applicable; "
            "GPU, torch 2.13.0, seed 4",
        ),
        (
            [record(ERROR, planned=2), record(ERROR, planned=2)],
            "toy: NOT CONFORMANT — 0 passed, 0 failed, 2 errors; GPU, torch 2.13.0, seed 4",
        ),
        ([], "toy: INCONCLUSIVE — no case was selected; seed 4"),
    ],
)
def test_the_sentence(records: list[CaseRecord], line: str) -> None:
    assert sentence("toy", records, seed=4) == line
    assert sentence("toy", records[::-1], seed=4) == line


def test_a_stopped_run_did_not_select_its_part() -> None:
    assert "in the 1 of 9 cases run" in sentence("toy", [record(FAIL, planned=9)], seed=0, stopped=True)


def test_several_adapters_get_one_line_more() -> None:
    verdicts = {"one": Verdict.CONFORMANT, "two": Verdict.INCONCLUSIVE}
    assert overall_sentence(verdicts) == "2 adapters: INCONCLUSIVE — one CONFORMANT, two INCONCLUSIVE"


@pytest.mark.parametrize("later", [FAIL, ERROR, BLOCKED])
def test_a_case_that_reports_twice_counts_at_its_worst(later: Outcome) -> None:
    assert worse(record(PASS), record(later)).outcome is later
    assert worse(record(later), record(PASS)).outcome is later


def test_a_record_survives_the_way_through_a_report() -> None:
    original = CaseRecord("a", "CG203-padded", "title", "b1-f5", FAIL, "found", "likely", "cure", {"worst": [0.5, 3]})
    assert record_of(SimpleNamespace(conformance_record=original.to_json())) == original
    assert record_of(SimpleNamespace()) is None


def test_ids() -> None:
    assert case_id("moss_tts", "CG201-exact-bucket", "b1-f8") == "moss_tts/CG201-exact-bucket[b1-f8]"
    assert case_id("moss_tts", "CG001-manifest", "") == "moss_tts/CG001-manifest"
