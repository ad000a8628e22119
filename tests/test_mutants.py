"""Every check can fail, and fails where it must: a mutant breaks what it was made to, a correct subject nothing."""

from __future__ import annotations

import pytest

from conformance.catalogue import Level, load_catalogue
from conformance.outcome import Outcome
from tests.inner_run import run_suite
from tests.mutants import rfc
from tests.mutants.table import CORRECT, MUTANTS

FIRST = (
    *("loses_last_frame", "keeps_padded_rows", "trims_nominally", "trims_to_longest_row", "returns_static_output"),
    *("cuts_to_largest_bucket", "replays_in_outer_capture"),
)
"""One for each of the RFC's seven checks. The whole table runs in one process: `make selftest`."""


@pytest.mark.parametrize("attribute", FIRST)
def test_a_mutant_fails_exactly_its_checks_under_pytest(pytester: pytest.Pytester, attribute: str) -> None:
    records, exit_code = run_suite(pytester, f"--adapter=tests.mutants.rfc:{attribute}", "-k", "not CG003")
    failed = {record.check[:5] for record in records if record.outcome is Outcome.FAIL}
    others = {record.outcome for record in records if record.outcome is not Outcome.FAIL}
    assert failed == next(mutant.codes for mutant in MUTANTS if mutant.spec is getattr(rfc, attribute))
    assert others <= {Outcome.PASS, Outcome.NOT_APPLICABLE}
    assert exit_code == 1


@pytest.mark.parametrize("attribute", ["ReferenceSpec", "RaggedSpec"])
def test_a_correct_subject_fails_no_check_under_pytest(pytester: pytest.Pytester, attribute: str) -> None:
    records, exit_code = run_suite(pytester, f"--adapter=tests.mutants.base:{attribute}")
    assert {record.outcome for record in records} <= {Outcome.PASS, Outcome.NOT_APPLICABLE}
    assert {record.check[:5] for record in records} == {
        check.code for check in load_catalogue() if check.level is not Level.PERFORMANCE
    }
    assert exit_code == 0


def test_a_table_that_is_filled_once_is_no_side_effect_whichever_check_ran_before(pytester: pytest.Pytester) -> None:
    records, exit_code = run_suite(pytester, "--adapter=tests.mutants.addresses:MemoSpec", "-k", "CG307")
    assert [record.outcome for record in records] == [Outcome.PASS]
    assert exit_code == 0


def test_eager_is_measured_before_a_case_can_break_its_state(pytester: pytest.Pytester) -> None:
    """A pool that a reset replaced is no longer put back: measured then, eager varies and excuses the fault."""
    records, exit_code = run_suite(pytester, "--adapter=tests.mutants.slots:ResetMakesANewPool", "-k", "CG310")
    assert [record.outcome for record in records] == [Outcome.FAIL]
    assert exit_code == 1


def test_every_check_has_a_mutant() -> None:
    assert {check.code for check in load_catalogue()} == set().union(*(mutant.codes for mutant in MUTANTS))


def test_mutants_and_correct_subjects_have_names_of_their_own() -> None:
    names = [mutant.name for mutant in MUTANTS] + [spec.name for spec in CORRECT]
    assert len(set(names)) == len(names)


def test_every_mutant_names_its_public_case() -> None:
    assert [mutant.name for mutant in MUTANTS if "https://" not in (mutant.spec.__doc__ or "")] == []
