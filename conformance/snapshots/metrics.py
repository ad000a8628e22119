"""How far one signal is from another: largest error, relative energy of the error, and log-mel distance.

Every distance is relative to the signal that was kept, taken in float64, and 0 for equal signals, however small.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch

BANDS = 24
SEGMENTS = 8
WINDOW = 1024  # samples
HOP = WINDOW // 2
DYNAMIC_RANGE = 50.0  # dB below the loudest cell: what lies deeper is rounding
_SILENT = 1e-30  # power: keeps the logarithm of digital silence finite


def max_abs(found: torch.Tensor, kept: torch.Tensor, peak: float) -> float:
    """The largest error of `found`, relative to the peak of the whole kept signal."""
    return _ratio(float((found.double() - kept.double()).abs().max()) if kept.numel() else 0.0, peak)


def relative_l2(found: torch.Tensor, kept: torch.Tensor, rms: float) -> float:
    """The energy of the error, relative to that of the kept samples: 1e-3 is a gain of 1.001.

    Where the kept samples are quieter than the whole signal, its `rms` stands for them.
    """
    error = float(torch.linalg.vector_norm(found.double() - kept.double()))
    energy = float(torch.linalg.vector_norm(kept.double()))
    return _ratio(error, max(energy, rms * math.sqrt(kept.numel())))


def log_mel(signal: torch.Tensor, sample_rate: int) -> torch.Tensor:
    """`[channels, samples]` to `[BANDS, segments]` dB, float32: the mean power of a mel band over a part of the time.

    At most `SEGMENTS` parts of equal length, so that every sample is in one of them. A signal shorter than a window
    is padded with silence.
    """
    if not signal.numel():
        return torch.zeros(BANDS, 0)
    window = torch.hann_window(WINDOW, dtype=torch.float64)
    padded = torch.nn.functional.pad(signal.double(), (0, HOP))
    spectrum = torch.stft(padded, WINDOW, HOP, window=window, center=True, pad_mode="constant", return_complex=True)
    power = spectrum.abs().square().mean(0)  # [bins, frames]
    frames = power.shape[-1]
    parts = [part.mean(-1) for part in power.tensor_split(min(SEGMENTS, frames), dim=-1)]
    bands = _mel_filters(sample_rate) @ torch.stack(parts, dim=-1)
    return (10.0 * bands.clamp_min(_SILENT).log10()).float()


def log_mel_distance(found: torch.Tensor, kept: torch.Tensor) -> float:
    """The distance of two log-mel spectra in dB: root mean square over the bands, in the part of the time where it is
    largest. Cells more than `DYNAMIC_RANGE` below the loudest kept one count as being just that far below."""
    if found.shape != kept.shape:
        return math.inf
    if not kept.numel():
        return 0.0
    floor = float(kept.max()) - DYNAMIC_RANGE
    difference = found.double().clamp_min(floor) - kept.double().clamp_min(floor)
    return float(difference.square().mean(0).sqrt().max())


def _ratio(part: float, whole: float) -> float:
    if part == 0.0:
        return 0.0
    return part / whole if whole > 0.0 and math.isfinite(part) else math.inf


@lru_cache(maxsize=8)
def _mel_filters(sample_rate: int) -> torch.Tensor:
    """`[BANDS, bins]`: triangles of equal width in mel, from 0 Hz to half of the sample rate."""
    edges = _hertz(torch.linspace(0.0, _mel(sample_rate / 2), BANDS + 2, dtype=torch.float64))
    bins = torch.linspace(0.0, sample_rate / 2, WINDOW // 2 + 1, dtype=torch.float64)
    rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp_min(0.0)


def _mel(hertz: float) -> float:
    return 2595.0 * math.log10(1.0 + hertz / 700.0)


def _hertz(mel: torch.Tensor) -> torch.Tensor:
    return 700.0 * (torch.pow(10.0, mel / 2595.0) - 1.0)
