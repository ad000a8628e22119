"""IndexTTS2: the flow-matching estimator (`DiT`) on the runner, one step of the solver a call.

vllm-omni captures the transformer inside it, for one exact number of frames at a time, with attention told that nothing
is masked. Here the whole estimator is captured, and told otherwise: rows end at their own lengths, which the module
masks in attention and reflects at in its WaveNet. That makes padding safe, so that a few buckets serve every request.

It asks for an attention backend that takes a mask without looking at it on the host (`TORCH_SDPA`). FlashAttention's
looks, and is refused in a capture.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch.nn.functional import pad

from runner import PADDED, AdapterError, AxisMode, GraphAdapter, InputSpec, Nominal, OutputSpec


class IndexTTS2DiTAdapter(GraphAdapter):
    """Noisy mel, reference mel, time step, style and content to the velocity of the mel, each row with its length.

    Under classifier-free guidance the rows are the conditional ones and then the unconditional ones.
    """

    inputs = (
        InputSpec("x", torch.float32, ("batch", "n_mels", "frames")),
        InputSpec("prompt_x", torch.float32, ("batch", "n_mels", "frames")),
        InputSpec("lengths", torch.long, ("batch",), pad=1),  # a row with nothing to attend to would be NaN
        InputSpec("t", torch.float32, ("batch",)),
        InputSpec("style", torch.float32, ("batch", "style")),
        InputSpec("cond", torch.float32, ("batch", "frames", "content")),
    )
    outputs = (OutputSpec("velocity", ("batch", "n_mels", "mel_frames"), length=Nominal(scale=1)),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED, "frames": PADDED}

    def __init__(self, module: Any, style: int) -> None:
        """`module` is a `DiT` with its caches set up, in evaluation mode, on its device and in its dtype.

        `style` is the width of the style vector. Raises AdapterError where the module has a graph runner of its own.
        """
        if getattr(module, "_cuda_graph_runner", None) is not None:
            raise AdapterError("the DiT replays graphs of its own: leave `s2mel_dit_cuda_graph` off")
        self.module = module
        self.sizes = {"n_mels": module.in_channels, "style": style, "content": module.content_dim}
        dtype = module.cond_projection.weight.dtype
        self.inputs = tuple(
            InputSpec(spec.name, dtype if spec.dtype.is_floating_point else spec.dtype, spec.axes, spec.pad)
            for spec in type(self).inputs
        )
        self.shortest = module.wavenet.ragged_min_length
        module.wavenet._assume_full_mask = False
        for layer in module.transformer.layers:
            layer.attention._assume_full_mask = False

    def forward(
        self,
        x: torch.Tensor,
        prompt_x: torch.Tensor,
        lengths: torch.Tensor,
        t: torch.Tensor,
        style: torch.Tensor,
        cond: torch.Tensor,
    ) -> torch.Tensor:
        """`[batch, n_mels, frames]` twice, `[batch]` twice, `[batch, style]` and `[batch, frames, content]` to
        `[batch, n_mels, frames]`, of which a row's own are the first `lengths`.

        The WaveNet cannot reflect within fewer than 3 frames. No request has so few, since the reference is among them;
        a call that has is computed as one of 3, and one of none is refused: it would reflect outside of memory.
        """
        frames = x.shape[-1]
        if not frames:
            raise ValueError(f"x must have at least one frame, found {tuple(x.shape)}")
        missing = max(0, self.shortest - frames)
        x, prompt_x, cond = pad(x, (0, missing)), pad(prompt_x, (0, missing)), pad(cond, (0, 0, 0, missing))
        velocity: torch.Tensor = self.module(x, prompt_x, lengths, t, style, cond)
        return velocity[..., :frames]
