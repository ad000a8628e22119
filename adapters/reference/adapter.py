"""A small causal codec in plain torch, and its graph adapter: everything that an adapter author needs, in one file."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from runner import PADDED, AxisMode, CapturedMinusPadding, GraphAdapter, InputSpec, OutputSpec

HOP = 8  # samples a frame: strides 4 · 2
TAIL = 6  # samples that the last, unpadded convolution of 7 taps takes away


class CausalCodec(nn.Module):
    """Codes to samples: `[batch, n_vq, frames]` int64 to `[batch, 1, 8·frames − 6]` float32.

    No output sample depends on a later frame, so frames of padding on the right touch only samples past the caller's.
    """

    def __init__(self, n_vq: int = 4, codebook_size: int = 64, width: int = 16) -> None:
        super().__init__()
        self.n_vq = n_vq
        self.codebooks = nn.ModuleList([nn.Embedding(codebook_size, width) for _ in range(n_vq)])
        self.context = nn.Conv1d(width, width, kernel_size=3)
        self.upsample = nn.ModuleList(
            [nn.ConvTranspose1d(width, width, kernel_size=2 * stride, stride=stride) for stride in (4, 2)]
        )
        self.head = nn.Conv1d(width, 1, kernel_size=TAIL + 1)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        hidden = sum(book(codes[:, index]) for index, book in enumerate(self.codebooks)).transpose(1, 2)
        hidden = nn.functional.elu(self.context(nn.functional.pad(hidden, (2, 0))))
        for layer in self.upsample:
            hidden = nn.functional.elu(layer(hidden)[..., : hidden.shape[-1] * layer.stride[0]])
        return torch.tanh(self.head(hidden))


class ReferenceAdapter(GraphAdapter):
    """The codec's 8·T − 6 samples are neither `T × scale` nor per row, so the trim starts from the captured length."""

    inputs = (InputSpec("codes", torch.long, ("batch", "n_vq", "frames"), pad=0),)
    outputs = (OutputSpec("wav", ("batch", 1, "samples"), length=CapturedMinusPadding(scale=HOP)),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED, "frames": PADDED}

    def __init__(self, module: CausalCodec) -> None:
        self.module = module
        self.sizes = {"n_vq": module.n_vq}

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """`[batch, n_vq, frames]` to `[batch, 1, 8·frames − 6]`."""
        return self.module(codes)
