"""The subject in another precision: its module cast to a dtype, or its calls under autocast."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from conformance.catalogue import Inconclusive
from conformance.noise import MARGIN, Noise, measure_noise
from conformance.subject import Subject

ROUNDINGS = 8.0  # a result of few bits may differ by this many of its last ones, where a kernel sums in another order
LOW_LIMIT = 0.1


@dataclass(frozen=True, kw_only=True)
class LowPrecisionNoise(Noise):
    """The allowance of :class:`Noise` would be half the peak in bfloat16; here it is a few roundings of the dtype."""

    eps: float = 0.0

    def allowance(self, expected: torch.Tensor, *, same_shape: bool) -> float:
        floor = max(self.repeat, self.compiled)
        floor = floor if same_shape else max(floor, self.shape)
        if floor > LOW_LIMIT:
            raise Inconclusive(f"eager alone varies by {floor:.1e} of its peak in low precision")
        peak = float(expected.abs().max()) if expected.numel() else 0.0
        return max(MARGIN * floor, ROUNDINGS * self.eps) * peak


def low_precision_noise(subject: Subject, dtype: torch.dtype) -> LowPrecisionNoise:
    noise = measure_noise(subject)
    return LowPrecisionNoise(**vars(noise), eps=torch.finfo(dtype).eps)


@contextlib.contextmanager
def in_precision(subject: Subject, dtype: torch.dtype) -> Iterator[Subject]:
    """The same subject, built anew with its module in `dtype`; not warmed up, and closed on exit."""
    other = copy.copy(subject)
    torch.manual_seed(subject.seed)
    adapter = subject.spec.build(subject.device, subject.checkpoint)
    other.rebuild(subject.spec.cast(adapter, dtype))
    try:
        yield other
    finally:
        other.runner.close()


@contextlib.contextmanager
def autocast(subject: Subject, dtype: torch.dtype) -> Iterator[None]:
    """`torch.autocast` on the device. Emulated kernels are the host's, so there the host's autocast makes it real."""
    emulated = subject.machine.device == "emulated"
    with torch.autocast("cuda", dtype=dtype), torch.autocast("cpu", dtype=dtype, enabled=emulated):
        yield
