"""What a failed comparison looked like: a compact record of both waveforms, from which a report draws its picture.

The record is plain JSON and stands in a failure's evidence under :data:`WAVEFORM`:

- `found`, `expected`: at most :data:`POINTS` values each, 5 significant digits; null where a sample is not finite;
- `difference`: at each of these points the greatest absolute difference of the samples that it stands for, and where
  only one of the two has samples, how loud that one is;
- `start`: the first sample shown; `step`: samples a point; `wrong`: the first and the last wrong sample;
- `samples`: how many samples the longer of the two has; `sample_rate`: Hz;
- `edges`: `actual`, the sample where the caller's frames end, and `bucket`, where the bucket ends, as far as known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

WAVEFORM = "waveform"
POINTS = 400
_CONTEXT = POINTS // 4  # samples shown on either side of a short fault
_DIGITS = 5

Points = list[float | None]


def waveform(
    found: torch.Tensor,
    expected: torch.Tensor,
    wrong: tuple[int, int],
    *,
    sample_rate: int,
    edges: Mapping[str, int],
) -> dict[str, Any]:
    """The evidence `{"waveform": ...}` of two rows `[..., samples]`; empty where they are no sound.

    Of several channels the one with the greatest difference is shown. A long row is shown around its wrong samples.
    """
    sound = found.is_floating_point() and expected.is_floating_point() and found.dim() and expected.dim()
    if not sound or found.shape[:-1] != expected.shape[:-1] or not found.numel() or not expected.numel():
        return {}
    one, truth = _loudest_fault(found, expected)
    total = max(len(one), len(truth))
    start, stop = _window(wrong, total)
    group = _group(stop - start)
    apart = [abs(a - b) for a, b in zip_longest(one, truth, fillvalue=0.0)]
    return {
        WAVEFORM: {
            "found": _extremes(one[start:stop], group),
            "expected": _extremes(truth[start:stop], group),
            "difference": _worst(apart[start:stop], max(1, group // 2)),
            "start": start,
            "step": max(1, group // 2),
            "samples": total,
            "wrong": list(wrong),
            "edges": dict(edges),
            "sample_rate": sample_rate,
        }
    }


def _loudest_fault(found: torch.Tensor, expected: torch.Tensor) -> tuple[list[float], list[float]]:
    one = found.detach().double().reshape(-1, found.shape[-1])
    truth = expected.detach().double().reshape(-1, expected.shape[-1])
    common = min(one.shape[-1], truth.shape[-1])
    apart = (one[:, :common] - truth[:, :common]).abs().nan_to_num(nan=math.inf)
    channel = int(apart.amax(-1).argmax()) if common else 0
    return one[channel].tolist(), truth[channel].tolist()


def _window(wrong: tuple[int, int], total: int) -> tuple[int, int]:
    """First sample shown, and the one after the last: the fault with as much again on either side."""
    margin = max(wrong[1] - wrong[0] + 1, _CONTEXT)
    start, stop = max(0, wrong[0] - margin), min(total, wrong[1] + 1 + margin)
    return (0, total) if total <= POINTS or stop - start > total / 2 else (start, stop)


def _group(width: int) -> int:
    """How many samples give a minimum and a maximum: even, or 1 where every sample has a point of its own."""
    return 1 if width <= POINTS else 2 * math.ceil(width / POINTS)


def _extremes(samples: Sequence[float], group: int) -> Points:
    """The least and the greatest of each group, in the order in which they come: no click and no step vanishes."""
    if group == 1:
        return [_short(sample) for sample in samples]
    points: Points = []
    for begin in range(0, len(samples), group):
        part = samples[begin : begin + group]
        if not all(map(math.isfinite, part)):
            points += [None, None]
        else:
            low, high = part.index(min(part)), part.index(max(part))
            points += [_short(part[min(low, high)]), _short(part[max(low, high)])]
    return points


def _worst(apart: Sequence[float], step: int) -> Points:
    parts = (apart[begin : begin + step] for begin in range(0, len(apart), step))
    return [_short(max(part)) if all(map(math.isfinite, part)) else None for part in parts]


def _short(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
