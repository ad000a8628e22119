"""What is kept of a call: a header, and float32 arrays within a fixed budget.

Of a float output's row: its peak and level, its first and last values, a seeded sample of those between, and log-mel
bands of the whole. Of an integer output's row: a digest of all values, and the first ones to show a difference by.
Values of several channels lie side by side, instant by instant.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from conformance.snapshots import metrics
from conformance.snapshots.header import LOOSE, STRICT, Fingerprint, Header, Limits, OutputHeader, Slices
from conformance.snapshots.terms import device_class

if TYPE_CHECKING:
    from conformance.subject import Inputs, Outputs, Rows, Subject

MAX_VALUES = 11_000  # of four bytes: a file stays below 64 kB with its header
MAX_ROWS = 32  # over all outputs, whose values are kept; of the others only peak and level
MAX_CHANNELS = 8  # more of them are features, which have no mel bands


@dataclass(frozen=True)
class Record:
    """One call, as it is kept. Arrays are on the host: `wav.peak` `[rows]`, `wav.0.head` and its like."""

    header: Header
    arrays: Mapping[str, torch.Tensor]

    @property
    def sizes(self) -> Mapping[str, int]:
        return {name: array.numel() for name, array in self.arrays.items()}

    def promised_arrays(self) -> Iterator[tuple[str, int | None]]:
        """Name and number of values (None: any) of every array of float outputs that the header promises."""
        for name, output in self.header.outputs.items():
            if output.slices:
                yield f"{name}.peak", len(output.shapes)
                yield f"{name}.rms", len(output.shapes)
            for row, part in zip(output.kept, output.slices, strict=False):
                yield f"{name}.{row}.head", part.head
                yield f"{name}.{row}.tail", part.tail
                yield f"{name}.{row}.sample", part.sample
                if output.bands:
                    yield f"{name}.{row}.log_mel", None


def make_record(subject: Subject, case: str, inputs: Inputs, outputs: Outputs, budget: int = MAX_VALUES) -> Record:
    """What is kept of `outputs`, which the subject gave for `inputs`. `budget` counts values of four bytes."""
    heard = set(subject.lasting_outputs())
    most = max(1, MAX_ROWS // len(outputs))
    kept = {name: spread(len(rows), most) for name, rows in outputs.items()}
    share = budget // max(1, sum(map(len, kept.values())))
    headers: dict[str, OutputHeader] = {}
    arrays: dict[str, torch.Tensor] = {}
    for name, rows in outputs.items():
        keep = _keep_floats if _is_float(rows) else _keep_integers
        headers[name], own = keep(rows, kept[name], share, name in heard, subject.spec.sample_rate)
        arrays |= {f"{name}.{key}": array for key, array in own.items()}
    spec = subject.spec
    header = Header(
        adapter=spec.name,
        case=case,
        device_class=device_class(subject.machine),
        machine=subject.machine.name,
        seed=subject.seed,
        sample_rate=spec.sample_rate,
        random=spec.capabilities.randomness.supported,
        versions=_versions(subject),
        inputs={name: _digest(tensor) for name, tensor in inputs.items()},
        weights=_fingerprint(list(getattr(subject.module, "parameters", list)())),
        metric={"bands": metrics.BANDS, "window": metrics.WINDOW, "range_db": metrics.DYNAMIC_RANGE},
        outputs=headers,
    )
    return Record(header, arrays)


def _keep_floats(
    rows: Rows, kept: Sequence[int], share: int, heard: bool, sample_rate: int
) -> tuple[OutputHeader, dict[str, torch.Tensor]]:
    host = [_real(row.detach().cpu()) for row in rows]
    signals = [_channels(row) for row in host]
    bands = heard and all(signal.shape[0] <= MAX_CHANNELS for signal in signals)
    cells = metrics.BANDS * metrics.SEGMENTS if bands else 0
    arrays = {
        "peak": torch.tensor([float(row.abs().max()) if row.numel() else 0.0 for row in host]),
        "rms": torch.tensor([float(row.square().mean().sqrt()) if row.numel() else 0.0 for row in host]),
    }
    slices = []
    for row in kept:
        values = signals[row].T.reshape(-1)
        slices.append(_slices(values.numel(), max(16, share - cells)))
        arrays |= {f"{row}.{part}": values[at].float() for part, at in slices[-1].positions(values.numel()).items()}
        if bands:
            arrays[f"{row}.log_mel"] = metrics.log_mel(signals[row], sample_rate)
    coarse = 8.0 * torch.finfo(rows[0].dtype).eps
    header = OutputHeader(
        dtype=_name(rows),
        shapes=tuple(tuple(row.shape) for row in rows),
        kept=tuple(kept),
        heard=heard,
        bands=bands,
        strict=_coarser(STRICT, coarse),
        loose=_coarser(LOOSE, coarse),
        slices=tuple(slices),
    )
    return header, arrays


def _keep_integers(
    rows: Rows, kept: Sequence[int], share: int, heard: bool, sample_rate: int
) -> tuple[OutputHeader, dict[str, torch.Tensor]]:
    host = [row.detach().cpu().reshape(-1).to(torch.int64) for row in rows]
    header = OutputHeader(
        dtype=_name(rows),
        shapes=tuple(tuple(row.shape) for row in rows),
        kept=tuple(kept),
        heard=False,
        bands=False,
        strict=Limits(0.0, 0.0, 0.0),
        loose=Limits(0.0, 0.0, 0.0),
        digests=tuple(hashlib.sha256(row.numpy().tobytes()).hexdigest()[:16] for row in host),
    )
    return header, {f"{row}.values": host[row][: max(8, share // 2)].clone() for row in kept}


def _channels(row: torch.Tensor) -> torch.Tensor:
    """`row` as `[channels, samples]`, whatever stands before its last axis."""
    return row.reshape(math.prod(row.shape[:-1]), row.shape[-1]) if row.dim() else row.reshape(1, 1)


def _slices(total: int, most: int) -> Slices:
    """All of a short row; of a long one a quarter from the head, a quarter from the tail, and a sample."""
    if total <= most:
        return Slices(total)
    return Slices(most // 4, most // 4, most - 2 * (most // 4))


def spread(count: int, most: int) -> list[int]:
    """Indices of at most `most` of `count` things, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return [round(step * (count - 1) / max(1, most - 1)) for step in range(most)]


def _coarser(limits: Limits, coarse: float) -> Limits:
    """Limits for a dtype of less precision: a rounding of `coarse` is 8.7 dB times that."""
    return Limits(max(limits.max_abs, coarse), max(limits.l2, coarse), max(limits.log_mel, 8.7 * coarse))


def _is_float(rows: Rows) -> bool:
    return all(row.dtype.is_floating_point or row.dtype.is_complex for row in rows)


def _real(row: torch.Tensor) -> torch.Tensor:
    """Float64 `row`; real and imaginary parts lie side by side, as channels."""
    return torch.view_as_real(row).movedim(-1, 0).double() if row.is_complex() else row.double()


def _name(rows: Rows) -> str:
    return ", ".join(sorted({str(row.dtype).removeprefix("torch.") for row in rows}))


def _digest(tensor: torch.Tensor) -> str | Fingerprint:
    """Exact for integers. Drawn floats may round differently on another processor."""
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return _fingerprint([tensor])
    host = tensor.detach().cpu().to(torch.int64).contiguous()
    return hashlib.sha256(f"{tuple(host.shape)}".encode() + host.numpy().tobytes()).hexdigest()


def _fingerprint(tensors: Sequence[torch.Tensor]) -> Fingerprint:
    """The norm of all values, and their projection on a fixed direction: other values of the same norm differ there."""
    flat = [_real(tensor.detach().cpu()).reshape(-1) for tensor in tensors]
    values = torch.cat(flat) if flat else torch.zeros(0, dtype=torch.float64)
    direction = torch.cos(torch.arange(values.numel(), dtype=torch.float64).square())
    return float(torch.linalg.vector_norm(values)), float(values @ direction)


def _versions(subject: Subject) -> dict[str, str]:
    found = {"torch": subject.machine.torch_version}
    for name in ("audiograph", *(requirement.module for requirement in subject.spec.requires)):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found
