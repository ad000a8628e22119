"""MiMo-Audio: the audio tokenizer's decoder (`MiMoAudioTokenizer.decode_fixed`) on the runner.

Frames are exact. Two GroupNorms take their statistics over all of time, the vocoder attends to later frames, and its
inverse STFT overlaps the last frame with whatever follows: codes padded with zeros, with upstream's own attention mask
over the padding, differ from unpadded ones by 0.2 on a peak of 0.5 at 7 frames in a bucket of 8, in every frame.
A cure would have to reach inside the module, so a length that no bucket has runs eagerly.

Code rows are exact too. The released tokenizer has 20 quantizers and the talker gives 8 rows; each row adds a vector,
that of code 0 as well, so padding rows would be heard.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from runner import EXACT, AxisMode, GraphAdapter, InputSpec, Nominal, OutputSpec

SAMPLES_PER_FRAME = 960  # of the released 24 kHz tokenizer: 2 · 2 vocoder frames a code frame, 240 samples each


class MiMoAudioAdapter(GraphAdapter):
    """Codes of one request to its waveform. The module takes no batch."""

    inputs = (InputSpec("codes", torch.long, ("code_rows", "frames")),)
    outputs = (OutputSpec("wav", (1, 1, "samples"), length=Nominal(SAMPLES_PER_FRAME)),)
    axes: ClassVar[dict[str, AxisMode]] = {"code_rows": EXACT, "frames": EXACT}

    def __init__(self, module: Any) -> None:
        """`module` is a `MiMoAudioTokenizer`, in evaluation mode and on its device."""
        self.module = module
        config = module.config
        scale = config.avg_pooler * config.decoder_stride_size * config.hop_length
        self.outputs = (OutputSpec("wav", (1, 1, "samples"), length=Nominal(scale)),)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """`[code_rows, frames]` int64 to `[1, 1, frames · samples a frame]`, what `decode` gives without flash-attn."""
        frames = codes.shape[-1]
        return self.module.decode_fixed(codes, frames, vocoder_attn_mask=self.attention_mask(frames, codes.device))

    def attention_mask(self, frames: int, device: torch.device) -> torch.Tensor:
        """The vocoder's sliding window, `[1, 1, length, length]`: a static tensor of each graph, and no input.

        It follows from `frames`, which a bucket fixes, so no caller has to give it and none can give a wrong one.
        Upstream builds it by `arange`, comparisons and a masked fill, all of which a capture permits.
        """
        vocoder, length = self.module.decoder.vocoder, self.module._compute_vocoder_seq_len(frames)
        window = tuple(self.module.config.vocoder_attn_window_size)
        dtype = vocoder.embeddings.weight.dtype
        return vocoder.build_vocoder_attn_mask(length, length, window, device, dtype)
