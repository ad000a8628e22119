"""Higgs Audio v3: the codec of its Code2Wav (`HiggsAudioV3Code2Wav.decode_codes`) on the runner.

Frames are exact: the decoder is not causal, and frames of padding are heard some frames before the end. Rows of a batch
are independent of each other, so the batch is padded.

Codes may hold what the talker gives beside real codes: -1, and the marks of its delay pattern's start and end. Dropping
them by a boolean mask (`frames[valid]`) makes a size that depends on data, which no capture permits:
https://github.com/vllm-project/vllm-omni/issues/4562. Here such codes become code 0, by a fill of fixed shape; so they
do in what the package sends to this stage. Left alone they would be illegal reads under a graph: the module looks for
them by `max().item()`, and inside of captures not at all.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn

from runner import EXACT, PADDED, AxisMode, Custom, GraphAdapter, InputSpec, OutputSpec


def decoded_samples(decoder: nn.Module, frames: int) -> int:
    """What the transposed convolutions of `decoder` make of `frames`; its other layers keep the length.

    It is frames × the product of strides because each odd stride has an output padding of 1, which plain DAC has not.
    """
    for layer in decoder.modules():
        if isinstance(layer, nn.ConvTranspose1d):
            gained = layer.kernel_size[0] - 2 * layer.padding[0] + layer.output_padding[0]
            frames = (frames - 1) * layer.stride[0] + gained
    return frames


class HiggsAudioV3Adapter(GraphAdapter):
    """Codes of requests with equally many frames to their waveforms."""

    inputs = (InputSpec("codes", torch.long, ("batch", "n_vq", "frames")),)
    outputs = (OutputSpec("wav", ("batch", 1, "samples"), length=Custom(lambda _, frames, __: 960 * frames)),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED, "frames": EXACT}

    def __init__(self, module: Any) -> None:
        """`module` is a `HiggsAudioV3Code2Wav` whose weights are loaded, in evaluation mode and on its device."""
        self.module = module
        self.sizes = {"n_vq": module.num_codebooks}
        contract = Custom(lambda _, frames, __: decoded_samples(module.acoustic_decoder, frames))
        self.outputs = (OutputSpec("wav", ("batch", 1, "samples"), length=contract),)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """`[batch, n_vq, frames]` int64 to `[batch, 1, 960 · frames]` of the released 24 kHz codec.

        The module computes in inference mode; the clone is an ordinary tensor, as replays return.
        """
        special = (codes < 0) | (codes >= self.module.num_real_codes)
        return self.module.decode_codes(codes.masked_fill(special, 0)).clone()
