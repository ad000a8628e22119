"""What a migration changes, as `audiograph compare` says it, and the reports that it reads."""

from __future__ import annotations

import importlib.metadata
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from conformance import cli
from conformance.outcome import CaseRecord, Outcome
from conformance.report.compare import Change, compare, lines
from conformance.report.document import (
    SCHEMA,
    RunReport,
    SubjectReport,
    from_document,
    make_report,
    read_report,
    to_document,
    write_report,
)
from conformance.report.files import ReportError, require_writable

PASS, FAIL, NA, XFAIL = Outcome.PASS, Outcome.FAIL, Outcome.NOT_APPLICABLE, Outcome.XFAIL


def record(check: str, outcome: Outcome, case: str = "", **fields: Any) -> CaseRecord:
    return CaseRecord("mine", check, "a promise", case, outcome, planned=9, **fields)


def report(*records: CaseRecord) -> RunReport:
    return make_report(["mine"], records, seed=0, device="emulated")


def subject(*records: CaseRecord) -> SubjectReport:
    return report(*records).subjects[0]


def changes(before: SubjectReport, after: SubjectReport) -> dict[str, Change]:
    return {f"{found.check}{found.case}": found.change for found in compare(before, after).differences}


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (PASS, PASS, Change.STILL_PASSING),
        (PASS, FAIL, Change.NEWLY_FAILING),
        (PASS, XFAIL, Change.NEWLY_FAILING),
        (PASS, Outcome.ERROR, Change.NEWLY_FAILING),
        (PASS, NA, Change.NO_LONGER_JUDGED),
        (PASS, None, Change.NO_LONGER_JUDGED),
        (FAIL, PASS, Change.NEWLY_PASSING),
        (XFAIL, PASS, Change.NEWLY_PASSING),
        (FAIL, FAIL, Change.STILL_FAILING),
        (FAIL, NA, Change.STILL_FAILING),
        (NA, FAIL, Change.NOT_COMPARED),
        (None, FAIL, Change.NOT_COMPARED),
    ],
)
def test_what_becomes_of_a_check(before: Outcome | None, after: Outcome | None, change: Change) -> None:
    one, other = ([record("CG201-x", outcome)] if outcome else [] for outcome in (before, after))
    found = compare(subject(*one), subject(*other))
    assert [difference.change for difference in found.differences] == [change]
    assert found.regressed == (change is Change.NEWLY_FAILING)


def test_cases_with_other_names_are_compared_as_a_check() -> None:
    before = subject(record("CG201-x", PASS, "f4"), record("CG201-x", PASS, "f8"))
    after = subject(record("CG201-x", PASS, "b1-f4"), record("CG201-x", FAIL, "b2-f4"))
    assert changes(before, after) == {"CG201-x": Change.NEWLY_FAILING}


def test_a_case_that_fails_anew_in_a_failing_check_is_a_regression() -> None:
    before = subject(record("CG201-x", PASS, "f4"), record("CG201-x", FAIL, "f8"))
    after = subject(record("CG201-x", FAIL, "f4"), record("CG201-x", PASS, "f8"))
    assert changes(before, after) == {"CG201-x": Change.STILL_FAILING, "CG201-xf4": Change.NEWLY_FAILING}
    assert compare(before, after).regressed


def test_figures_of_passing_checks_are_shown_and_headlines_first() -> None:
    def made(bytes_: int, share: float, sizes: int) -> SubjectReport:
        return subject(
            record("CG501-bucket-bytes", PASS, evidence={"all_buckets": {"live": bytes_, "taken": bytes_}}),
            record("CG407-hit-rate", PASS, evidence={"hit_rate": 1.0, "padded_share": share, "sizes": sizes}),
        )

    text = "\n".join(lines(compare(made(100, 0.5, 3), made(50, 0.25, 4))))
    assert "padding waste (padded ÷ computed): 0.5 → 0.25" in text
    assert "bytes of live tensors, all buckets: 100 → 50" in text
    assert "sizes: 3 → 4" in text
    assert text.endswith("mine → mine: 0 newly passing, 0 newly failing, 0 still failing")


def test_a_report_comes_back_as_it_was_written(tmp_path: Path) -> None:
    made = report(
        record("CG201-x", PASS, "f4", evidence={"error": 0.5}),
        record("CG203-y", FAIL, message="wrong", likely="l", cure="c", seconds=0.25, repeat="pytest -k x"),
    )
    write_report(made, tmp_path / "report.json")
    assert read_report(tmp_path / "report.json") == made


def test_the_schema_describes_what_is_written() -> None:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    document = to_document(report(record("CG201-x", PASS, "f4", evidence={"sizes": (1, 2)}), record("CG203-y", FAIL)))
    jsonschema.validate(json.loads(json.dumps(document)), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "verdict": "FINE"}, schema)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a whole JSON document"),
        ('{"kind": "audiograph.conformance", "schema": 2', "not a whole JSON document"),
        ("[]", "expected a report of `pytest --adapter=NAME --conformance-json=FILE`"),
        ('{"kind": "audiograph.conformance", "schema": 99}', "schema version 99; this audiograph reads 2"),
        ('{"kind": "audiograph.conformance", "schema": 2}', "damaged: KeyError: 'subjects'"),
    ],
)
def test_a_report_that_is_none_is_one_line(
    tmp_path: Path, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    assert cli.main(["compare", str(path), str(path)]) == cli.USAGE_ERROR
    said = capsys.readouterr().err
    assert said.startswith(f"ERROR: {path}: ")
    assert words in said
    assert said.count("\n") == 1


def test_a_missing_report_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="No such file"):
        read_report(tmp_path / "none.json")


def test_a_report_of_two_adapters_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    write_report(make_report(["one", "two"], [], seed=0, device="auto"), path)
    assert cli.main(["compare", str(path), str(path)]) == cli.USAGE_ERROR
    assert "expected a report of one adapter, found one, two" in capsys.readouterr().err


def test_the_gate_is_red_for_a_regression_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    write_report(report(record("CG201-x", PASS)), good)
    write_report(report(record("CG201-x", FAIL, message="wrong from sample 0")), bad)
    assert cli.main(["compare", str(good), str(bad)]) == 1
    assert "newly failing: 1" in capsys.readouterr().out
    assert cli.main(["compare", str(bad), str(good)]) == 0
    assert "was: wrong from sample 0" in capsys.readouterr().out


def test_where_a_report_cannot_be_written_is_known_before_the_run(tmp_path: Path) -> None:
    require_writable(tmp_path / "new.json")
    for path, words in [(tmp_path, "is a folder"), (tmp_path / "no" / "new.json", "there is no folder")]:
        with pytest.raises(ReportError, match=words):
            require_writable(path)


def test_a_document_keeps_what_a_later_reader_needs() -> None:
    made = report(replace(record("CG201-x", PASS), machine="emulated CUDA", torch="2.13.0"))
    assert from_document(to_document(made), "here").subjects[0].cases[0].machine == "emulated CUDA"


def test_a_checkout_that_is_not_installed_reports_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> str:
        raise importlib.metadata.PackageNotFoundError("audiograph")

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert report(record("CG201-x", PASS)).kit == "not installed"
