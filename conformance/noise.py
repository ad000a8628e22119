"""How much eager alone varies on this machine, and so how much a replay may differ from it.

Measured in the same process under strict numerics: the same call twice, and a row alone against the row in a batch.
Never padded against unpadded, since that is what is being tested.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from conformance.catalogue import Inconclusive
from runner.capture import compiled

if TYPE_CHECKING:
    from conformance.subject import Subject

MARGIN = 4.0
ULPS = 64.0
LIMIT = 1e-3
SHAPE_LIMIT = 1e-4


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Floors, relative to the peak of the output that was compared.

    `repeat` is the same call twice. `shape` is a row alone against the row in a batch: what another shape of the same
    computation costs, 5e-5 on an H200. `compiled`, for a runner that captures it, is what torch.compile makes of the
    module against the module. More than `SHAPE_LIMIT` is no rounding but another computation, and excuses nothing.
    """

    repeat: float
    shape: float
    compiled: float = 0.0

    def allowance(self, expected: torch.Tensor, *, same_shape: bool) -> float:
        """The largest absolute difference from `expected` that is not a fault.

        `same_shape` says that the replay computed what eager did, with nothing padded. Raises :class:`Inconclusive`
        where eager does not repeat itself well enough for a fault to be seen.
        """
        if self.repeat > LIMIT:
            raise Inconclusive(
                f"eager alone varies by {self.repeat:.1e} of its peak, more than {LIMIT:g}: a fault could hide in that"
            )
        if not expected.dtype.is_floating_point or not expected.numel():
            return 0.0
        floor = max(self.repeat, min(self.compiled, SHAPE_LIMIT))
        floor = floor if same_shape else max(floor, min(self.shape, SHAPE_LIMIT))
        return max(MARGIN * floor, ULPS * torch.finfo(expected.dtype).eps) * float(expected.abs().max())


def measure_noise(subject: Subject) -> Noise:
    """Run the module eagerly at every bucket: twice, and each row alone. Returns the worst relative differences."""
    repeat = shape = compiled = 0.0
    other = _compiled(subject) if subject.spec.config and subject.spec.config.compile else None
    for bucket in subject.spec.buckets:
        inputs = subject.draw(bucket, "noise")
        first, second = subject.eager(inputs), subject.eager(inputs)
        rows = bucket.get(subject.row_axis or "", 1)
        frames = bucket.get(subject.time_axis or "", 1)
        comparable = rows > 1 and not subject.spec.capabilities.randomness.supported  # a row alone draws other numbers
        alone = [subject.eager_row(inputs, row, frames) for row in range(rows)] if comparable else []
        again = other.eager(inputs) if other else first
        for name, expected in first.items():
            for row, tensor in enumerate(expected):
                repeat = max(repeat, _relative(second[name][row], tensor))
                compiled = max(compiled, _relative(again[name][row], tensor))
                if alone and len(expected) == rows:
                    shape = max(shape, _relative(alone[row][name][0], tensor))
    return Noise(repeat=repeat, shape=shape, compiled=compiled)


def _compiled(subject: Subject) -> Subject:
    """The subject with what torch.compile makes of its forward, as eager: the compile tier without its graphs."""
    other = copy.copy(subject)
    other.adapter = copy.copy(subject.adapter)
    other.adapter.forward = compiled(subject.adapter.forward)  # type: ignore[method-assign]
    return other


def _relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    if not expected.dtype.is_floating_point or not expected.numel() or found.shape != expected.shape:
        return 0.0
    peak = float(expected.abs().max())
    return float((found.double() - expected.double()).abs().max()) / peak if peak else 0.0
