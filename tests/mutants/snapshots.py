"""Mistakes that are alike on both paths, which only what was kept before can tell.

The truth is recorded in this process from the correct subject, into a folder of its own.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from syrupy.data import Snapshot, SnapshotCollection
from syrupy.extensions.amber import AmberDataSerializer
from torch import nn

from conformance.catalogue import Machine
from conformance.engine import checks_for
from conformance.snapshots.files import encode, write_bytes
from conformance.snapshots.record import Record
from conformance.snapshots.store import FileStore, Recalled, structure_name
from conformance.snapshots.structure import to_amber
from conformance.snapshots.terms import CHECKS
from conformance.subject import open_subject
from runner import GraphRunner
from runner.capture import CallPlan
from tests.mutants.base import HOP, Mutant, ReferenceAdapter, ReferenceSpec, with_adapter, with_runner

FOLDER = Path(tempfile.gettempdir()) / f"audiograph-truth-{os.getpid()}"
_recorded: set[int] = set()


class _WritingStore(FileStore):
    """Takes whatever is found for the truth."""

    def output(self, name: str, found: Record) -> Recalled:
        write_bytes(FOLDER / found.header.device_class / f"{name}.safetensors", encode(found))
        return super().output(name, found)

    def structure(self, name: str, found: Mapping[str, Any]) -> Recalled:
        collection = SnapshotCollection(location=str(FOLDER / "structure.ambr"))
        collection.add(Snapshot(structure_name(name), to_amber(found)))
        AmberDataSerializer.write_file(collection, merge=True)
        return super().structure(name, found)


class KeptSpec(ReferenceSpec):
    """The correct subject with snapshots of itself."""

    name = "correct_kept"
    snapshot_folder: ClassVar[Path | None] = FOLDER

    @staticmethod
    def record_truth(machine: Machine, seed: int) -> None:
        """Write the snapshots of the correct subject, for the seed of the run."""
        if seed in _recorded:
            return
        atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir()
        subject = open_subject(KeptSpec(), machine, seed, None)
        try:
            subject.snapshots = _WritingStore(FOLDER)
            for check, case in checks_for(subject):
                if check.code in CHECKS:
                    check(subject, case)
        finally:
            subject.close()
        _recorded.clear()
        _recorded.add(seed)


class _Louder(nn.Module):
    def __init__(self, codec: Any) -> None:
        super().__init__()
        self.codec = codec
        self.n_vq = codec.n_vq

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        louder: torch.Tensor = self.codec(codes) * 1.001
        return louder


class Louder(KeptSpec):
    """The module's gain is 1.001 of what it was, on both paths.

    https://github.com/vllm-project/vllm-omni/issues/4309
    """

    name = "Louder"

    def build(self, device: torch.device, checkpoint: Path | None) -> Any:
        return self.adapter(_Louder(super().build(device, checkpoint).module))


class OtherCodebook(KeptSpec):
    """One vector of one codebook is 1 % longer than it was. https://github.com/vllm-project/vllm-omni/issues/4309"""

    name = "OtherCodebook"

    def build(self, device: torch.device, checkpoint: Path | None) -> Any:
        made = super().build(device, checkpoint)
        with torch.no_grad():
            made.module.codebooks[0].weight[:16].mul_(1.01)
        return made


class ShorterHead(KeptSpec):
    """The last convolution has 5 taps where it had 7: 8·T − 4 samples, on both paths.

    https://github.com/vllm-project/vllm-omni/issues/4466
    """

    name = "ShorterHead"

    def build(self, device: torch.device, checkpoint: Path | None) -> Any:
        made = super().build(device, checkpoint)
        made.module.head = nn.Conv1d(made.module.head.in_channels, 1, kernel_size=5).to(device)
        return made


class LostBucket(KeptSpec):
    """A bucket is gone from the table: its calls are padded further. https://github.com/sgl-project/sglang-omni/pull/886"""

    name = "LostBucket"
    buckets = ({"batch": 1, "frames": 4}, {"batch": 4, "frames": 8})


class ResultInADict(ReferenceAdapter):
    """What was a tensor is now a dict of one, on both paths. https://github.com/vllm-project/vllm-omni/issues/4924"""

    def forward(self, codes: torch.Tensor) -> Any:
        return {"wav": super().forward(codes)}


class _PadsFurther(GraphRunner):
    """A padded call of one row is served by the bucket of four."""

    def _decide(self, inputs: Any) -> Any:
        decision = super()._decide(inputs)
        if isinstance(decision, CallPlan) and decision.sizes == {"batch": 1, "frames": HOP - 1}:
            larger = next(captured for bucket, captured in self._graphs.items() if str(bucket) == f"b4-f{HOP}")
            return CallPlan(self._adapter, larger, decision.sizes, inputs, decision.served)
        return decision


MUTANTS = tuple(
    Mutant(spec, frozenset(codes.split()))
    for spec, codes in (
        (Louder, "CG903"),
        (OtherCodebook, "CG903"),
        (ShorterHead, "CG902 CG903"),
        (LostBucket, "CG902 CG903"),
        (with_adapter(KeptSpec, ResultInADict), "CG902"),
        (
            with_runner(
                _PadsFurther,
                "PadsFurther",
                "A call of one row and seven frames replays the bucket of four rows. "
                "https://github.com/vllm-project/vllm/issues/8068",
                KeptSpec,
            ),
            "CG406 CG701 CG902",
        ),
    )
)
