"""EnCodec: the decoder of transformers' `EncodecModel` on the runner (the causal 24 kHz kind).

Padding is safe only as frames that say nothing. Causal convolutions and an LSTM that runs forward never look ahead,
but the convolutions pad on the left by *reflection*: the first one mirrors frames 1 to 6 to the front, so in a call of
fewer than 7 frames a pad of code 0 would be heard from the first sample. Eager pads such a call's hidden frames with
zeros. The adapter therefore pads codes with -1 and gives those frames zeros, which is the same signal at every length.

`EncodecModel.decode` itself cannot be captured. Its convolutions keep their padding as tensors on the device, which
`torch.nn.functional.pad` reads back at every call, and its quantizer begins with `torch.tensor(0.0, device=...)`, which
copies from the host. So the adapter keeps those numbers on the host, and sums the codebooks itself; the rest is the
module's.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from runner import PADDED, AdapterError, AxisMode, GraphAdapter, InputSpec, Nominal, OutputSpec

HOP = 320  # samples a frame of the released codec: 24 kHz at 75 frames a second
NO_FRAME = -1  # a code that stands for no frame


class EncodecAdapter(GraphAdapter):
    """Codes to waveform, one row a request."""

    inputs = (InputSpec("codes", torch.long, ("batch", "n_vq", "frames"), pad=NO_FRAME),)
    outputs = (OutputSpec("audio", ("batch", 1, "samples"), length=Nominal(scale=HOP)),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED, "frames": PADDED}

    def __init__(self, module: Any, n_vq: int | None = None) -> None:
        """`module` is an `EncodecModel`, in evaluation mode and on its device; a caller may use its first `n_vq`
        codebooks, as many as its bandwidth has.

        Moving `module` to another device later would move its padding there again.
        """
        config = module.config
        normalises = config.normalize or config.norm_type != "weight_norm"
        if normalises or not config.use_causal_conv or config.audio_channels > 1:
            raise AdapterError("expected a causal, mono EnCodec that normalises nothing, such as encodec_24khz")
        self.module = module
        self.sizes = {"n_vq": n_vq or module.quantizer.num_quantizers}
        scale = config.hop_length
        self.outputs = (OutputSpec("audio", ("batch", 1, "samples"), length=Nominal(scale=scale)),)
        keep_padding_on_the_host(module)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """`[batch, n_vq, frames]` to `[batch, 1, frames · hop]`, bit for bit what `module.decode` gives for codes."""
        layers, rows = self.module.quantizer.layers, codes.clamp(min=0).unbind(1)
        hidden = sum(layer.decode(row) for layer, row in zip(layers, rows, strict=False))
        audio: torch.Tensor = self.module.decoder(hidden.masked_fill(codes[:, :1] == NO_FRAME, 0))
        return audio


def keep_padding_on_the_host(module: torch.nn.Module) -> None:
    """Move the lengths that each convolution pads by to the host, where reading them waits for nothing."""
    for part in module.modules():
        for name in ("stride", "kernel_size", "padding_total"):
            if name in part._buffers:
                setattr(part, name, getattr(part, name).cpu())
