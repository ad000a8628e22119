"""Mistakes in what a subject declares, in how loud it is, and in its very first call."""

from __future__ import annotations

import copy
from typing import Any

import torch

from runner import CapturedMinusPadding, GraphConfig, GraphRunner, InputSpec, OutputSpec
from tests.mutants.base import HOP, Mutant, ReferenceAdapter, ReferenceSpec, with_adapter

_AXES = ("batch", "n_vq", "frames")


class DeclaresHalfTheScale(ReferenceAdapter):
    """The contract takes four samples a padded frame away, and the decoder makes eight.

    https://github.com/vllm-project/vllm-omni/pull/3687
    """

    outputs = (OutputSpec("wav", ("batch", 1, "samples"), length=CapturedMinusPadding(scale=HOP // 2)),)


class PadsWithAFraction(ReferenceAdapter):
    """The pad of another input was copied: no integer code is 0.5. https://github.com/flashinfer-ai/flashinfer/issues/2883"""

    inputs = (InputSpec("codes", torch.long, _AXES, pad=0.5),)


class PromotesBatches(ReferenceAdapter):
    """Batches are mixed in double precision and stay there. https://github.com/sgl-project/sglang/pull/3431"""

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        wav: torch.Tensor = super().forward(codes)
        return wav.double() if codes.shape[0] > 1 else wav


class IsDeafToItsFirstFrame(ReferenceAdapter):
    """The first frame is taken for left context and blanked. https://github.com/vllm-project/vllm-omni/issues/6712"""

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.cat([torch.zeros_like(codes[..., :1]), codes[..., 1:]], dim=-1))


class HasCodebooksOfZeros(ReferenceAdapter):
    """Every code decodes to the same vector, so that the output is loud and says nothing.

    https://github.com/vllm-project/vllm-omni/issues/4571
    """

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.zeros_like(codes))


class MakesItsTableOnFirstUse(ReferenceAdapter):
    """A table is made from a list on the first call, and nothing runs the module before its first capture.

    https://github.com/pytorch/pytorch/issues/99397
    """

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.gain: torch.Tensor | None = None

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        if self.gain is None:
            self.gain = torch.tensor([1.0], device=codes.device)
        wav: torch.Tensor = super().forward(codes)
        return wav * self.gain


class _NoWarmUp(GraphRunner):
    def __init__(self, *args: Any, config: GraphConfig | None = None, **kwargs: Any) -> None:
        config = copy.copy(config or GraphConfig())
        object.__setattr__(config, "warmup_iterations", 0)  # refused where it is said openly
        super().__init__(*args, config=config, **kwargs)


def _without_warm_up(
    self: ReferenceSpec, adapter: Any, device: torch.device, config: GraphConfig | None = None, pool: Any = None
) -> GraphRunner:
    return _NoWarmUp(adapter, self.buckets, device=device, config=config, pool=pool)


captures_without_warm_up = with_adapter(ReferenceSpec, MakesItsTableOnFirstUse, make_runner=_without_warm_up)

MUTANTS = (
    *(
        Mutant(with_adapter(ReferenceSpec, adapter), frozenset(codes))
        for adapter, codes in (
            (
                DeclaresHalfTheScale,
                {"CG001", "CG104", "CG203", "CG205", "CG206", "CG207", "CG210", "CG214", "CG305", "CG308"},
            ),
            (PadsWithAFraction, {"CG001"}),
            (PromotesBatches, {"CG001", "CG104", "CG204", "CG208", "CG308"}),
            (IsDeafToItsFirstFrame, {"CG002", "CG214"}),
            (HasCodebooksOfZeros, {"CG002"}),
        )
    ),
    Mutant(captures_without_warm_up, frozenset({"CG003"})),
)
