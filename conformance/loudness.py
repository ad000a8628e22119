"""A subject whose eager outputs are silent or not finite is refused: every comparison would pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from conformance.compare import QUIETEST
from conformance.errors import ConformanceError

if TYPE_CHECKING:
    from conformance.subject import Subject


class SubjectRefused(ConformanceError):
    """The subject cannot be judged: its outputs are silent or not finite."""


def refuse_silence(subject: Subject) -> None:
    """Raise :class:`SubjectRefused` for outputs of the first bucket that nobody could hear."""
    sizes = dict(subject.spec.buckets[0])
    outputs = subject.eager(subject.draw(sizes, "loudness"))
    for name in subject.lasting_outputs():
        for row in outputs[name]:
            if not row.dtype.is_floating_point:
                continue
            peak = float(row.abs().max()) if row.numel() else 0.0
            if not torch.isfinite(row).all() or not peak >= QUIETEST:
                raise SubjectRefused(
                    f"{subject.spec.name}: eager output {name!r} at {sizes} has a peak of {peak:.1e}; expected finite "
                    f"and at least {QUIETEST:g}. Default initialisation hides faults: re-initialise matrices with a "
                    "normal of about 0.15"
                )
