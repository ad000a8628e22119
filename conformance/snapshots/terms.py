"""Where an adapter's snapshots lie, and on what terms a run uses them. Imports nothing heavy: every spec does.

::

    adapters/NAME/snapshots/structure.ambr                 what is exact, on every device
    adapters/NAME/snapshots/DEVICE-CLASS/CASE.safetensors  what was heard, one file a case
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conformance.catalogue import Machine
    from conformance.spec import AdapterSpec

CHECKS = frozenset({"CG902", "CG903"})
FOLDER = "snapshots"
STRUCTURE_FILE = "structure"
OUTPUT_SUFFIX = "safetensors"
SEED = 0
"""Snapshots are of this seed alone: another draws other weights and other inputs."""
UPDATE = "`--snapshot-update` writes them"


@dataclass(frozen=True)
class SnapshotTerms:
    """What a run was asked for. `update` says that what is missing or differs is written (`--snapshot-update`)."""

    update: bool = False
    seed: int = SEED
    checkpoint: bool = False


def snapshot_folder(spec: AdapterSpec) -> Path | None:
    """The folder of an adapter's snapshots, whether it exists or not; None for a spec that no file defines.

    `snapshots/` in a folder of the adapter's own name, `snapshots/NAME/` in one that may hold several.
    """
    if spec.snapshot_folder is not None:
        return spec.snapshot_folder
    try:
        home = Path(inspect.getfile(type(spec))).absolute().parent
    except (OSError, TypeError):
        return None
    return home / FOLDER if home.name == spec.name else home / FOLDER / spec.name


def why_no_structure(spec: AdapterSpec) -> str | None:
    """Why the exact part is not held against a snapshot in this run, if it is not."""
    terms = spec.snapshot_terms
    return _why_none(spec) or (_other_seed(terms) if _lengths_are_computed(spec) else None)


def why_no_output(spec: AdapterSpec) -> str | None:
    """Why what is heard is not held against a snapshot in this run, if it is not."""
    return _why_none(spec) or _other_seed(spec.snapshot_terms)


def _why_none(spec: AdapterSpec) -> str | None:
    folder = snapshot_folder(spec)
    if folder is None or not (spec.snapshot_terms.update or folder.is_dir()):
        return f"no snapshots are kept; {UPDATE}"
    if spec.snapshot_terms.checkpoint:
        return "snapshots are of the tiny weights; this run has a checkpoint's"
    return None


def _other_seed(terms: SnapshotTerms) -> str | None:
    return f"snapshots are of seed {SEED}; this run has seed {terms.seed}" if terms.seed != SEED else None


def _lengths_are_computed(spec: AdapterSpec) -> bool:
    """Whether the module's own outputs tell the rows' lengths, so that these change with its weights."""
    given = {declared.name for declared in spec.adapter.inputs}
    asked = {getattr(declared.length, "lengths", None) for declared in spec.adapter.outputs}
    return not asked - {None} <= given


def device_class(machine: Machine) -> str:
    """What outputs may depend on beside the code: `emulated`, or the GPU's architecture, such as `cuda-sm90`."""
    if machine.device != "cuda":
        return machine.device
    import torch

    major, minor = torch.cuda.get_device_capability()
    return f"cuda-sm{major}{minor}"


def output_folder(folder: Path, wanted: str, *, update: bool) -> Path:
    """The folder of the outputs of device class `wanted`; while it is missing, that of the nearest class there is.

    Under `update` always its own: another class's files are read, never written.
    """
    own = folder / wanted
    if update or own.is_dir():
        return own
    family = wanted.partition("-")[0]
    others = [path for path in folder.glob("*") if any(path.glob(f"*.{OUTPUT_SUFFIX}"))]
    return min(others, key=lambda path: (path.name.partition("-")[0] != family, path.name), default=own)
