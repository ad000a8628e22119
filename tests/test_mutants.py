"""Every check can fail, and fails alone: each mutant breaks one promise, a correct subject none."""

from __future__ import annotations

import pytest

from conformance.catalogue import load_catalogue
from conformance.outcome import Outcome
from tests.inner_run import run_suite
from tests.mutants import first


@pytest.mark.parametrize("attribute", first.CORRECT)
def test_a_correct_subject_fails_no_check(pytester: pytest.Pytester, attribute: str) -> None:
    records, exit_code = run_suite(pytester, f"--adapter=tests.mutants.first:{attribute}")
    assert {record.outcome for record in records} == {Outcome.PASS}
    assert {record.check[:5] for record in records} == {check.code for check in load_catalogue()}
    assert exit_code == 0


@pytest.mark.parametrize("attribute", first.MUST_FAIL)
def test_a_mutant_fails_exactly_its_checks(pytester: pytest.Pytester, attribute: str) -> None:
    records, exit_code = run_suite(pytester, f"--adapter=tests.mutants.first:{attribute}")
    failed = {record.check[:5] for record in records if record.outcome is Outcome.FAIL}
    others = {record.outcome for record in records if record.outcome is not Outcome.FAIL}
    assert failed == first.MUST_FAIL[attribute]
    assert others == {Outcome.PASS}
    assert exit_code == 1


def test_every_check_has_a_mutant() -> None:
    assert {check.code for check in load_catalogue()} == set().union(*first.MUST_FAIL.values())
