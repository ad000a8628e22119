"""Voxtral-TTS: the flow-matching acoustic transformer (`FlowMatchingAudioTransformer`) on the runner.

One call decodes one frame of every request of the batch: the semantic code by argmax, the acoustic ones by integrating
from noise. The module draws that noise itself, `[batch, n_acoustic]` for the rows it sees. Drawn for a padded bucket it
would be other noise for the same seed, and so other codes: the noise is an input, which the caller draws for real rows.

Codes are rounded numbers. Where a kernel of another batch size sums in another order, a number on the edge between two
codes may fall to the other side, in eager mode as under a graph. On a CPU none of 40 000 codes did.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch.overrides import TorchFunctionMode

from runner import PADDED, AdapterError, AxisMode, GraphAdapter, InputSpec, OutputSpec

CODES = 1 + 36  # semantic and acoustic codes a frame, of the released model


class GivenNoise(TorchFunctionMode):
    """Meanwhile `torch.randn` gives `noise`, once: the module runs unmodified, from a start that the caller chose."""

    def __init__(self, noise: torch.Tensor) -> None:
        super().__init__()
        self.noise = noise
        self.draws = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is not torch.randn:
            return function(*args, **(kwargs or {}))
        self.draws += 1
        return self.noise


class VoxtralTTSAdapter(GraphAdapter):
    """Hidden states and start noise of several requests to the codes of their next frame, semantic code first."""

    inputs = (
        InputSpec("llm_hidden", torch.float32, ("batch", "dim")),
        InputSpec("cfg_alpha", torch.float32, ("batch",)),
        InputSpec("noise", torch.float32, ("batch", "n_acoustic")),
    )
    outputs = (OutputSpec("codes", ("batch", CODES)),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED}

    def __init__(self, module: Any) -> None:
        """`module` is a `FlowMatchingAudioTransformer`, in its dtype, in evaluation mode and on its device."""
        self.module = module
        self.sizes = {
            "dim": module.acoustic_transformer_args.input_dim,
            "n_acoustic": module.model_args.n_acoustic_codebook,
        }
        self.dtype: torch.dtype = module.llm_projection.weight.dtype
        self.inputs = tuple(InputSpec(spec.name, self.dtype, spec.axes) for spec in type(self).inputs)
        self.outputs = (OutputSpec("codes", ("batch", 1 + self.sizes["n_acoustic"])),)

    def forward(self, llm_hidden: torch.Tensor, cfg_alpha: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """`[batch, dim]`, `[batch]` and `[batch, n_acoustic]` to codes `[batch, 1 + n_acoustic]` int64.

        Raises AdapterError where the module drew other than once: its noise would not be the caller's.
        """
        with GivenNoise(noise) as given:
            codes: torch.Tensor = self.module(llm_hidden=llm_hidden, cfg_alpha=cfg_alpha)
        if given.draws != 1:
            raise AdapterError(f"the module must draw its noise once by torch.randn, found {given.draws} draws")
        return codes

    def draw_noise(self, rows: int, device: torch.device, generator: torch.Generator | None = None) -> torch.Tensor:
        """What the module would draw for `rows` requests: under one seed, the codes are those of the module alone."""
        return torch.randn(rows, self.sizes["n_acoustic"], dtype=self.dtype, device=device, generator=generator)
