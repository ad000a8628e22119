"""Qwen3-Omni: Code2Wav (`Qwen3OmniMoeCode2Wav`) on the runner.

Its transposed convolutions also drop their first outputs, so `frames` give `1920 · frames − 555` samples and not
`1920 · frames`. A trim by `frames × 1920` keeps 555 samples of padding at the end of every padded call:
https://github.com/vllm-project/vllm-omni/issues/4466. What it does return is causal: measured, samples of a padded row
differ from the row alone by rounding only.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from runner import PADDED, AxisMode, CapturedMinusPadding, GraphAdapter, InputSpec, OutputSpec

TOTAL_UPSAMPLE = 1920  # samples that one more frame gives, of the released 24 kHz model


class Qwen3OmniAdapter(GraphAdapter):
    """Chunks with their left context, or whole replies; requests are batched with padding on the right."""

    inputs = (InputSpec("codes", torch.long, ("batch", "n_vq", "frames"), pad=0),)
    outputs = (OutputSpec("wav", ("batch", 1, "samples"), length=CapturedMinusPadding(TOTAL_UPSAMPLE)),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED, "frames": PADDED}

    def __init__(self, module: Any) -> None:
        """`module` is a `Qwen3OmniMoeCode2Wav`, in evaluation mode and on its device."""
        self.module = module
        self.sizes = {"n_vq": module.config.num_quantizers}
        scale = int(module.total_upsample)
        self.outputs = (OutputSpec("wav", ("batch", 1, "samples"), length=CapturedMinusPadding(scale)),)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """`[batch, n_vq, frames]` to `[batch, 1, 1920 · frames − 555]`, within ±1."""
        wav: torch.Tensor = self.module(codes)
        return wav
