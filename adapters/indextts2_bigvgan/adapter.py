"""IndexTTS2: the BigVGAN vocoder on the runner.

Its convolutions are centred and its activations filter over time, so padding on the right is heard in the last frames,
further back than any tail that could be cut off. Frames are exact; rows do not see one another, and are padded.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch

from runner import EXACT, PADDED, AxisMode, GraphAdapter, InputSpec, Nominal, OutputSpec

HOP = 256  # samples a mel frame of the released 22.05 kHz vocoder


class IndexTTS2BigVGANAdapter(GraphAdapter):
    """Mel spectrograms to waveform, one row a request."""

    inputs = (InputSpec("mel", torch.float32, ("batch", "n_mels", "frames")),)
    outputs = (OutputSpec("wav", ("batch", 1, "samples"), length=Nominal(scale=HOP)),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED, "frames": EXACT}

    def __init__(self, module: Any) -> None:
        """`module` is a `BigVGAN` without weight norm, in evaluation mode, on its device and in its dtype."""
        self.module = module
        self.sizes = {"n_mels": module.h.num_mels}
        scale = math.prod(module.h.upsample_rates)
        self.inputs = (InputSpec("mel", module.conv_pre.weight.dtype, ("batch", "n_mels", "frames")),)
        self.outputs = (OutputSpec("wav", ("batch", 1, "samples"), length=Nominal(scale=scale)),)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        """`[batch, n_mels, frames]` to `[batch, 1, frames · hop]`."""
        wav: torch.Tensor = self.module(mel)
        return wav
