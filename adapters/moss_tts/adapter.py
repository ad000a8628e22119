"""MOSS-TTS: the audio codec's decoder (`MossAudioTokenizerModel._decode`) on the runner.

The decoder is causal (local causal attention and patch upsampling), so frames of padding on the right never reach a
caller's samples, and rows of a batch end where their own codes end.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from runner import PADDED, AxisMode, GraphAdapter, InputSpec, OutputSpec, PerRowLengths

DOWNSAMPLE_RATE = 1920  # samples a frame of the released 24 kHz codec


class MossTTSAdapter(GraphAdapter):
    """Codes of several requests, each with its own number of frames, to one waveform a request."""

    inputs = (
        InputSpec("codes", torch.long, ("batch", "n_vq", "frames"), pad=0),
        InputSpec("lengths", torch.long, ("batch",), host=True),
    )
    outputs = (OutputSpec("audio", ("batch", 1, "samples"), length=PerRowLengths("lengths", scale=DOWNSAMPLE_RATE)),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED, "frames": PADDED}

    def __init__(self, module: Any) -> None:
        """`module` is a `MossAudioTokenizerModel`, in evaluation mode and on its device."""
        self.module = module
        self.sizes = {"n_vq": module.config.num_quantizers}
        scale = module.downsample_rate
        self.outputs = (OutputSpec("audio", ("batch", 1, "samples"), length=PerRowLengths("lengths", scale=scale)),)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """`[batch, n_vq, frames]` to `[batch, 1, frames · downsample_rate]`.

        The module takes codes as `[n_vq, batch, frames]`. Its lengths argument only travels along to its own lengths
        output; the rows' real lengths stay on the host, where the trim needs them.
        """
        batch, _, frames = codes.shape
        lengths = torch.full((batch,), frames, dtype=torch.long, device=codes.device)
        audio: torch.Tensor = self.module._decode(codes.transpose(0, 1).contiguous(), lengths).audio
        return audio
