"""The runner's benchmark refuses where it cannot measure, and measures what needs no GPU."""

import json

import pytest
import torch

from benchmarks import runner


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_prints_no_ratio(capsys):
    assert runner.main(["--rounds", "1"]) == 2
    told = capsys.readouterr()
    assert (told.out, "expected a GPU and found none" in told.err) == ("", True)


def test_lookup_and_overhead_need_none(tmp_path, capsys):
    assert runner.main(["--without-gpu", "--rounds", "2", "--json", str(tmp_path / "rows.json")]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert rows[0]["what"].startswith("bucket lookup")
    assert len(rows) == 5
    assert all(row["ratio"] > 0 for row in rows)
    assert "never asked for before" in capsys.readouterr().out


def test_a_missed_limit_is_said(capsys):
    runner.show([{"what": "something", "ratio": 2.0, "at most": 1.5, "extra": ""}])
    assert "MISSED" in capsys.readouterr().out


@pytest.mark.gpu
def test_every_row_is_measured_on_a_gpu(capsys):
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    assert runner.main(["--rounds", "4", "--no-compile"]) == 0
    assert "reserved bytes" in capsys.readouterr().out
