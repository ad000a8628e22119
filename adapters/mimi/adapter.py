"""Mimi: the decoder of transformers' `MimiModel` on the runner.

The decoder is causal (left-padded convolutions, causal attention in a sliding window, transposed convolutions that are
trimmed on the right), so frames of padding on the right never reach a caller's samples.

`MimiModel.decode` itself cannot be captured. Its convolutions keep their padding as tensors on the device, which
`torch.nn.functional.pad` reads back at every call, and its quantizers begin with `torch.tensor(0.0, device=...)`, which
copies from the host. So the adapter keeps those numbers on the host, and sums the codebooks itself; the rest is the
module's.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from runner import PADDED, AxisMode, GraphAdapter, InputSpec, Nominal, OutputSpec

HOP = 1920  # samples a frame of the released codec: 24 kHz at 12.5 frames a second


class MimiAdapter(GraphAdapter):
    """Codes to waveform, one row a request."""

    inputs = (InputSpec("codes", torch.long, ("batch", "n_vq", "frames"), pad=0),)
    outputs = (OutputSpec("audio", ("batch", 1, "samples"), length=Nominal(scale=HOP)),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED, "frames": PADDED}

    def __init__(self, module: Any, n_vq: int | None = None) -> None:
        """`module` is a `MimiModel`, in evaluation mode and on its device; a caller may use its first `n_vq` codebooks.

        Moving `module` to another device later would move its padding there again.
        """
        self.module = module
        self.sizes = {"n_vq": n_vq or module.config.num_quantizers}
        hop = int(module.config.sampling_rate / module.config.frame_rate)
        self.outputs = (OutputSpec("audio", ("batch", 1, "samples"), length=Nominal(scale=hop)),)
        keep_padding_on_the_host(module)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """`[batch, n_vq, frames]` to `[batch, 1, frames · hop]`, bit for bit what `module.decode` gives."""
        module, quantizer = self.module, self.module.quantizer
        semantic = quantizer.num_semantic_quantizers
        hidden = sum_of_codebooks(quantizer.semantic_residual_vector_quantizer, codes[:, :semantic])
        if codes.shape[1] > semantic:
            hidden = hidden + sum_of_codebooks(quantizer.acoustic_residual_vector_quantizer, codes[:, semantic:])
        hidden = module.upsample(hidden).transpose(1, 2)
        hidden = module.decoder_transformer(hidden, use_cache=False, return_dict=True).last_hidden_state
        audio: torch.Tensor = module.decoder(hidden.transpose(1, 2))
        return audio


def sum_of_codebooks(quantizer: Any, codes: torch.Tensor) -> torch.Tensor:
    """`quantizer.decode(codes)` without its zero from the host: `[batch, n_vq, frames]` to `[batch, width, frames]`."""
    total: torch.Tensor = sum(layer.decode(row) for layer, row in zip(quantizer.layers, codes.unbind(1), strict=False))
    return total if quantizer.output_proj is None else quantizer.output_proj(total)


def keep_padding_on_the_host(module: torch.nn.Module) -> None:
    """Move the lengths that each convolution pads by to the host, where reading them waits for nothing."""
    for part in module.modules():
        for name in ("stride", "kernel_size", "padding_total"):
            if name in part._buffers:
                setattr(part, name, getattr(part, name).cpu())
