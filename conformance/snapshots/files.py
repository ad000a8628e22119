"""A record as a file: safetensors, with the header as JSON in its metadata. The same record gives the same bytes."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
import safetensors.numpy
import torch

from conformance.errors import ConformanceError
from conformance.snapshots.header import Header
from conformance.snapshots.record import MAX_VALUES, Record, make_record

if TYPE_CHECKING:
    from conformance.subject import Inputs, Outputs, Subject

KIND = "audiograph.snapshot"
SCHEMA = 1
MAX_BYTES = 64_000
_WRITE_AGAIN = "write it again with `--snapshot-update`"


class SnapshotError(ConformanceError):
    """A snapshot that cannot be read. The message begins with its path and ends in what to do."""


def fitting_record(subject: Subject, case: str, inputs: Inputs, outputs: Outputs) -> Record:
    """A record whose file holds no more than `MAX_BYTES`: with fewer values, where many outputs have long headers."""
    budget = MAX_VALUES
    while True:
        record = make_record(subject, case, inputs, outputs, budget)
        size = len(encode(record))
        if size <= MAX_BYTES:
            return record
        if budget < MAX_VALUES // 64:
            raise SnapshotError(f"{subject.spec.name}/{case}: a snapshot of {size} bytes; at most {MAX_BYTES} are kept")
        budget //= 2


def encode(record: Record) -> bytes:
    """`record` as the bytes of its file."""
    header = json.dumps({"kind": KIND, "schema": SCHEMA, **record.header.to_json()}, sort_keys=True)
    arrays = {name: np.ascontiguousarray(array.numpy()) for name, array in sorted(record.arrays.items())}
    data: bytes = safetensors.numpy.save(arrays, metadata={KIND: header})
    return data


def decode(data: bytes, where: Path) -> Record:
    """The record in a file's bytes. Raises :class:`SnapshotError` for a damaged or foreign one, and another schema."""
    try:
        metadata = _metadata(data)
        arrays = safetensors.numpy.load(data) if KIND in metadata else {}
    except (safetensors.SafetensorError, ValueError, struct.error, KeyError, TypeError, AttributeError) as error:
        raise SnapshotError(f"{where}: damaged, {len(data)} bytes ({_first_line(error)}); {_WRITE_AGAIN}") from error
    if KIND not in metadata:
        raise SnapshotError(f"{where}: a safetensors file, and no snapshot of audiograph; move it, then {_WRITE_AGAIN}")
    try:
        values = json.loads(metadata[KIND])
        schema = values.pop("schema", None)
        if schema != SCHEMA:
            raise SnapshotError(f"{where}: schema version {schema!r}; this audiograph reads {SCHEMA}: {_WRITE_AGAIN}")
        if values.pop("kind", None) != KIND:
            raise ValueError(f"kind is not {KIND}")
        header = Header.from_json(values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SnapshotError(f"{where}: damaged header ({_first_line(error)}); {_WRITE_AGAIN}") from error
    record = Record(header, {name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
    sizes = record.sizes
    lacking = [name for name, size in record.promised_arrays() if name not in sizes or size not in (None, sizes[name])]
    if lacking:
        raise SnapshotError(f"{where}: damaged: {lacking[0]!r} is not what its header says; {_WRITE_AGAIN}")
    return record


def is_snapshot(path: Path) -> bool:
    """Whether a file says that it is one of ours. What does not is never deleted."""
    try:
        with path.open("rb") as file:
            return KIND in _metadata(file.read(MAX_BYTES))
    except (OSError, ValueError, struct.error, AttributeError):
        return False


def write_bytes(path: Path, data: bytes) -> None:
    """Write so that a reader meets the old file or the new one, never half of it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_bytes(data)
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)


def _metadata(data: bytes) -> dict[str, Any]:
    """The metadata of a safetensors file: eight bytes of length, then JSON."""
    (length,) = struct.unpack("<Q", data[:8])
    if 8 + length > len(data):
        raise ValueError(f"a header of {length} bytes is announced")
    found = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    return found if isinstance(found, dict) else {}


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
