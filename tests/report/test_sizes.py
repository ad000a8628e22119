"""The map of sizes: what the cases of a subject tell about them."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.outcome import CaseRecord, Outcome
from conformance.report.document import make_report
from conformance.report.sizes import SizeMap, short, size_map


def made(*cases: tuple[str, str, Outcome, dict[str, Any]]) -> SizeMap | None:
    records = [
        CaseRecord("mine", f"{code}-x", "t", case, outcome, evidence=told) for code, case, outcome, told in cases
    ]
    return size_map(make_report(["mine"], records, seed=0, device="auto").subjects[0])


def test_each_size_has_its_bucket_and_the_greatest_error_of_all_checks() -> None:
    found = made(
        ("CG201", "b1-f8", Outcome.PASS, {"max_error": 0.0}),
        ("CG203", "b1-f5-in-b1-f8", Outcome.PASS, {"max_error": 1e-7}),
        ("CG205", "frames", Outcome.PASS, {"by_size": {"b1-f5": ["b1-f8", 3e-7], "b1-f6": ["b1-f8", 0.0]}}),
        ("CG401", "b1-f9", Outcome.PASS, {"max_error": 0.0}),
    )
    assert found is not None
    assert found.columns == (5, 6, 8, 9)
    [line] = found.lines
    assert [(cell.bucket, cell.text) for cell in line.cells if cell] == [
        ("b1-f8", "3e-7"),
        ("b1-f8", "0"),
        ("b1-f8", "0"),
        ("", "0"),
    ]
    assert [(span.bucket, span.width) for span in line.spans] == [("b1-f8", 3), ("", 1)]
    assert [cell.fills for cell in line.cells if cell] == [False, False, True, False]


def test_what_fails_says_by_how_much() -> None:
    found = made(
        ("CG203", "b1-f5-in-b1-f8", Outcome.FAIL, {"found_samples": 40, "expected_samples": 34}),
        ("CG203", "b1-f6-in-b1-f8", Outcome.FAIL, {"max_error": 0.25}),
        ("CG205", "frames", Outcome.FAIL, {"at": "b1-f7", "max_error": 0.5}),
        ("CG203", "b2-f6-in-b2-f8", Outcome.FAIL, {}),
    )
    assert found is not None
    assert [[cell.text if cell else "" for cell in line.cells] for line in found.lines] == [
        ["✕ +6", "✕ 0.25", "✕ 0.5"],
        ["", "✕", ""],
    ]
    assert found.broken == 4


def test_rows_are_the_other_axes_in_the_order_of_numbers() -> None:
    cases = [
        ("CG201", f"b{rows}-f{frames}", Outcome.PASS, {"max_error": 0.0}) for rows in (10, 2) for frames in (8, 16)
    ]
    found = made(*cases)
    assert found is not None
    assert [line.label for line in found.lines] == ["b2", "b10"]
    assert found.axis == "f"
    single = made(("CG201", "f8", Outcome.PASS, {"max_error": 0.0}))
    assert single is not None
    assert [line.label for line in single.lines] == [""]


def test_cases_that_tell_of_no_size_make_no_map() -> None:
    assert made(("CG301", "b1-f8-then-same", Outcome.PASS, {}), ("CG204", "b2-f8-rising", Outcome.PASS, {})) is None


@pytest.mark.parametrize(
    ("error", "text"), [(None, "·"), (0.0, "0"), (2.98e-8, "3e-8"), (0.0034, "3e-3"), (0.24, "0.24"), (12.0, "12")]
)
def test_an_error_is_told_in_few_characters(error: float | None, text: str) -> None:
    assert short(error) == text
