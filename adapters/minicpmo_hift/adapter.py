"""MiniCPM-o: the HiFT vocoder on the runner, from mel to samples.

vllm-omni's own wrapper captures the vocoder up to its spectrum and runs `torch.istft` eagerly, which looks at the
window on the host and so cannot be captured. Here the inverse transform is in the graph too: the same operators without
that look, bit for bit the same samples.

The source module draws its phases and noise inside, for as many rows and samples as it is given. Padding would make it
draw other numbers than eager draws after the same seed, and the convolutions are centred: every axis is exact. The
first chunk of a request has no source of a chunk before it: `cached` is 0 then.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch

from runner import EXACT, AxisMode, GraphAdapter, InputSpec, Nominal, OutputSpec

HOP = 480  # samples a mel frame of the released 24 kHz vocoder


class MiniCPMOHiftAdapter(GraphAdapter):
    """Mel spectrogram, and the source that the last chunk ended with, to samples and their source."""

    inputs = (
        InputSpec("mel", torch.float32, ("batch", "n_mels", "frames")),
        InputSpec("cache_source", torch.float32, ("batch", 1, "cached")),
    )
    outputs = (
        OutputSpec("speech", ("batch", "samples"), length=Nominal(scale=HOP)),
        OutputSpec("source", ("batch", 1, "samples"), length=Nominal(scale=HOP)),
    )
    axes: ClassVar[dict[str, AxisMode]] = {"batch": EXACT, "frames": EXACT, "cached": EXACT}

    def __init__(self, module: Any) -> None:
        """`module` is a `HiFTGenerator` of 24 kHz, in evaluation mode and on its device.

        At 22.05 kHz it would draw its phases on the host, which no capture permits.
        """
        self.module = module
        self.sizes = {"n_mels": module.conv_pre.in_channels}
        length = Nominal(scale=math.prod(up.stride[0] for up in module.ups) * module.istft_params["hop_len"])
        self.outputs = (
            OutputSpec("speech", ("batch", "samples"), length=length),
            OutputSpec("source", ("batch", 1, "samples"), length=length),
        )

    def forward(self, mel: torch.Tensor, cache_source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`[batch, n_mels, frames]` and `[batch, 1, cached]` to `[batch, samples]` and `[batch, 1, samples]`.

        What `module.inference` gives, bit for bit, but as tensors that a caller may write to.
        """
        magnitude, phase, source = self.module._inference_pre_istft(mel, cache_source)
        limit = self.module.audio_limit
        return self.samples(magnitude, phase).clamp(-limit, limit), source.clone()

    def samples(self, magnitude: torch.Tensor, phase: torch.Tensor) -> torch.Tensor:
        """`module._istft`: both `[batch, bins, steps]` to `[batch, (steps − 1) · hop_len]`."""
        n_fft, hop = self.module.istft_params["n_fft"], self.module.istft_params["hop_len"]
        window = self.module._get_stft_window(magnitude)
        magnitude = magnitude.clip(max=1e2)
        spectrum = torch.complex(magnitude * phase.cos(), magnitude * phase.sin()).transpose(1, 2)
        pieces = torch.fft.irfft(spectrum, n=n_fft) * window  # [batch, steps, n_fft]
        squares = window.square().expand(1, *pieces.shape[1:])
        length = n_fft + hop * (pieces.shape[1] - 1)
        added, weight = [
            torch.ops.aten.unfold_backward(part, [part.shape[0], length], 1, n_fft, hop) for part in (pieces, squares)
        ]
        kept = slice(n_fft // 2, length - n_fft // 2)
        return added[:, kept] / weight[:, kept]
