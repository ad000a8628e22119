"""Files of reports: known to be writable before a run, and never half written after it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from conformance.errors import ConformanceError


class ReportError(ConformanceError):
    """A report that cannot be read or written. The message begins with its path."""


def require_writable(path: Path) -> None:
    """Raise :class:`ReportError` before a run whose report could not be written after it."""
    try:
        _try_to_write(path)
    except OSError as error:
        raise ReportError(f"{path}: may not be written: {error.strerror}") from error


def _try_to_write(path: Path) -> None:
    folder = path.absolute().parent
    if path.is_dir():
        raise ReportError(f"{path}: is a folder; expected the name of a file to write")
    if not folder.is_dir():
        raise ReportError(f"{path}: there is no folder {folder}; make it first")
    if path.exists() and not os.access(path, os.W_OK):
        raise ReportError(f"{path}: may not be written")
    if _is_whole(path):
        _half_of(path).touch()
        _half_of(path).unlink()


def require_apart(files: Mapping[str, Path]) -> None:
    """Raise :class:`ReportError` where two reports are to be one file: the second would replace the first."""
    kinds: dict[Path, str] = {}
    for kind, path in files.items():
        known = kinds.setdefault(path.resolve(), kind)
        if known != kind and _is_whole(path):
            raise ReportError(f"{path}: named for the {known} and the {kind} report; each needs a file of its own")


def write_whole(path: Path, text: str) -> None:
    """Write `text` so that a reader meets the old file or the new one, never half of it."""
    half = _half_of(path)
    try:
        if _is_whole(path):
            half.write_text(text, encoding="utf-8")
            half.replace(path.resolve())
        else:
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        half.unlink(missing_ok=True)
        raise ReportError(f"{path}: {error.strerror}") from error


def _half_of(path: Path) -> Path:
    target = path.resolve()
    return target.with_name(f".{target.name}.{os.getpid()}")


def _is_whole(path: Path) -> bool:
    """Whether a file can take the place of `path`: not of a pipe, nor of /dev/stdout."""
    return path.is_file() or not path.exists()
