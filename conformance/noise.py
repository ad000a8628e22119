"""How much eager alone varies on this machine, and so how much a replay may differ from it.

Measured in the same process under strict numerics: the same call twice, and a row alone against the row in a batch.
Never padded against unpadded, since that is what is being tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from conformance.catalogue import Inconclusive

if TYPE_CHECKING:
    from conformance.subject import Subject

MARGIN = 4.0
ULPS = 64.0
LIMIT = 1e-3


@dataclass(frozen=True)
class Noise:
    """The floor, relative to the peak of the output that was compared."""

    floor: float

    def allowance(self, expected: torch.Tensor) -> float:
        """The largest absolute difference from `expected` that is not a fault.

        Raises :class:`Inconclusive` where eager varies so much that a fault could hide in it.
        """
        if self.floor > LIMIT:
            raise Inconclusive(
                f"eager alone varies by {self.floor:.1e} of its peak, more than {LIMIT:g}: a fault could hide in that"
            )
        peak = float(expected.abs().max()) if expected.numel() else 0.0
        rounding = ULPS * torch.finfo(expected.dtype).eps if expected.dtype.is_floating_point else 0.0
        return max(MARGIN * self.floor, rounding) * peak


def measure_noise(subject: Subject) -> Noise:
    """Run the module eagerly at every bucket: twice, and each row alone. Returns the worst relative difference."""
    worst = 0.0
    for bucket in subject.spec.buckets:
        inputs = subject.draw(bucket, "noise")
        first, second = subject.eager(inputs), subject.eager(inputs)
        rows = bucket.get(subject.row_axis or "", 1)
        frames = bucket.get(subject.time_axis or "", 1)
        alone = [subject.eager_row(inputs, row, frames) for row in range(rows)] if rows > 1 else []
        for name, expected in first.items():
            for row, tensor in enumerate(expected):
                worst = max(worst, _relative(second[name][row], tensor))
                if alone and len(expected) == rows:
                    worst = max(worst, _relative(alone[row][name][0], tensor))
    return Noise(worst)


def _relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    if not expected.numel() or found.shape != expected.shape:
        return 0.0
    peak = float(expected.abs().max())
    return float((found.double() - expected.double()).abs().max()) / peak if peak else 0.0
