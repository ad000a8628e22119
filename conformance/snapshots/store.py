"""Where a check gets what an adapter gave once: from files, or from syrupy in a run of pytest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from conformance.snapshots.files import SnapshotError
from conformance.snapshots.record import Record
from conformance.snapshots.terms import OUTPUT_SUFFIX, STRUCTURE_FILE, UPDATE, output_folder


@dataclass(frozen=True)
class Recalled:
    """What a store has under a name: bytes of a record, or amber text. `written` says that it is what was just found.

    `data` is None where there is nothing, `error` what kept the store from reading or writing it.
    """

    path: Path
    data: Any
    written: bool = False
    error: BaseException | None = None

    def require(self, kind: type[bytes] | type[str]) -> Any:
        """The data. Raises :class:`SnapshotError` naming the file where there is none, or none that can be read."""
        if self.error is not None:
            kind_of_error = "" if isinstance(self.error, SnapshotError) else f"{type(self.error).__name__}: "
            raise SnapshotError(f"{self.path}: {kind_of_error}{' '.join(str(self.error).split())}; {UPDATE}")
        if not isinstance(self.data, kind):
            raise SnapshotError(f"{self.path}: there is no such snapshot; {UPDATE}")
        return self.data


class SnapshotStore(Protocol):
    """What a subject keeps its snapshots in. `name` is a case id of the check that asks."""

    def output(self, name: str, found: Record) -> Recalled:
        """What is kept for `found`; a store of a run that updates writes `found` where the two do not match."""

    def structure(self, name: str, found: Mapping[str, Any]) -> Recalled:
        """The text that is kept for `found`, likewise."""


class FileStore:
    """Reads the files of an adapter, and writes none: for runs without pytest."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder or Path("snapshots")

    def output(self, name: str, found: Record) -> Recalled:
        folder = output_folder(self.folder, found.header.device_class, update=False)
        path = folder / f"{name}.{OUTPUT_SUFFIX}"
        try:
            return Recalled(path, path.read_bytes() if path.exists() else None)
        except OSError as error:
            return Recalled(path, None, error=error)

    def structure(self, name: str, found: Mapping[str, Any]) -> Recalled:
        path = self.folder / f"{STRUCTURE_FILE}.ambr"
        try:
            return Recalled(path, read_structure(path).get(structure_name(name)))
        except (OSError, SnapshotError) as error:
            return Recalled(path, None, error=error)


def structure_name(case: str) -> str:
    """The name of a case in `structure.ambr`: that of its test item."""
    return f"CG902-structure[{case}]"


def read_structure(path: Path) -> dict[str, str]:
    """The entries of a `structure.ambr` by name; none where there is no file. Raises :class:`SnapshotError`."""
    from syrupy.extensions.amber import AmberDataSerializer
    from syrupy.extensions.amber.serializer import MalformedAmberFile

    if not path.exists():
        return {}
    try:
        collection = AmberDataSerializer.read_file(str(path))
    except (MalformedAmberFile, UnicodeDecodeError) as error:
        raise SnapshotError(f"damaged: {error}") from error
    if collection.tainted:
        raise SnapshotError("damaged, or of another version of syrupy")
    return {snapshot.name: str(snapshot.data) for snapshot in collection}
