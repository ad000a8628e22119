"""The picture's record: what it keeps of two waveforms, and how small it stays."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from conformance.waveform import POINTS, waveform
from tests.inner_run import run_suite


def made(found: torch.Tensor, expected: torch.Tensor, wrong: tuple[int, int], **edges: int) -> dict[str, Any]:
    record: dict[str, Any] = waveform(found, expected, wrong, sample_rate=16_000, edges=edges)["waveform"]
    return record


def test_a_short_row_is_shown_whole_sample_by_sample() -> None:
    expected = torch.linspace(-1, 1, 40)[None]
    found = expected.clone()
    found[0, 34] += 0.5
    record = made(found, expected, (34, 34), actual=40, bucket=58)
    assert (record["start"], record["step"], record["samples"]) == (0, 1, 40)
    assert record["wrong"] == [34, 34]
    assert record["edges"] == {"actual": 40, "bucket": 58}
    assert [index for index, value in enumerate(record["difference"]) if value] == [34]
    assert record["expected"][0] == -1.0
    assert record["found"][34] == pytest.approx(record["expected"][34] + 0.5, abs=1e-4)


@pytest.mark.parametrize("at", [0, 77_777, 191_999])
def test_one_wrong_sample_among_many_does_not_vanish(at: int) -> None:
    """The whole is shown when the fault spans it; one more click must still be seen among 192 000 samples."""
    expected = torch.zeros(192_000)
    found = expected.clone()
    found[at] = 0.9
    record = made(found, expected, (0, 191_999))
    assert (record["start"], record["samples"]) == (0, 192_000)
    assert max(value or 0 for value in record["found"]) == pytest.approx(0.9)
    assert max(record["difference"]) == pytest.approx(0.9)
    assert max(map(len, (record["found"], record["expected"], record["difference"]))) <= POINTS


def test_a_short_fault_of_a_long_row_is_shown_close() -> None:
    expected = torch.sin(torch.arange(48_000) / 20)
    found = expected.clone()
    found[20_000:20_009] += 0.1
    record = made(found, expected, (20_000, 20_008))
    assert record["step"] == 1
    assert record["start"] < 20_000 < 20_008 < record["start"] + len(record["found"]) < 21_000


def test_surplus_counts_as_difference_by_its_own_loudness() -> None:
    found = torch.full((1, 40), 0.25)
    record = made(found, found[:, :34], (34, 39))
    assert (len(record["found"]), len(record["expected"])) == (40, 34)
    assert record["difference"] == [0.0] * 34 + [0.25] * 6


def test_of_several_channels_the_worst_is_shown() -> None:
    expected = torch.zeros(2, 10)
    found = expected.clone()
    found[1, 3] = 1.0
    assert made(found, expected, (3, 3))["found"][3] == 1.0


def test_what_is_not_finite_is_a_gap_and_plain_json() -> None:
    expected = torch.zeros(1, 1000)
    found = expected.clone()
    found[0, 500], found[0, 501] = math.nan, math.inf
    record = made(found, expected, (0, 999))
    assert None in record["found"]
    assert None in record["difference"]
    assert "NaN" not in json.dumps(record)
    assert "Infinity" not in json.dumps(record)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (torch.zeros(4, dtype=torch.long), torch.zeros(4, dtype=torch.long)),
        (torch.zeros(2, 4), torch.zeros(3, 4)),
        (torch.zeros(1, 4), torch.zeros(1, 0)),
    ],
    ids=["codes", "other rows", "nothing"],
)
def test_what_is_no_sound_has_no_record(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert waveform(found, expected, (0, 0), sample_rate=16_000, edges={}) == {}


def test_digits_and_size_are_bounded() -> None:
    record = made(torch.rand(1, 96_000), torch.rand(1, 96_000), (0, 95_999))
    assert len(json.dumps(record)) < 15_000
    assert all(float(f"{value:.5g}") == value for value in record["found"])


def test_a_failed_comparison_leaves_its_waveform(pytester: pytest.Pytester) -> None:
    adapter = "--adapter=tests.mutants.rfc:trims_nominally"
    records, _ = run_suite(pytester, adapter, "-k", "CG203-padded-bucket[b1-f5-in-b1-f8]")
    record = records[0].evidence["waveform"]
    assert record["wrong"] == [34, 39]
    assert record["edges"] == {"actual": 34, "bucket": 58}
    assert (len(record["found"]), len(record["expected"])) == (40, 34)


def test_a_wrong_sample_leaves_its_waveform(pytester: pytest.Pytester) -> None:
    adapter = "--adapter=tests.mutants.rfc:loses_last_frame"
    records, _ = run_suite(pytester, adapter, "-k", "CG201-exact-bucket[b1-f8]")
    evidence = records[0].evidence
    assert evidence["waveform"]["wrong"][0] == evidence["first_wrong_sample"]
    assert max(evidence["waveform"]["difference"]) == pytest.approx(evidence["max_error"], rel=1e-4)
