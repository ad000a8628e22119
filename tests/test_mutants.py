"""Every check can fail, and fails alone: each mutant breaks one promise, a correct subject none."""

from __future__ import annotations

import pytest

from conformance.catalogue import load_catalogue
from conformance.outcome import CaseRecord, Outcome, record_among
from tests.mutants import first


def run_suite(pytester: pytest.Pytester, attribute: str) -> tuple[list[CaseRecord], int]:
    """The records and exit code of `pytest --adapter=tests.mutants.first:ATTRIBUTE`, run by the real plugin."""
    run = pytester.inline_run(f"--adapter=tests.mutants.first:{attribute}", "-p", "no:cacheprovider")
    reports = [report for report in run.getreports("pytest_runtest_logreport") if report.when == "call"]
    records = [record_among(report.user_properties) for report in reports]
    return [record for record in records if record is not None], int(run.ret)


@pytest.mark.parametrize("attribute", first.CORRECT)
def test_a_correct_subject_fails_no_check(pytester: pytest.Pytester, attribute: str) -> None:
    records, exit_code = run_suite(pytester, attribute)
    assert {record.outcome for record in records} == {Outcome.PASS}
    assert {record.check[:5] for record in records} == {check.code for check in load_catalogue()}
    assert exit_code == 0


@pytest.mark.parametrize("attribute", first.MUST_FAIL)
def test_a_mutant_fails_exactly_its_checks(pytester: pytest.Pytester, attribute: str) -> None:
    records, exit_code = run_suite(pytester, attribute)
    failed = {record.check[:5] for record in records if record.outcome is Outcome.FAIL}
    others = {record.outcome for record in records if record.outcome is not Outcome.FAIL}
    assert failed == first.MUST_FAIL[attribute]
    assert others == {Outcome.PASS}
    assert exit_code == 1


def test_every_check_has_a_mutant() -> None:
    assert {check.code for check in load_catalogue()} == set().union(*first.MUST_FAIL.values())
