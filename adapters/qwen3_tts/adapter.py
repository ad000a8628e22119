"""Qwen3-TTS: the 12 Hz speech tokenizer's decoder (`Qwen3TTSTokenizerV2Decoder`) on the runner.

Convolutions are causal and attention looks back over a sliding window, so frames of padding on the right never reach a
caller's samples: measured, a padded row differs from the row alone by rounding only. Its output is `frames × scale`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from runner import PADDED, AxisMode, GraphAdapter, InputSpec, Nominal, OutputSpec

TOTAL_UPSAMPLE = 1920  # samples a frame of the released 24 kHz tokenizer


class Qwen3TTSAdapter(GraphAdapter):
    """Stateless decoding: whole requests, or chunks that bring their left context."""

    inputs = (InputSpec("codes", torch.long, ("batch", "n_vq", "frames"), pad=0),)
    outputs = (OutputSpec("wav", ("batch", 1, "samples"), length=Nominal(TOTAL_UPSAMPLE)),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED, "frames": PADDED}

    def __init__(self, module: Any) -> None:
        """`module` is a `Qwen3TTSTokenizerV2Decoder`, in evaluation mode and on its device."""
        self.module = module
        self.sizes = {"n_vq": module.config.num_quantizers}
        self.outputs = (OutputSpec("wav", ("batch", 1, "samples"), length=Nominal(int(module.total_upsample))),)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """`[batch, n_vq, frames]` to `[batch, 1, frames · total_upsample]`, within ±1.

        No rows are refused before the module sees them. It refuses them too, but keeps an attention mask without rows
        for that number of frames, and from then on raises for every call of as many.
        """
        if not codes.shape[0]:
            raise ValueError(f"codes must have at least one row, found {tuple(codes.shape)}")
        wav: torch.Tensor = self.module(codes)
        return wav
