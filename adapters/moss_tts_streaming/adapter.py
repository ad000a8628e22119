"""MOSS-TTS streaming: the audio codec's decoder with a state a stream (`decode_streaming_tensors`) on the runner.

Each live stream has a slot in a pool of ring caches and offsets; a call names the slot of each row and moves those
slots on by its frames. Rows that only pad a batch must move no live slot: they use scratch slots past the live ones, a
different one for each row, and are marked invalid, so that not even their offsets move. Frames are exact, since padding
would become part of a stream's past; the package pads a request's last chunk alone, and then resets its slot.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from runner import EXACT, PADDED, AxisMode, GraphAdapter, InputSpec, Nominal, OutputSpec

DOWNSAMPLE_RATE = 1920  # samples a frame of the released 24 kHz codec


class MossTTSStreamingAdapter(GraphAdapter):
    """Chunks of several streams, each going on from where its slot's last chunk ended."""

    inputs = (
        InputSpec("codes", torch.long, ("batch", "n_vq", "frames"), pad=0),
        InputSpec("slots", torch.long, ("batch",), pad=-1),
    )
    outputs = (OutputSpec("audio", ("batch", 1, "samples"), length=Nominal(DOWNSAMPLE_RATE)),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED, "frames": EXACT}

    def __init__(self, module: Any, streams: int, rows: int) -> None:
        """`module` is a `MossAudioTokenizerModel`, in evaluation mode, on its device and without a pool of states.

        `streams` are live at once, in the slots `0 … streams − 1`; `rows` is the largest bucket's batch.
        """
        self.module, self.streams = module, streams
        module.initialize_decoder_state_pool(streams, scratch_capacity=rows)
        self.sizes = {"n_vq": module.config.num_quantizers}
        channels, scale = module.number_channels, module.downsample_rate
        self.outputs = (OutputSpec("audio", ("batch", channels, "samples"), length=Nominal(scale)),)

    def reset(self, slots: torch.Tensor) -> None:
        """Make `slots` (int64, on the device) ready for new streams, in place: graphs read the same memory."""
        self.module.reset_decoder_state_slots(slots)

    def forward(self, codes: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """`[batch, n_vq, frames]` and `[batch]` to `[batch, channels, frames · downsample_rate]`.

        No two rows may have the same slot, and none one of `streams` or more: neither can be refused without waiting
        for the device.
        """
        batch, _, frames = codes.shape
        if slots.shape != (batch,):
            raise ValueError(f"expected one slot for each of {batch} rows, found {tuple(slots.shape)}")
        valid = slots >= 0
        slots = torch.where(valid, slots, self.streams + torch.arange(batch, device=codes.device))
        lengths = torch.full((batch,), frames, dtype=torch.long, device=codes.device)
        audio: torch.Tensor
        audio, _ = self.module.decode_streaming_tensors(codes.transpose(0, 1).contiguous(), lengths, slots, valid)
        return audio
