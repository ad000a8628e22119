"""Files of reports: refused before a run, whole after it; and `audiograph report`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from conformance import cli
from conformance.report.document import SCHEMA, read_report, to_document, write_report
from conformance.report.files import ReportError, require_apart, require_writable, write_whole
from conformance.report.writers import WRITERS
from tests.report.made_up import report


def test_a_report_with_pictures_and_figures_comes_back_and_is_as_the_schema_says(tmp_path: Path) -> None:
    made = report(3)
    write_report(made, tmp_path / "report.json")
    assert read_report(tmp_path / "report.json").benchmarks == made.benchmarks
    assert read_report(tmp_path / "report.json").history == made.history
    document = json.loads((tmp_path / "report.json").read_text())
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    waves = [case["evidence"]["waveform"] for case in document["subjects"][1]["cases"] if case["outcome"] == "FAIL"]
    assert len(waves) == 3
    assert to_document(read_report(tmp_path / "report.json")) == document


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["benchmarks"][0].pop("median_us"), "damaged: TypeError"),
        (lambda d: d["history"][0].update(median_us="fast"), "median_us of a HistoryPoint is 'fast'"),
        (lambda d: d["subjects"][0]["cases"][0].update(evidence=[1]), "evidence of CG001-manifest[b1-f4] is [1]"),
        (lambda d: d["subjects"][0]["cases"][0].update(outcome="FINE"), "damaged: KeyError: 'FINE'"),
        (lambda d: d["subjects"][0].update(cases=3), "damaged: TypeError"),
        (lambda d: d.update(checks={}), "damaged: KeyError: 'CG001-manifest'"),
        (lambda d: d.update(schema=1), "schema version 1; this audiograph reads 2"),
        (lambda d: d["subjects"][0].update(packages=["x"]), "damaged: TypeError: expected texts by name"),
        (lambda d: d["subjects"][0]["cases"][0].update(known="so"), "known of CG001-manifest[b1-f4] is 'so'"),
    ],
)
def test_a_damaged_report_is_one_line(
    tmp_path: Path, change: Any, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = to_document(report(1))
    change(document)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document))
    assert cli.main(["report", str(path), "--md", str(tmp_path / "out.md")]) == cli.USAGE_ERROR
    said = capsys.readouterr().err
    assert said.startswith(f"ERROR: {path}: ")
    assert words in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out.md").exists()


def test_every_report_is_made_from_a_saved_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_report(report(2), tmp_path / "report.json")
    files = {kind: tmp_path / f"out.{kind}" for kind in ("md", "html", "badge")}
    options = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    assert cli.main(["report", str(tmp_path / "report.json"), *options]) == 0
    assert capsys.readouterr().out.split() == [str(path) for path in files.values()]
    assert files["md"].read_text().startswith("## ❌ NOT CONFORMANT")
    assert files["html"].read_text().lstrip().startswith("<!DOCTYPE html>")
    assert json.loads(files["badge"].read_text())["schemaVersion"] == 1


def test_reports_of_20_subjects_under_every_check_stay_below_2_mb(tmp_path: Path) -> None:
    made = report(20)
    for kind, write in WRITERS.items():
        write(made, tmp_path / kind)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert set(sizes) == {"json", "html", "md", "badge"}
    assert max(sizes.values()) <= 2_000_000, sizes


def test_a_command_that_names_no_file_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(tmp_path / "report.json")]) == cli.USAGE_ERROR
    assert "give at least one of --md FILE" in capsys.readouterr().err


def test_two_reports_may_not_be_one_file(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="named for the md and the html report"):
        require_apart({"md": tmp_path / "out", "html": tmp_path / "." / "out"})
    require_apart({"md": Path("/dev/null"), "html": Path("/dev/null")})


def test_a_file_that_cannot_be_made_is_known_before_the_run(tmp_path: Path) -> None:
    for path, words in [
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "new.json", "there is no folder"),
        (tmp_path / ("x" * 300), "may not be written"),
        (Path("/proc/new.json"), "may not be written"),
    ]:
        with pytest.raises(ReportError, match=words):
            require_writable(path)
    require_writable(tmp_path / "new.json")
    assert list(tmp_path.iterdir()) == []


def test_a_link_and_a_pipe_stay_what_they_are(tmp_path: Path) -> None:
    target, link = tmp_path / "target.md", tmp_path / "link.md"
    target.write_text("old")
    link.symlink_to(target)
    write_whole(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.md", "pipe", "target.md"]
