"""The header of a snapshot: all that is exact about a call, and the limits for what is not. Plain values alone."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

Fingerprint = tuple[float, float]
"""Norm and projection of values that another processor may round differently."""


@dataclass(frozen=True)
class Limits:
    """How far an output may be from its snapshot: relative to its peak, relative to its energy, and in dB."""

    max_abs: float
    l2: float
    log_mel: float


STRICT = Limits(max_abs=1e-4, l2=1e-4, log_mel=0.01)
LOOSE = Limits(max_abs=1e-3, l2=1e-3, log_mel=0.1)
"""Measured. Within one device class (a CPU, the adapters `reference` and `moss_tts`): with another number of threads
the same bits, without oneDNN 5e-7 of the peak, with other instruction sets (none, AVX2, AVX-512) 4e-6 and 2e-5 dB.
Between a CPU and an H200 under strict numerics, tiny versions of nine audio codecs: at most 1.2e-5 of the peak (with
TF32, which a run turns off, up to 5e-3). A gain of 1.001, which must be seen, is 1e-3 and 0.009 dB."""


@dataclass(frozen=True)
class Slices:
    """How many of a row's values are kept: from its head, from its tail, and sampled from those between."""

    head: int
    tail: int = 0
    sample: int = 0

    def positions(self, total: int) -> Mapping[str, torch.Tensor]:
        """The kept positions of a row of `total` values, part by part. The same in every process."""
        generator = torch.Generator()
        generator.manual_seed(zlib.crc32(f"{total}:{self}".encode()))
        between = total - self.head - self.tail
        drawn = torch.randperm(between, generator=generator)[: self.sample].sort().values
        return {
            "head": torch.arange(self.head),
            "tail": torch.arange(total - self.tail, total),
            "sample": drawn + self.head,
        }


@dataclass(frozen=True)
class OutputHeader:
    """What is exact about one output. `shapes` are those of all rows, `slices` and `digests` of the `kept` ones."""

    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    kept: tuple[int, ...]
    heard: bool
    bands: bool
    strict: Limits
    loose: Limits
    slices: tuple[Slices, ...] = ()
    digests: tuple[str, ...] = ()


@dataclass(frozen=True)
class Header:
    """`inputs` are digests by name, or fingerprints where rounding may differ; `weights` a fingerprint of all of them.

    `random` says that the call draws numbers, which another device class draws otherwise.
    """

    adapter: str
    case: str
    device_class: str
    machine: str
    seed: int
    sample_rate: int
    random: bool
    versions: Mapping[str, str]
    inputs: Mapping[str, str | Fingerprint]
    weights: Fingerprint
    metric: Mapping[str, float]
    outputs: Mapping[str, OutputHeader]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Header:
        """Raises KeyError, TypeError or ValueError for what `to_json` did not give."""
        outputs = {name: _output_header(output) for name, output in values["outputs"].items()}
        inputs = {n: value if isinstance(value, str) else _pair(value) for n, value in values["inputs"].items()}
        return cls(**{**values, "outputs": outputs, "inputs": inputs, "weights": _pair(values["weights"])})


def _pair(value: Sequence[float]) -> Fingerprint:
    norm, projection = value
    return float(norm), float(projection)


def _output_header(values: Mapping[str, Any]) -> OutputHeader:
    return OutputHeader(
        **{
            **values,
            "shapes": tuple(tuple(int(size) for size in shape) for shape in values["shapes"]),
            "kept": tuple(int(row) for row in values["kept"]),
            "strict": Limits(**values["strict"]),
            "loose": Limits(**values["loose"]),
            "slices": tuple(Slices(**part) for part in values["slices"]),
            "digests": tuple(values["digests"]),
        }
    )
