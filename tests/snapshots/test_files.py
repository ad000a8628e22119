"""Files that are damaged or foreign: one clear line with the path and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from conformance.snapshots.files import KIND, SnapshotError, decode, encode, write_bytes
from tests.snapshots.records import noise, record_of

HERE = Path("snapshots/emulated/b1-f3.safetensors")
WHOLE = encode(record_of({"wav": [noise(1, 500)]}))


def header_of(data: bytes) -> dict[str, object]:
    length = int.from_bytes(data[:8], "little")
    found: dict[str, object] = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][KIND])
    return found


def with_header(**changed: object) -> bytes:
    arrays = safetensors.numpy.load(WHOLE)
    return safetensors.numpy.save(arrays, metadata={KIND: json.dumps({**header_of(WHOLE), **changed})})


def message(data: bytes) -> str:
    with pytest.raises(SnapshotError) as caught:
        decode(data, HERE)
    told = str(caught.value)
    assert told.startswith(f"{HERE}: ")
    assert "--snapshot-update" in told
    assert "\n" not in told
    return told


def test_what_is_written_is_read() -> None:
    record = decode(WHOLE, HERE)
    assert record.header == record_of({"wav": [noise(1, 500)]}).header
    assert encode(record) == WHOLE


@pytest.mark.parametrize("size", [0, 4, 8, 100, len(WHOLE) // 2, len(WHOLE) - 1])
def test_a_truncated_file(size: int) -> None:
    assert f"damaged, {size} bytes" in message(WHOLE[:size])


def test_a_file_of_something_else() -> None:
    assert "damaged" in message(b"RIFF\x00\x00\x00\x00WAVE" * 50)


def test_a_safetensors_file_of_something_else() -> None:
    weights = {"weight": np.zeros((2, 2), dtype=np.float32)}
    assert "no snapshot of audiograph" in message(safetensors.numpy.save(weights))
    assert "no snapshot of audiograph" in message(safetensors.numpy.save(weights, metadata={"format": "pt"}))


def test_another_schema_version() -> None:
    assert "schema version 2; this audiograph reads 1" in message(with_header(schema=2))


@pytest.mark.parametrize("changed", [{"outputs": {"wav": {}}}, {"outputs": 3}, {"weights": [1]}, {"surprise": 1}])
def test_a_header_that_says_too_little_or_too_much(changed: dict[str, object]) -> None:
    assert "damaged header" in message(with_header(**changed))


def test_arrays_that_are_not_what_the_header_says() -> None:
    arrays = safetensors.numpy.load(WHOLE)
    for broken in ({**arrays, "wav.0.head": arrays["wav.0.head"][:-1]}, {"wav.peak": arrays["wav.peak"]}):
        data = safetensors.numpy.save(broken, metadata={KIND: json.dumps(header_of(WHOLE))})
        assert "is not what its header says" in message(data)


def test_the_header_says_what_a_reader_needs() -> None:
    header = header_of(WHOLE)
    assert header["sample_rate"] == 16_000
    assert header["seed"] == 0
    assert set(header["versions"]) == {"audiograph", "torch"}  # type: ignore[arg-type]
    assert set(header["inputs"]) == {"codes"}  # type: ignore[arg-type]
    wav = header["outputs"]["wav"]  # type: ignore[index]
    assert wav["shapes"] == [[1, 500]]
    assert wav["dtype"] == "float32"
    assert set(wav["strict"]) == set(wav["loose"]) == {"max_abs", "l2", "log_mel"}


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "emulated" / "b1-f3.safetensors"
    write_bytes(path, b"old")
    monkeypatch.setattr(Path, "replace", lambda self, target: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_bytes(path, b"new")
    assert [file.read_bytes() for file in path.parent.iterdir()] == [b"old"]
