"""syrupy, taught where an adapter's snapshots lie and when two of them match.

By itself syrupy keeps snapshots beside the test module, which is the kit's own for every adapter: it would write into
site-packages, and delete one adapter's snapshots while another's are tested. So the place comes from the test item.

What is unused is what no case of that adapter stands for, whichever cases were selected or reached their snapshot. A
case of the check judges it, so that verdict, reports and exit code agree; syrupy is told of nothing that is unused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.data import SnapshotCollection, SnapshotCollections
from syrupy.exceptions import TaintedSnapshotError
from syrupy.extensions.amber import AmberDataSerializer, AmberSnapshotExtension
from syrupy.extensions.base import AbstractSyrupyExtension
from syrupy.extensions.single_file import SingleFileSnapshotExtension
from syrupy.location import PyTestLocation
from syrupy.session import SnapshotSession

from conformance.snapshots.files import SnapshotError, decode, encode, write_bytes
from conformance.snapshots.judgement import judge
from conformance.snapshots.record import Record
from conformance.snapshots.store import (
    Recalled,
    Unused,
    outputs_beside,
    read_structure,
    structure_file,
    structures_beside,
)
from conformance.snapshots.structure import changed_lines
from conformance.snapshots.terms import OUTPUT_SUFFIX, STRUCTURE_FILE, output_folder


@dataclass(frozen=True)
class Place:
    """Where the snapshot of one test item lies."""

    folder: Path
    files: Path
    case: str


PLACE = pytest.StashKey[Place]()


def _place(test_location: PyTestLocation) -> Place | None:
    """The place of an item of the kit; none for others, and for what syrupy builds anew in a distributed run."""
    stash = getattr(test_location.item, "stash", None)
    return None if stash is None else stash.get(PLACE, None)


class _BesideTheAdapter(AbstractSyrupyExtension):
    """What both kinds of file have in common: the place."""

    write_immediately = True  # an error of the file system is then the case's, not the session's

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        place = _place(test_location)
        return str(place.files if place else Path(test_location.filepath).parent / "nowhere")

    @classmethod
    def discovery_dirname(cls, *, test_location: PyTestLocation) -> str:
        place = _place(test_location)
        return str(place.folder if place else Path(test_location.filepath).parent / "nowhere")

    @classmethod
    def matches_test_location(cls, *, test_location: PyTestLocation, snapshot_location: str) -> bool:
        place = _place(test_location)
        return place is not None and cls.get_location(test_location=test_location, index=0) == snapshot_location

    def discover_snapshots(
        self, *, test_location: PyTestLocation, ignore_extensions: list[str] | None = None
    ) -> SnapshotCollections:
        """None: syrupy would call those unused whose case was not selected or failed before it was compared."""
        return SnapshotCollections()


class OutputExtension(_BesideTheAdapter, SingleFileSnapshotExtension):
    """One safetensors file a case, which matches within the limits that it was written with."""

    file_extension = OUTPUT_SUFFIX

    def serialize(self, data: Any, **_: Any) -> bytes:
        return encode(data)

    def matches(self, *, serialized_data: Any, snapshot_data: Any) -> bool:
        """False for a file that cannot be read: `--snapshot-update` then writes it anew."""
        here = Path(self.file_extension)
        try:
            return judge(decode(serialized_data, here), decode(snapshot_data, here)).matches
        except SnapshotError:
            return False

    def diff_lines(self, serialized_data: Any, snapshot_data: Any) -> Iterator[str]:
        here = Path(self.file_extension)
        try:
            yield from judge(decode(serialized_data, here), decode(snapshot_data, here)).table()
        except SnapshotError as error:
            yield str(error)

    @classmethod
    def get_file_basename(cls, *, test_location: PyTestLocation, index: Any) -> str:
        place = _place(test_location)
        return place.case if place else ""

    @classmethod
    def write_snapshot_collection(
        cls, *, snapshot_collection: SnapshotCollection, name_order: dict[str, int] | None = None
    ) -> None:
        data = next(iter(snapshot_collection)).data
        write_bytes(Path(snapshot_collection.location), data if isinstance(data, bytes) else b"")


class StructureExtension(_BesideTheAdapter, AmberSnapshotExtension):
    """One amber file an adapter, compared as text."""

    @classmethod
    def get_file_basename(cls, *, test_location: PyTestLocation, index: Any) -> str:
        return STRUCTURE_FILE

    def read_snapshot_data_from_location(
        self, snapshot_location: str, snapshot_name: str, session_id: str
    ) -> str | None:
        """Read anew each time: syrupy's own cache is kept by an address, which another session may have later."""
        try:
            return read_structure(Path(snapshot_location)).get(snapshot_name)
        except SnapshotError as error:
            raise TaintedSnapshotError from error

    @classmethod
    def write_snapshot_collection(
        cls, *, snapshot_collection: SnapshotCollection, name_order: dict[str, int] | None = None
    ) -> None:
        """Into the file's other entries, or in the place of a file that cannot be read."""
        try:
            read_structure(Path(snapshot_collection.location))
            readable = True
        except SnapshotError:
            readable = False
        AmberDataSerializer.write_file(snapshot_collection, merge=readable, name_order=name_order)

    def diff_lines(self, serialized_data: Any, snapshot_data: Any) -> Iterator[str]:
        yield from changed_lines(str(serialized_data), str(snapshot_data))


class SyrupyStore:
    """The snapshots of one test item, through syrupy: its options, its report and its exit codes hold.

    It makes the assertion itself, where the fixture `snapshot` may be an author's own.
    """

    def __init__(self, item: pytest.Item, session: SnapshotSession, folder: Path):
        self._item, self._session, self._folder = item, session, folder
        option = item.config.option
        self._cleans = bool(option.update_snapshots and not option.no_cleanup)
        self._update, self._new_only = bool(option.update_snapshots), bool(option.update_new_snapshots_only)

    def output(self, name: str, found: Record) -> Recalled:
        files = output_folder(self._folder, found.header.device_class, update=self._update or self._new_only)
        return self._recall(OutputExtension, files, name, found)

    def structure(self, name: str, found: Mapping[str, Any]) -> Recalled:
        return self._recall(StructureExtension, self._folder, name, found)

    def unused_outputs(self, cases: frozenset[str]) -> Unused:
        found = outputs_beside(self._folder, cases)
        if self._cleans:
            for path in found:
                path.unlink(missing_ok=True)
        return Unused(tuple(f"{path.parent.name}/{path.name}" for path in found), self._cleans)

    def unused_structures(self, cases: frozenset[str]) -> Unused:
        found = structures_beside(self._folder, cases)
        if self._cleans and found:
            file = str(structure_file(self._folder))
            StructureExtension().delete_snapshots(snapshot_location=file, snapshot_names=set(found))
        return Unused(tuple(found), self._cleans)

    def _recall(self, extension: type[AbstractSyrupyExtension], files: Path, name: str, found: Any) -> Recalled:
        self._item.stash[PLACE] = Place(self._folder, files, name)
        assertion = SnapshotAssertion(
            session=self._session,
            extension_class=extension,
            test_location=PyTestLocation(self._item),
            update_snapshots=self._update,
            update_new_snapshots_only=self._new_only,
        )
        assertion == found  # noqa: B015 - syrupy compares, and writes, in the comparison
        [result] = assertion.executions.values()
        error: BaseException | None = result.exception
        if isinstance(error, TaintedSnapshotError):
            error = error.__cause__ or SnapshotError("of another version of syrupy")
        return Recalled(Path(result.snapshot_location), result.final_data, result.created or result.updated, error)
