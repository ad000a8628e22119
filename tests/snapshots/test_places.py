"""Whose snapshots are read, written, reported and deleted, and from where."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from conformance.catalogue import load_catalogue
from conformance.outcome import Outcome
from conformance.registry import known_adapters, spec_of
from conformance.report.document import read_report
from conformance.snapshots.files import decode, encode
from conformance.snapshots.terms import SnapshotTerms, snapshot_folder
from conformance.unattended import run_unattended
from conformance.verdict import Verdict
from tests.snapshots.conftest import BUCKETS, ONLY, RunCodec, WriteCodec, files_of

UPDATE = "--snapshot-update"


def subprocess_run(pytester: pytest.Pytester, *words: str | Path) -> pytest.RunResult:
    tokens = [f"--adapter={word}" if isinstance(word, Path) else word for word in words]
    return pytester.runpytest_subprocess("-p", "conformance.plugin", "-p", "no:cacheprovider", *ONLY, *tokens)


def test_two_adapters_of_one_folder_keep_theirs_apart(codec: WriteCodec, run: RunCodec, tmp_path: Path) -> None:
    one, other = codec("one", folder="theirs"), codec("other", folder="theirs", buckets=BUCKETS[:1])
    own = codec("theirs", folder="theirs", buckets=BUCKETS[1:])
    run(one, other, own, UPDATE)
    kept = files_of(one.parent / "snapshots")
    assert {name.partition("/")[0] for name in kept} == {"one", "other", "emulated", "structure.ambr"}
    codec("one", folder="theirs", drift="wav = wav * 1.01")
    records, _ = run(one, other, own)
    assert {record.adapter for record in records if record.outcome is Outcome.FAIL} == {"one"}
    run(one, UPDATE)
    after = files_of(one.parent / "snapshots")
    assert {name.partition("/")[0] for name in after if after[name] != kept[name]} == {"one"}


def test_what_no_case_stands_for_is_reported_and_deleted_for_the_adapter_at_hand_alone(
    codec: WriteCodec, pytester: pytest.Pytester
) -> None:
    one, other = codec("one"), codec("other")
    assert subprocess_run(pytester, one, other, UPDATE).ret == 0
    codec("one", buckets=BUCKETS[:1])
    codec("other", buckets=BUCKETS[:1])
    kept = files_of(other.parent / "snapshots")
    plain = subprocess_run(pytester, one, "-k", "unused")
    plain.stdout.fnmatch_lines(
        [
            "FAILED one/CG902-structure?unused?",
            "  found     6 snapshots stand for no case any more: CG902-structure?b1-f7-in-b2-f8?,",
            "FAILED one/CG903-output?unused?",
            "  found     2 snapshots stand for no case any more: emulated/b1-f7-in-b2-f8.safetensors,*",
            "one: NOT CONFORMANT in the 2 of * cases selected — 0 passed, 2 failed; *",
        ]
    )
    assert plain.ret == 1
    kept_back = subprocess_run(pytester, one, UPDATE, "--snapshot-no-cleanup", "-k", "unused")
    assert kept_back.ret == 1
    updated = subprocess_run(pytester, one, UPDATE)
    updated.stdout.fnmatch_lines(["one: deleted, for no case stands for it any more: *emulated/b2-f8.safetensors"])
    assert updated.ret == 0
    assert set(files_of(one.parent / "snapshots")) == {
        "structure.ambr",
        "emulated/b1-f4.safetensors",
        "emulated/b1-f3-in-b1-f4.safetensors",
    }
    assert "b2-f8" not in (one.parent / "snapshots" / "structure.ambr").read_text()
    assert files_of(other.parent / "snapshots") == kept
    assert subprocess_run(pytester, one).ret == 0


@pytest.mark.parametrize("stale", ["emulated/b9-f9.safetensors", "structure.ambr"])
def test_verdict_reports_and_exit_code_agree_on_what_no_case_stands_for(
    codec: WriteCodec, run: RunCodec, pytester: pytest.Pytester, stale: str
) -> None:
    path = codec()
    run(path, UPDATE)
    folder = path.parent / "snapshots"
    if stale == "structure.ambr":
        text = (folder / stale).read_text()
        (folder / stale).write_text(text + text[text.index("# name: ") :].replace("[b1-f4]", "[b9-f9]"))
    else:
        (folder / stale).write_bytes((folder / "emulated" / "b1-f4.safetensors").read_bytes())
    result = subprocess_run(pytester, path, "--conformance-json=report.json")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["codec: NOT CONFORMANT in the * cases selected — * passed, 1 failed; *"])
    report = read_report(pytester.path / "report.json")
    assert report.verdict is Verdict.NOT_CONFORMANT
    [failing] = [case for subject in report.subjects for case in subject.cases if case.outcome.breaks]
    assert failing.message.startswith("a snapshot stands for no case any more: ")
    _, records = run_unattended([str(path)], "emulated", 0)
    assert failing.id in {record.id for record in records.values() if record.outcome is Outcome.FAIL}
    others = subprocess_run(pytester, path, "-k", "CG90 and b1-f4")
    assert others.ret == 0
    others.stdout.fnmatch_lines(["codec: CONFORMANT in the *"])


def test_a_file_of_something_else_is_neither_reported_nor_deleted(codec: WriteCodec, run: RunCodec) -> None:
    path = codec()
    run(path, UPDATE)
    theirs = path.parent / "snapshots" / "emulated" / "weights.safetensors"
    theirs.write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    note = path.parent / "snapshots" / "README.md"
    note.write_text("ours")
    assert run(path)[1] == 0
    run(path, UPDATE)
    assert theirs.exists()
    assert note.exists()


def test_a_selection_of_cases_leaves_the_others_alone(codec: WriteCodec, run: RunCodec) -> None:
    path = codec()
    run(path, UPDATE)
    kept = files_of(path.parent / "snapshots")
    _, exit_code = run(path, UPDATE, "-k", "CG903 and b1-f4")
    assert exit_code == 0
    run(path, UPDATE, "-k", "CG201")
    assert files_of(path.parent / "snapshots") == kept


def test_a_case_that_never_reached_its_snapshot_does_not_lose_it(codec: WriteCodec, run: RunCodec) -> None:
    path = codec()
    run(path, UPDATE)
    kept = files_of(path.parent / "snapshots")
    codec(drift="wav = wav * 0 if wav.shape[0] == 2 else wav")
    run(path, UPDATE, "-k", "CG903")
    assert files_of(path.parent / "snapshots") == kept


def test_distributed_over_two_processes(codec: WriteCodec, pytester: pytest.Pytester) -> None:
    path = codec()
    assert subprocess_run(pytester, path, UPDATE, "-n", "2").ret == 0
    kept = files_of(path.parent / "snapshots")
    assert len(kept) == 5
    again = subprocess_run(pytester, path, "-n", "2")
    assert again.ret == 0
    again.stdout.fnmatch_lines(["*snapshots passed.*"])
    codec(buckets=BUCKETS[:1])
    stale = subprocess_run(pytester, path, "-n", "2", UPDATE)
    stale.stdout.fnmatch_lines(["codec: deleted, for no case stands for it any more: *"])
    assert stale.ret == 0
    assert set(files_of(path.parent / "snapshots")) < set(kept)


def test_an_authors_own_snapshots_and_fixture_are_theirs(codec: WriteCodec, pytester: pytest.Pytester) -> None:
    path = codec()
    pytester.makeconftest(
        "import pytest\n@pytest.fixture\ndef snapshot(snapshot):\n    return snapshot.use_extension(None)\n"
    )
    pytester.makepyfile(test_mine="def test_mine(snapshot):\n    assert {'mine': 1} == snapshot\n")
    assert subprocess_run(pytester, path, UPDATE, "test_mine.py", "-k", "CG90 or mine").ret == 0
    mine = pytester.path / "__snapshots__" / "test_mine.ambr"
    assert mine.exists()
    kept = files_of(path.parent / "snapshots")
    assert subprocess_run(pytester, path, UPDATE).ret == 0
    assert mine.exists()
    assert subprocess_run(pytester, "test_mine.py", UPDATE, "-k", "mine").ret == 0
    assert files_of(path.parent / "snapshots") == kept


def test_without_syrupy_or_without_pytest_they_are_read_and_never_written(
    codec: WriteCodec, run: RunCodec, pytester: pytest.Pytester
) -> None:
    path = codec()
    run(path, UPDATE)
    (path.parent / "snapshots" / "emulated" / "b1-f4.safetensors").unlink()
    kept = files_of(path.parent / "snapshots")
    without = subprocess_run(pytester, path, "-p", "no:syrupy")
    assert without.ret == 1
    without.stdout.fnmatch_lines(["FAILED codec/CG903-output?b1-f4?*"])
    _, records = run_unattended([str(path)], "emulated", 0)
    snapshots = [record for record in records.values() if record.code in ("CG902", "CG903")]
    assert {record.id for record in snapshots if record.outcome is not Outcome.PASS} == {"codec/CG903-output[b1-f4]"}
    assert files_of(path.parent / "snapshots") == kept


def test_a_folder_that_may_not_be_written_fails_case_by_case(
    codec: WriteCodec, run: RunCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = codec()
    real = Path.mkdir

    def refuse(self: Path, *args: object, **kwargs: object) -> None:
        if "snapshots" in self.parts:
            raise PermissionError(13, "Permission denied", str(self))
        real(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", refuse)
    records, exit_code = run(path, UPDATE)
    assert {record.outcome for record in records} == {Outcome.FAIL}
    assert all("PermissionError: " in record.message for record in records)
    assert exit_code == 1


def test_another_device_class_is_compared_loosely_and_the_run_says_so(
    codec: WriteCodec, pytester: pytest.Pytester
) -> None:
    path = codec()
    subprocess_run(pytester, path, UPDATE)
    folder = path.parent / "snapshots"
    (folder / "emulated").rename(folder / "cuda-sm90")
    for file in (folder / "cuda-sm90").iterdir():
        record = decode(file.read_bytes(), file)
        file.write_bytes(encode(replace(record, header=replace(record.header, device_class="cuda-sm90"))))
    kept = files_of(folder)
    codec(drift="wav = wav * 1.0005")
    result = subprocess_run(pytester, path)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["codec: 4 snapshots of cuda-sm90 were compared at the loose tier"])
    assert files_of(folder) == kept
    codec(drift="wav = wav * 1.01")
    assert subprocess_run(pytester, path).ret == 1
    codec()
    assert subprocess_run(pytester, path, UPDATE).ret == 0
    assert {name.partition("/")[0] for name in files_of(folder)} == {"cuda-sm90", "emulated", "structure.ambr"}


def test_at_most_twelve_files_an_adapter_however_many_buckets() -> None:
    many = type(spec_of("reference"))()
    many.buckets = tuple({"batch": rows, "frames": 8 * n} for rows in (1, 2, 4, 8) for n in range(1, 9))  # type: ignore[misc]
    check = next(check for check in load_catalogue() if check.code == "CG903")
    many.snapshot_terms = SnapshotTerms(update=True)
    ids = [case.id for case in check.cases(many) if case.id != "unused"]
    assert 6 <= len(ids) <= 12
    assert {"b1-f8", "b8-f64"} < set(ids)


@pytest.mark.parametrize("name", [adapter.name for adapter in known_adapters() if "@" not in adapter.name])
def test_the_shipped_snapshots_are_small_and_are_those_of_the_cases(name: str) -> None:
    spec = spec_of(name)
    folder = snapshot_folder(spec)
    assert folder is not None
    files = [path for path in folder.rglob("*") if path.is_file()]
    check = next(check for check in load_catalogue() if check.code == "CG903")
    assert {path.stem for path in files} == {"structure", *(case.id for case in check.cases(spec))} - {"unused"}
    assert max(path.stat().st_size for path in files) < 64_000
