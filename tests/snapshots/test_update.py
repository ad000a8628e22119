"""Writing snapshots, keeping them, and what a change does."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from conformance.outcome import CaseRecord, Outcome
from conformance.places import near
from conformance.report.terminal import failure_text
from tests.snapshots.conftest import CASES, RunCodec, WriteCodec, files_of

UPDATE = "--snapshot-update"


def outcomes(records: list[CaseRecord], code: str = "") -> set[Outcome]:
    return {record.outcome for record in records if record.code.startswith(code)}


def test_without_a_folder_they_do_not_apply_and_the_reason_says_what_to_do(codec: WriteCodec, run: RunCodec) -> None:
    path = codec()
    records, _ = run(path)
    assert [(record.id, record.outcome) for record in records] == [
        ("codec/CG902-structure", Outcome.NOT_APPLICABLE),
        ("codec/CG903-output", Outcome.NOT_APPLICABLE),
    ]
    assert {record.message for record in records} == {"no snapshots are kept; `--snapshot-update` writes them"}
    assert not (path.parent / "snapshots").exists()


def test_an_update_writes_one_small_file_a_case_beside_the_adapter(codec: WriteCodec, run: RunCodec) -> None:
    path = codec()
    records, exit_code = run(path, UPDATE)
    assert outcomes(records) == {Outcome.PASS}
    assert exit_code == 0
    kept = files_of(path.parent / "snapshots")
    assert set(kept) == {"structure.ambr", *(f"emulated/{case}.safetensors" for case in CASES)}
    assert all(len(data) < 64_000 for _, data in kept.values())
    assert {record.evidence["written"] for record in records} == {True}


def test_a_second_update_writes_nothing_and_a_plain_run_agrees(codec: WriteCodec, run: RunCodec) -> None:
    path = codec()
    run(path, UPDATE)
    before = files_of(path.parent / "snapshots")
    records, exit_code = run(path, UPDATE)
    assert {record.evidence["written"] for record in records} == {False}
    again, _ = run(path)
    assert outcomes(again) == {Outcome.PASS}
    assert {record.evidence["tier"] for record in again if record.code == "CG903"} == {"strict"}
    assert exit_code == 0
    assert files_of(path.parent / "snapshots") == before


def test_a_drift_within_the_limits_is_neither_a_failure_nor_written(codec: WriteCodec, run: RunCodec) -> None:
    path = codec()
    run(path, UPDATE)
    before = files_of(path.parent / "snapshots")
    codec(drift="wav = wav * (1 + 5e-6)")
    records, exit_code = run(path, UPDATE)
    assert outcomes(records) == {Outcome.PASS}
    assert exit_code == 0
    assert files_of(path.parent / "snapshots") == before


def test_a_drift_fails_with_a_table_of_metrics_until_an_update(codec: WriteCodec, run: RunCodec) -> None:
    path = codec()
    run(path, UPDATE)
    codec(drift="wav = wav * 1.001")
    records, exit_code = run(path)
    assert exit_code == 1
    assert outcomes(records, "CG903") == {Outcome.FAIL}
    assert outcomes(records, "CG902") == {Outcome.PASS}
    text = failure_text(next(record for record in records if record.code == "CG903"))
    assert "(strict limits, against emulated)" in text
    assert [line.split()[2] for line in text.splitlines() if line.endswith("over")] == ["level", "max_abs", "l2"]
    before = files_of(path.parent / "snapshots")
    run(path, UPDATE)
    after = files_of(path.parent / "snapshots")
    assert {name for name in after if after[name] != before[name]} == {f"emulated/{case}.safetensors" for case in CASES}
    assert outcomes(run(path)[0]) == {Outcome.PASS}


def test_an_update_of_new_ones_alone_leaves_a_drift_a_failure(codec: WriteCodec, run: RunCodec) -> None:
    path = codec()
    run(path, UPDATE)
    gone = path.parent / "snapshots" / "emulated" / "b1-f4.safetensors"
    gone.unlink()
    codec(drift="wav = wav * 1.001")
    records, _ = run(path, "--snapshot-update-new-only")
    failed = {record.case for record in records if record.outcome is Outcome.FAIL}
    assert failed == {*CASES} - {"b1-f4"}
    assert gone.exists()


@pytest.mark.parametrize(
    ("drift", "told"),
    [
        ("wav = wav[..., :-1]", "samples fewer"),
        ("wav = wav * float('nan') if wav.shape[0] == 2 else wav", "not finite"),
        ("wav = wav * 0 if wav.shape[0] == 2 else wav", "silent"),
    ],
)
def test_length_nan_and_silence_fail_and_the_last_two_even_under_an_update(
    codec: WriteCodec, run: RunCodec, drift: str, told: str
) -> None:
    path = codec()
    run(path, UPDATE)
    before = files_of(path.parent / "snapshots")
    codec(drift=drift)
    records, exit_code = run(path, "-k", "CG903 and b2-f8 and not in", *([] if "fewer" in told else [UPDATE]))
    [record] = records
    assert record.outcome is Outcome.FAIL
    assert told in record.message
    assert exit_code == 1
    assert files_of(path.parent / "snapshots") == before


def test_a_lost_bucket_is_told_and_what_it_left_behind_is_unused(codec: WriteCodec, run: RunCodec) -> None:
    path = codec()
    run(path, UPDATE)
    codec(buckets=({"batch": 1, "frames": 4},))
    records, exit_code = run(path)
    assert exit_code == 1
    assert {record.case for record in records if record.outcome is Outcome.FAIL} >= {"buckets"}
    [record] = [record for record in records if record.case == "buckets"]
    assert record.evidence["table"] == ["- 'b2-f8',"]
    run(path, UPDATE)
    assert outcomes(run(path)[0]) == {Outcome.PASS}


@pytest.mark.parametrize("words", [("--conformance-seed=1",), ("--conformance-seed=1", UPDATE)])
def test_another_seed_neither_fails_nor_writes(codec: WriteCodec, run: RunCodec, words: tuple[str, ...]) -> None:
    path = codec()
    run(path, UPDATE)
    before = files_of(path.parent / "snapshots")
    records, exit_code = run(path, *words)
    assert outcomes(records, "CG902") == {Outcome.PASS}
    [record] = [record for record in records if record.code == "CG903"]
    assert record.outcome is Outcome.NOT_APPLICABLE
    assert record.message == "snapshots are of seed 0; this run has seed 1"
    assert exit_code == 0
    assert files_of(path.parent / "snapshots") == before


def test_a_known_drift_may_stay_declared_under_another_seed(codec: WriteCodec, run: RunCodec) -> None:
    path = codec()
    run(path, UPDATE)
    codec(drift="wav = wav * (1.001 if wav.shape[0] == 2 else 1)")
    expires = datetime.date.today() + datetime.timedelta(days=9)
    (path.parent / "expectations.toml").write_text(
        '[[known]]\ncode = "CG903"\ncase = "b2-f8"\nreason = "louder since the last release"\n'
        f'issue = "https://github.com/vllm-project/vllm-omni/issues/4309"\nexpires = {expires}\n'
    )
    assert outcomes(run(path, "-k", "CG903 and b2-f8 and not in")[0]) == {Outcome.XFAIL}
    records, exit_code = run(path, "--conformance-seed=1")
    assert outcomes(records, "CG903") == {Outcome.NOT_APPLICABLE}
    assert exit_code == 0


def break_file(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif how == "foreign":
        path.write_bytes(b"# serializer version: 99\n" if path.suffix == ".ambr" else b"\x02\0\0\0\0\0\0\0{}")
    else:
        path.write_bytes(b"\xff\xfe\x00" * 100)


@pytest.mark.parametrize(
    ("file", "hows"),
    [("emulated/b1-f4.safetensors", ("gone", "truncated")), ("structure.ambr", ("truncated", "foreign", "garbage"))],
)
def test_a_file_that_cannot_be_read_is_one_clear_failure_and_an_update_repairs_it(
    codec: WriteCodec, run: RunCodec, file: str, hows: tuple[str, ...]
) -> None:
    path = codec()
    run(path, UPDATE)
    broken = path.parent / "snapshots" / file
    whole = broken.read_bytes()
    for how in hows:
        break_file(broken, how)
        failed = [record for record in run(path)[0] if record.outcome is Outcome.FAIL]
        assert failed
        for record in failed:
            assert record.message.startswith(f"{near(broken)}: ")
            assert "`--snapshot-update`" in record.message
        assert outcomes(run(path, UPDATE)[0]) == {Outcome.PASS}
        assert broken.read_bytes() == whole
