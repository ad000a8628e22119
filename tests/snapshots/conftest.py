"""A small adapter of a third party, its snapshots beside it, and runs of the suite on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.outcome import CaseRecord
from tests.inner_run import run_suite

SPEC = """
import torch
from conformance.registry import spec_of

_reference = type(spec_of("reference"))

class Codec(_reference):
    name = {name!r}
    buckets = {buckets}

    def build(self, device, checkpoint):
        made = super().build(device, checkpoint)
        forward = made.module.forward

        def drifted(codes):
            wav = forward(codes)
            {drift}
            return wav

        made.module.forward = drifted
        return made
"""
BUCKETS = ({"batch": 1, "frames": 4}, {"batch": 2, "frames": 8})
ONLY = ("-k", "CG902 or CG903")
CASES = ("b1-f4", "b2-f8", "b1-f3-in-b1-f4", "b1-f7-in-b2-f8")

WriteCodec = Callable[..., Path]
RunCodec = Callable[..., tuple[list[CaseRecord], int]]


@pytest.fixture
def codec(pytester: pytest.Pytester) -> WriteCodec:
    """Write the adapter of that name into a folder, whose outputs drift by the statement given on both paths."""

    def write(name: str = "codec", drift: str = "pass", folder: str = "", buckets: object = BUCKETS) -> Path:
        home = pytester.path / (folder or name)
        home.mkdir(parents=True, exist_ok=True)
        path = home / ("spec.py" if not folder else f"{name}.py")
        path.write_text(SPEC.format(name=name, drift=drift, buckets=buckets))
        return path

    return write


@pytest.fixture
def run(pytester: pytest.Pytester) -> RunCodec:
    """Run the two checks of snapshots on the adapter files given, in this process.

    Gives the records of the cases that have a snapshot: what is unused has tests of its own.
    """

    def call(*words: str | Path) -> tuple[list[CaseRecord], int]:
        tokens = [f"--adapter={word}" if isinstance(word, Path) else word for word in words]
        selection = () if any(word.startswith("-k") for word in tokens) else ONLY
        records, exit_code = run_suite(pytester, *tokens, *selection)
        return [record for record in records if record.case != "unused"], exit_code

    return call


def files_of(home: Path) -> dict[str, tuple[int, bytes]]:
    """Every file of a snapshot folder by its path there, with its time of change and its bytes."""
    return {
        str(path.relative_to(home)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(home.rglob("*"))
        if path.is_file()
    }
