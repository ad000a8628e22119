"""Distances of signals."""

from __future__ import annotations

import math

import pytest
import torch

from conformance.snapshots import metrics
from tests.snapshots.records import noise


def level(signal: torch.Tensor) -> float:
    return float(signal.square().mean().sqrt())


@pytest.mark.parametrize("scale", [1.0, 1e-20, 0.0])
def test_equal_signals_are_at_distance_zero_however_small(scale: float) -> None:
    signal = noise(300) * scale
    assert metrics.max_abs(signal, signal, float(signal.abs().max())) == 0.0
    assert metrics.relative_l2(signal, signal, level(signal)) == 0.0
    spectrum = metrics.log_mel(signal[None], 16_000)
    assert metrics.log_mel_distance(spectrum, spectrum) == 0.0


@pytest.mark.parametrize("scale", [1.0, 1e-12])
def test_a_gain_is_its_own_size_in_every_metric(scale: float) -> None:
    signal = noise(5000).double() * scale
    louder = signal * 1.001
    assert metrics.relative_l2(louder, signal, level(signal)) == pytest.approx(1e-3, rel=1e-3)
    assert metrics.max_abs(louder, signal, float(signal.abs().max())) == pytest.approx(1e-3, rel=1e-3)
    spectra = [metrics.log_mel(one[None], 16_000) for one in (louder, signal)]
    assert metrics.log_mel_distance(*spectra) == pytest.approx(20 * math.log10(1.001), rel=0.01)


def test_a_quiet_part_is_measured_against_the_whole_signal() -> None:
    silence = torch.zeros(100)
    assert metrics.relative_l2(silence + 1e-9, silence, rms=0.3) < 1e-8
    assert metrics.relative_l2(silence + 1e-9, silence, rms=0.0) == math.inf


def test_nan_is_at_no_distance() -> None:
    signal = noise(100)
    broken = signal.clone()
    broken[50] = math.nan
    assert metrics.max_abs(broken, signal, 1.0) == math.inf
    assert metrics.relative_l2(broken, signal, 1.0) == math.inf
    assert not metrics.log_mel_distance(metrics.log_mel(broken[None], 800), metrics.log_mel(signal[None], 800)) <= 1e9


@pytest.mark.parametrize("samples", [1, 58, 1024, 20_000])
@pytest.mark.parametrize("rate", [800, 16_000, 48_000])
def test_every_sample_reaches_a_mel_band(samples: int, rate: int) -> None:
    signal = noise(1, samples)
    spectrum = metrics.log_mel(signal, rate)
    assert spectrum.shape[0] == metrics.BANDS
    assert spectrum.shape[1] <= metrics.SEGMENTS
    assert torch.isfinite(spectrum).all()
    for at in (0, samples // 2, samples - 1):
        clicked = signal.clone()
        clicked[0, at] += 3.0
        assert metrics.log_mel_distance(metrics.log_mel(clicked, rate), spectrum) > 0.01


def test_what_lies_far_below_the_loudest_band_is_not_compared() -> None:
    time = torch.arange(16_000) / 16_000
    tone = torch.sin(2 * math.pi * 1000 * time)[None]
    spectrum = metrics.log_mel(tone, 16_000)
    assert metrics.log_mel_distance(metrics.log_mel(tone + 1e-6 * noise(1, 16_000), 16_000), spectrum) < 0.01
    assert metrics.log_mel_distance(metrics.log_mel(tone + 1e-1 * noise(1, 16_000), 16_000), spectrum) > 1.0
