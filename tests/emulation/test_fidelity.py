"""The fidelity table holds on the emulation, and on a GPU where there is one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from conformance.fidelity import ROWS, Device, Returns, Row, judge
from conformance.fidelity.__main__ import main
from conformance.fidelity.judge import Verdict
from conformance.fidelity.processes import judge_in_processes
from conformance.fidelity.record import COMMITTED, new_record, read, write

ON_GPU = [row for row in ROWS if row.judged_on(Device.CUDA)] if torch.cuda.is_available() else []


@pytest.mark.parametrize("row", [row for row in ROWS if row.judged_on(Device.EMULATED)], ids=lambda row: row.name)
def test_emulated(row: Row) -> None:
    verdict = judge(row, Device.EMULATED)
    assert verdict.agrees, f"{row.name}: expected {row.expected}, seen {verdict.seen}"


if ON_GPU:

    @pytest.fixture(scope="module")
    def gpu_verdicts() -> dict[str, Verdict]:
        """Judged in processes of their own: some rows end theirs, at the latest when it exits."""
        return {verdict.name: verdict for verdict in judge_in_processes(ON_GPU)}

    @pytest.mark.gpu
    @pytest.mark.parametrize("row", ON_GPU, ids=lambda row: row.name)
    def test_on_a_gpu(row: Row, gpu_verdicts: dict[str, Verdict]) -> None:
        verdict = gpu_verdicts[row.name]
        assert verdict.agrees, f"{row.name}: expected {row.expected}, seen {verdict.seen}"


def test_a_row_that_kills_its_process_disagrees_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.fidelity.processes.sys.executable", "false")
    verdicts = list(judge_in_processes(ROWS[:2]))
    assert [verdict.name for verdict in verdicts] == [row.name for row in ROWS[:2]]
    assert {verdict.seen for verdict in verdicts} == {"the process died with exit code 1"}


@pytest.mark.parametrize(
    "arguments", [["--record", "x.json"], ["--device", "cuda", "--only", "x", "--record", "x.json"]]
)
def test_a_record_is_of_the_whole_table_on_a_gpu(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)


def test_names_are_unique() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))


def test_every_promise_has_rows_that_a_gpu_can_judge() -> None:
    groups = {row.group for row in ROWS}
    assert groups == {row.group for row in ROWS if row.judged_on(Device.CUDA)}


def test_a_row_for_one_device_says_why() -> None:
    assert all(row.only.reason for row in ROWS if row.only is not None)


def test_a_disagreement_is_printed_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = dataclasses.replace(ROWS[0], expected=Returns("something else"))
    monkeypatch.setattr("conformance.fidelity.__main__.ROWS", (row, ROWS[1]))
    assert main([]) == 1
    printed = capsys.readouterr().out
    assert row.name in printed
    assert "'something else'" in printed
    assert printed.endswith("fidelity: 1/2\n")


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = new_record(ROWS[:2], [Verdict(ROWS[0].name, True, "1"), Verdict(ROWS[1].name, False, "2")], "a GPU")
    write(written, tmp_path / "record.json")
    assert read(tmp_path / "record.json") == written
    assert str(written).endswith("1/2")


def test_a_record_knows_the_rows_that_changed_since() -> None:
    written = new_record(ROWS[:2], [Verdict(row.name, True, "") for row in ROWS[:2]], "a GPU")
    changed = dataclasses.replace(ROWS[1], digest="another")
    assert written.outdated([ROWS[0], changed, ROWS[2]]) == [ROWS[1].name, ROWS[2].name]


def test_the_committed_record_of_a_gpu_holds_every_row_and_no_disagreement() -> None:
    record = read(COMMITTED)
    assert record is not None
    assert record.outdated([row for row in ROWS if row.judged_on(Device.CUDA)]) == []
    assert all(verdict.agrees for verdict in record.verdicts.values())
