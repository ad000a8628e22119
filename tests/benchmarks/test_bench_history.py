"""A history tells what got worse for good, and fails nobody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from conformance.cli import main
from conformance.report.document import SCHEMA, RunReport, to_document, write_report
from tests.benchmarks.made_up import NAME, benchmark, write_result


def append(tmp_path: Path, commit: str, median: float, gpu: str = "NVIDIA H200") -> int:
    row = benchmark(machine=gpu)
    row["stats"] |= {"median": median, "q1": median, "q3": median}
    result = write_result(tmp_path / "result.json", row)
    return main(["bench-history", "append", str(result), f"--history={tmp_path / 'h.jsonl'}", f"--commit={commit}"])


def report(tmp_path: Path) -> int:
    return main(["bench-history", "report", f"--history={tmp_path / 'h.jsonl'}"])


def test_a_commit_worse_than_all_before_is_told_and_the_exit_stays_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for index, median in enumerate((1.0, 1.1, 1.0, 0.9, 1.0)):
        append(tmp_path, f"c{index}", median)
    append(tmp_path, "slow", 1.2)
    assert report(tmp_path) == 0
    assert (
        f"worse  {NAME} on NVIDIA H200: 1.2e+06 µs at slow, 9.1 % above the worst of before" in capsys.readouterr().out
    )


@pytest.mark.parametrize("last", [1.15, 1.1, 0.5])
def test_no_more_than_5_percent_above_the_worst_is_quiet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], last: float
) -> None:
    for index, median in enumerate((1.0, 1.1, 1.0, 0.9, 1.0, last)):
        append(tmp_path, f"c{index}", median)
    assert report(tmp_path) == 0
    assert "0 worse" in capsys.readouterr().out


def test_four_commits_establish_nothing_and_repeats_count_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for commit in ("a", "b", "c", "d", "d", "d"):
        append(tmp_path, commit, 1.0)
    append(tmp_path, "slow", 9.0)
    assert report(tmp_path) == 0
    assert "0 worse than ever by more than 5%, 0 as before, 2 with too few commits" in capsys.readouterr().out


def test_gpus_are_kept_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for index in range(6):
        append(tmp_path, f"c{index}", 1.0)
    append(tmp_path, "c6", 9.0, gpu="NVIDIA L4")
    assert report(tmp_path) == 0
    assert "0 worse" in capsys.readouterr().out


def test_lines_fit_the_report(tmp_path: Path) -> None:
    append(tmp_path, "abc", 1.0)
    lines = [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()]
    document = to_document(RunReport((), 0, "auto", created="2026-01-01T00:00:00Z")) | {"history": lines}
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    assert [line["name"] for line in lines] == [NAME, f"{NAME} eager"]


def test_a_report_shows_figures_and_history(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    append(tmp_path, "abc", 1.0)
    write_report(RunReport((), 0, "auto"), tmp_path / "run.json")
    given = [f"--{name}={tmp_path / file}" for name, file in (("benchmarks", "result.json"), ("history", "h.jsonl"))]
    assert main(["report", str(tmp_path / "run.json"), f"--html={tmp_path / 'page.html'}", *given]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "replay exact" in page
    assert "over 1 commits" in page


@pytest.mark.parametrize("line", ["{", "3", "{}", '{"commit": 3, "date": "", "gpu": "", "name": "", "median_us": 1}'])
def test_a_damaged_history_is_one_line_and_exit_4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    append(tmp_path, "abc", 1.0)
    with (tmp_path / "h.jsonl").open("a") as file:
        file.write(line + "\n")
    before = (tmp_path / "h.jsonl").read_text()
    assert report(tmp_path) == 4
    assert append(tmp_path, "def", 1.0) == 4
    assert (tmp_path / "h.jsonl").read_text() == before
    assert f"ERROR: {tmp_path / 'h.jsonl'}:3: no point" in capsys.readouterr().err


def test_append_needs_a_result_and_a_commit(tmp_path: Path) -> None:
    assert main(["bench-history", "append", f"--history={tmp_path / 'h.jsonl'}", "--commit=a"]) == 4
    assert main(["bench-history", "append", "r.json", f"--history={tmp_path / 'h.jsonl'}"]) == 4
