"""Mistakes about whose memory a tensor is: classes D, E and P."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from runner import CapturedMinusPadding, GraphRunner, InputSpec, OutputSpec
from tests.mutants.base import HOP, Mutant, ReferenceAdapter, ReferenceSpec, with_adapter, with_runner

Tensors = Mapping[str, torch.Tensor]
Sizes = Mapping[str, int]
RING = 10


class HandsOutRingOfBuffers(ReferenceAdapter):
    """Results are places in a ring of ten: the eleventh call writes over the first one's.

    https://github.com/sgl-project/sglang-omni/pull/1369
    """

    def unload(self, outputs: Tensors, inputs: Tensors, actual: Sizes, bucket: Sizes) -> Any:
        wav = super().unload(outputs, inputs, actual, bucket)["wav"]
        ring = vars(self).setdefault("ring", [torch.zeros(4 * 8 * HOP * 4, dtype=torch.uint8) for _ in range(RING)])
        self.turn = (getattr(self, "turn", -1) + 1) % RING
        ring[self.turn] = ring[self.turn].to(wav.device)
        place = ring[self.turn].view(wav.dtype)[: wav.numel()].view(wav.shape)
        place.copy_(wav)
        return {"wav": place}


class _ClosesTheWholePool(GraphRunner):
    """`close` drops the graphs of every runner on the pool."""

    members: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()

    def warmup(self) -> None:
        super().warmup()
        self.members.add(self)

    def close(self) -> None:
        pool = self._pool
        super().close()
        for other in list(self.members):
            if other is not self and other._pool == pool:
                other._publish({})


class _AnswersTwice(GraphRunner):
    """The same input as last time gives the same object as last time."""

    last: Any = None

    def _replay(self, plan: Any, inputs: Any) -> Any:
        result = super()._replay(plan, inputs)
        (codes,) = inputs
        if self.last is not None and self.last[0].shape == codes.shape and torch.equal(self.last[0], codes):
            return self.last[1]
        self.last = (codes.clone(), result)
        return result


class _Scaled(nn.Module):
    """The codec, whose samples are scaled by a table that is no parameter."""

    def __init__(self, codec: Any) -> None:
        super().__init__()
        self.codec, self.n_vq = codec, codec.n_vq
        self.table = torch.full((1,), 0.5, device=next(codec.parameters()).device)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        wav: torch.Tensor = self.codec(codes)
        return wav * self.table.to(wav.dtype)


class _MakesTablesAnew(GraphRunner):
    """Warm-up makes the module's table anew, and what earlier graphs read is given to others."""

    def warmup(self) -> None:
        adapter: Any = self._adapter
        module = adapter.module
        if not self._graphs and not torch.cuda.is_current_stream_capturing():
            old, module.table = module.table, module.table.clone()
            super().warmup()
            old.fill_(9.0)
        else:
            super().warmup()


class MakesTablesAnew(with_runner(_MakesTablesAnew, "MakesTablesAnew", "")):  # type: ignore[misc]
    """A second wrapper around one module takes the tables away that the first one's graphs read, as vllm-omni's around
    BigVGAN does. It says that it cannot share its module, so that the sharing fails, and nothing beside it.

    https://github.com/vllm-project/vllm-omni/blob/v0.30.0/vllm_omni/model_executor/models/indextts2/bigvgan_cuda_graph.py
    """

    name = "MakesTablesAnew"
    shares_module = False

    def build(self, device: torch.device, checkpoint: Path | None) -> Any:
        return self.adapter(_Scaled(super().build(device, checkpoint).module))


class KeepsTailOfReturnedResult(ReferenceAdapter):
    """The overlap kept for the next chunk is a view of what was returned. https://github.com/pytorch/pytorch/issues/148439"""

    def unload(self, outputs: Tensors, inputs: Tensors, actual: Sizes, bucket: Sizes) -> Any:
        results = super().unload(outputs, inputs, actual, bucket)
        wav = results["wav"]
        tail = getattr(self, "tail", None)
        if tail is not None and tail[0].dtype is wav.dtype:
            wav[:1, :, :2] += tail[0] - tail[1]
        self.tail = (wav[:1, :, -2:], wav[:1, :, -2:].clone())
        return results


class BlanksCallersLastFrame(ReferenceAdapter):
    """A large batch is masked in the caller's own tensor. https://github.com/pytorch/pytorch/pull/184699"""

    def rows_of(self, result: Any, inputs: Tensors) -> Any:
        if inputs["codes"].shape[0] == 8:
            inputs["codes"][..., -1] = 0
        return result


class PassesCodesThrough(ReferenceAdapter):
    """An output that equals an input is the input itself. https://github.com/vllm-project/vllm/pull/52115"""

    inputs = (InputSpec("codes", torch.long, ("batch", "n_vq", "frames")),)
    outputs = (
        OutputSpec("wav", ("batch", 1, "samples"), length=CapturedMinusPadding(HOP)),
        OutputSpec("used_codes", ("batch", "n_vq", "frames")),
    )

    def forward(self, codes: torch.Tensor) -> Any:
        return self.module(codes), codes + 0

    def unload(self, outputs: Tensors, inputs: Tensors, actual: Sizes, bucket: Sizes) -> Any:
        return super().unload(outputs, inputs, actual, bucket) | {"used_codes": inputs["codes"]}


MUTANTS = (
    Mutant(
        with_adapter(ReferenceSpec, HandsOutRingOfBuffers),
        frozenset({"CG302", "CG601", "CG602"}),
        by_chance=frozenset({"CG603"}),
    ),
    *(
        Mutant(spec, frozenset(codes.split()))
        for spec, codes in (
            (
                with_runner(
                    _ClosesTheWholePool,
                    "ClosesTheWholePool",
                    "Unloading one component drops the graphs of all. https://github.com/sgl-project/sglang/issues/29216",
                ),
                "CG302 CG308",
            ),
            (
                with_runner(
                    _AnswersTwice,
                    "AnswersTwice",
                    "A result is kept and handed out again. https://github.com/pytorch/pytorch/issues/181723",
                ),
                "CG303 CG504",
            ),
            (MakesTablesAnew, "CG302"),
            (with_adapter(ReferenceSpec, KeepsTailOfReturnedResult), "CG303 CG504"),
            (with_adapter(ReferenceSpec, BlanksCallersLastFrame), "CG304 CG401"),
            (with_adapter(ReferenceSpec, PassesCodesThrough), "CG303 CG304"),
        )
    ),
)
