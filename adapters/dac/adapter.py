"""DAC: the decoder of transformers' `DacModel` on the runner.

Its convolutions are centred: each sample hears frames on both sides, so padding on the right reaches back over the last
ten frames or so. Frames are exact; rows do not see one another, and are padded.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from runner import EXACT, PADDED, AxisMode, GraphAdapter, InputSpec, Nominal, OutputSpec

HOP = 512  # samples a frame of the released 44.1 kHz codec


class DacAdapter(GraphAdapter):
    """Codes to waveform, one row a request."""

    inputs = (InputSpec("codes", torch.long, ("batch", "n_vq", "frames"), pad=0),)
    outputs = (OutputSpec("audio", ("batch", 1, "samples"), length=Nominal(scale=HOP)),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED, "frames": EXACT}

    def __init__(self, module: Any, n_vq: int | None = None) -> None:
        """`module` is a `DacModel`, in evaluation mode and on its device; callers may use its first `n_vq` books."""
        self.module = module
        self.sizes = {"n_vq": n_vq or module.config.n_codebooks}
        scale = module.config.hop_length
        self.outputs = (OutputSpec("audio", ("batch", 1, "samples"), length=Nominal(scale=scale)),)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """`[batch, n_vq, frames]` to `[batch, 1, frames · hop]`; the module gives `[batch, samples]`."""
        audio: torch.Tensor = self.module.decode(audio_codes=codes, return_dict=True).audio_values
        return audio.unsqueeze(1)
