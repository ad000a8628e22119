"""The catalogue holds on the reference runner in every configuration that changes how it captures."""

from __future__ import annotations

import pytest

from conformance.outcome import Outcome
from tests.inner_run import run_suite

LAZY = ("--graph-config", "lazy=true", "--graph-config", "max_lazy_graphs=6")


@pytest.mark.parametrize(
    "options",
    [
        ("--adapter=reference", *LAZY),
        ("--adapter=reference", "--graph-config", "compile=true"),
        ("--adapter=reference", "--graph-config", "memory_limit_bytes=10000000"),
        ("--adapter=adapters/reference/limited.py",),
    ],
    ids=["lazy", "compiled", "within-its-limit", "limited"],
)
def test_the_reference_adapter_conforms_in_each_configuration(
    pytester: pytest.Pytester, request: pytest.FixtureRequest, options: tuple[str, ...]
) -> None:
    root = request.config.rootpath
    given = [option.replace("adapters/", f"{root}/adapters/") for option in options]
    records, exit_code = run_suite(pytester, *given, "--graph-device=emulated")
    assert [f"{record.id}: {record.message}" for record in records if record.outcome.breaks] == []
    assert {record.outcome for record in records} <= {Outcome.PASS, Outcome.NOT_APPLICABLE}
    assert exit_code == 0


def test_the_first_calls_of_a_lazy_runner_are_checked_and_those_of_another_are_not(pytester: pytest.Pytester) -> None:
    for options, outcome in ((LAZY, Outcome.PASS), ((), Outcome.NOT_APPLICABLE)):
        records, _ = run_suite(pytester, "--adapter=reference", *options, "-k", "CG106")
        assert {record.outcome for record in records} == {outcome}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("lazzy=true", "did you mean 'lazy'?"),
        ("lazy", "expected KEY=VALUE"),
        ("cudagraph_mode=FUL", "cudagraph_mode must be one of NONE"),
        ("lazy=true", "max_lazy_graphs must be an int of at least 1"),
    ],
)
def test_a_wrong_configuration_stops_the_run_before_anything_is_built(
    pytester: pytest.Pytester, given: str, said: str
) -> None:
    result = pytester.runpytest_subprocess("--adapter=reference", "--graph-config", given)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in result.stderr.str()


def test_a_bound_below_the_number_of_buckets_is_refused(pytester: pytest.Pytester) -> None:
    few = ("--graph-config", "lazy=true", "--graph-config", "max_lazy_graphs=2")
    result = pytester.runpytest_subprocess("--adapter=reference", *few)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "less than the 6 buckets of 'reference'" in result.stderr.str()


def test_a_limit_that_leaves_out_what_the_spec_counts_on_says_what_to_move(pytester: pytest.Pytester) -> None:
    records, _ = run_suite(pytester, "--adapter=reference", "--graph-config", "memory_limit_bytes=5000", "-k", "CG101")
    assert "move b4-f16" in records[0].message
