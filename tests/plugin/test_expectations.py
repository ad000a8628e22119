"""Known failures: what an entry excuses, and everything that makes the file untrustworthy."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from conformance.errors import ConformanceError
from conformance.expectations import load_expectations, to_toml, whole_checks
from conformance.outcome import Outcome
from tests.inner_run import run_suite

TODAY = datetime.date(2026, 12, 1)
CASES = [("CG201", "b1-f4"), ("CG203", "b1-f5-in-b1-f8"), ("CG203", "b1-f7-in-b1-f8")]
ENTRY = {
    "code": '"CG203"',
    "case": '"b1-f5-in-b1-f8"',
    "reason": '"surplus samples at the end of each chunk"',
    "issue": '"https://github.com/vllm-project/vllm-omni/issues/4466"',
    "expires": "2027-06-30",
}
SPEC = """
from conformance.traces import Trace
from tests.mutants.rfc import trims_nominally


class Known(trims_nominally):
    name = "known"
    buckets = ({"batch": 1, "frames": 4},)
    trace = Trace.of({"batch": 1, "frames": 4})
"""


def entry(**changes: str | None) -> str:
    fields = {**ENTRY, **changes}
    return "[[known]]\n" + "".join(f"{name} = {value}\n" for name, value in fields.items() if value is not None)


def load(tmp_path: Path, text: str) -> object:
    path = tmp_path / "expectations.toml"
    path.write_text(text)
    return load_expectations(path, CASES, TODAY)


def test_no_file_is_no_entry(tmp_path: Path) -> None:
    assert load_expectations(tmp_path / "expectations.toml", CASES, TODAY) == ()


def test_an_entry_covers_its_case_alone_and_one_without_a_case_covers_all(tmp_path: Path) -> None:
    (one,) = load(tmp_path, entry())  # type: ignore[misc]
    assert [one.covers(*case) for case in CASES] == [False, True, False]
    (every,) = load(tmp_path, entry(case=None))  # type: ignore[misc]
    assert [every.covers(*case) for case in CASES] == [False, True, True]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[[known]]\ncode = \n", 2, "not TOML"),
        ("[known]\n", 1, r"expected \[\[known\]\] tables alone"),
        ("[[other]]\n", 1, r"expected \[\[known\]\] tables alone"),
        (entry(code='"CG999"'), 1, "no check 'CG999'"),
        (entry(code=None), 1, "`code` is missing"),
        (entry(case='"b9-f9"'), 1, "matches no case; the cases are b1-f5-in-b1-f8, b1-f7-in-b1-f8"),
        (entry(reason=None), 1, "`reason` is missing"),
        (entry(reason='" "'), 1, "`reason` is missing or empty"),
        (entry(reason='"TODO"'), 1, "still TODO"),
        (entry(issue='"see chat"'), 1, "must be the URL"),
        (entry(expires=None), 1, "`expires` must be a date"),
        (entry(expires='"soon"'), 1, "`expires` must be a date"),
        (entry(expires="2026-11-30"), 1, "expired on 2026-11-30"),
        (entry(since="2026-01-01"), 1, "unknown field 'since'"),
        (entry() + "\n" + entry(), 8, "declared already in line 1"),
        (entry() + "\n" + entry(case=None), 8, "declared already in line 1"),
    ],
)
def test_a_file_that_cannot_be_trusted_is_named_with_its_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    with pytest.raises(ConformanceError, match=rf"expectations\.toml:{line}: .*{words}"):
        load(tmp_path, text)


def test_written_entries_are_refused_until_someone_gives_a_reason(tmp_path: Path) -> None:
    text = to_toml([("CG201", "b1-f4")], datetime.date(2027, 3, 1))
    with pytest.raises(ConformanceError, match="still TODO"):
        load(tmp_path, text)
    (known,) = load(tmp_path, text.replace("TODO", "a click at each chunk's end"))  # type: ignore[misc]
    assert (known.code, known.case, known.expires) == ("CG201", "b1-f4", datetime.date(2027, 3, 1))


@pytest.fixture
def known(pytester: pytest.Pytester) -> str:
    pytester.makepyfile(spec=SPEC)
    return f"--adapter={pytester.path / 'spec.py'}"


def run(pytester: pytest.Pytester, *arguments: str) -> tuple[list[Outcome], int]:
    records, exit_code = run_suite(pytester, "-k", "CG203", *arguments)
    return [record.outcome for record in records], exit_code


def declare(pytester: pytest.Pytester, **changes: str | None) -> None:
    (pytester.path / "expectations.toml").write_text(entry(expires="2999-01-01", **changes))


def test_a_known_failure_is_reported_as_one_and_still_not_conformant(pytester: pytest.Pytester, known: str) -> None:
    declare(pytester, case=None)
    outcomes, exit_code = run(pytester, known)
    assert set(outcomes) == {Outcome.XFAIL}
    assert exit_code == 1
    assert run(pytester, known, "--conformance-allow-known")[1] == 0


def test_a_failure_that_no_entry_covers_is_never_allowed(pytester: pytest.Pytester, known: str) -> None:
    declare(pytester, case='"b1-f1-in-b1-f4"')
    outcomes, exit_code = run(pytester, known, "--conformance-allow-known")
    assert Outcome.XFAIL in outcomes
    assert Outcome.FAIL in outcomes
    assert exit_code == 1


def test_an_entry_that_passes_counts_as_a_failure(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(spec=SPEC.replace("trims_nominally", "ReferenceSpec").replace("mutants.rfc", "mutants.base"))
    declare(pytester, case='"b1-f1-in-b1-f4"')
    outcomes, exit_code = run(pytester, f"--adapter={pytester.path / 'spec.py'}", "--conformance-allow-known")
    assert outcomes.count(Outcome.XPASS) == 1
    assert exit_code == 1


def test_a_bad_file_stops_the_run_before_any_check(pytester: pytest.Pytester, known: str) -> None:
    declare(pytester, reason='"TODO"')
    result = pytester.runpytest_inprocess("-p", "conformance.plugin", known)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: *expectations.toml:1: the reason is still TODO*"])


def test_a_check_of_which_every_case_fails_is_one_entry() -> None:
    every = [("CG201", ""), ("CG203", "f5"), ("CG203", "f7"), ("CG402", "f4"), ("CG402", "f8")]
    failures = [("CG201", ""), ("CG203", "f5"), ("CG402", "f4"), ("CG402", "f8")]
    assert whole_checks(failures, every) == [("CG201", None), ("CG203", "f5"), ("CG402", None)]
    text = to_toml(whole_checks(failures, every), datetime.date(2027, 3, 1))
    assert text.count("[[known]]") == 3
    assert text.count("case = ") == 1
