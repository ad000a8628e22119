"""Where a check gets what an adapter gave once: from files, or from syrupy in a run of pytest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from conformance.snapshots.files import SnapshotError, is_snapshot
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


@dataclass(frozen=True)
class Unused:
    """Snapshots of a check for which no case stands any more: files, or entries of a file. `deleted`: they are gone."""

    names: tuple[str, ...]
    deleted: bool = False


class SnapshotStore(Protocol):
    """What a subject keeps its snapshots in. `name` is a case id of the check that asks."""

    def output(self, name: str, found: Record) -> Recalled:
        """What is kept for `found`; a store of a run that updates writes `found` where the two do not match."""

    def structure(self, name: str, found: Mapping[str, Any]) -> Recalled:
        """The text that is kept for `found`, likewise."""

    def unused_outputs(self, cases: frozenset[str]) -> Unused:
        """What is kept of outputs for none of `cases`, on any device; a store of a run that updates deletes it."""

    def unused_structures(self, cases: frozenset[str]) -> Unused:
        """What is kept of structures for none of `cases`, likewise."""


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
        path = structure_file(self.folder)
        try:
            return Recalled(path, read_structure(path).get(structure_name(name)))
        except (OSError, SnapshotError) as error:
            return Recalled(path, None, error=error)

    def unused_outputs(self, cases: frozenset[str]) -> Unused:
        return Unused(tuple(f"{path.parent.name}/{path.name}" for path in outputs_beside(self.folder, cases)))

    def unused_structures(self, cases: frozenset[str]) -> Unused:
        return Unused(tuple(structures_beside(self.folder, cases)))


def outputs_beside(folder: Path, cases: frozenset[str]) -> list[Path]:
    """The files of outputs, of every device class, that are of none of `cases`; others are nobody's."""
    found = sorted(folder.glob(f"*/*.{OUTPUT_SUFFIX}"))
    return [path for path in found if path.stem not in cases and is_snapshot(path)]


def structures_beside(folder: Path, cases: frozenset[str]) -> list[str]:
    """The entries of `structure.ambr` that are of none of `cases`; of a file that cannot be read its cases tell."""
    try:
        return sorted(set(read_structure(structure_file(folder))) - {structure_name(case) for case in cases})
    except SnapshotError:
        return []


def structure_file(folder: Path) -> Path:
    return folder / f"{STRUCTURE_FILE}.ambr"


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
