"""Mistakes with addresses, state and Python values: classes E, J and O."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from conformance.capabilities import supported, unsupported
from runner import GraphRunner
from tests.mutants.base import Mutant, ReferenceAdapter, ReferenceSpec, with_adapter, with_runner


class _CapturesACopy(GraphRunner):
    """The graphs read a copy of the weights."""

    def warmup(self) -> None:
        adapter: Any = self._adapter
        module = adapter.module
        self.copied = copy.deepcopy(module)
        adapter.module = self.copied
        try:
            super().warmup()
        finally:
            adapter.module = module


class StatefulCodec(nn.Module):
    """The codec with a gain that each call moves on, in place and on the device."""

    def __init__(self, codec: Any) -> None:
        super().__init__()
        self.codec = codec
        self.n_vq = codec.n_vq
        self.register_buffer("phase", torch.zeros(1))

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        wav: torch.Tensor = self.codec(codes) * (1 + 0.25 * self.phase)
        self.phase.copy_(torch.remainder(self.phase + 1, 3))
        return wav


class _RestoresStateAfterWarmup(GraphRunner):
    """Warm-up runs the module, so the state is put back behind it."""

    def warmup(self) -> None:
        adapter: Any = self._adapter
        before = adapter.module.phase.clone()
        super().warmup()
        if not torch.cuda.is_current_stream_capturing():
            adapter.module.phase.copy_(before)


class StatefulSpec(ReferenceSpec):
    """The correct subject that keeps state."""

    name = "correct_stateful"
    capabilities = replace(
        ReferenceSpec.capabilities, state=supported(), threads=unsupported("one state, which calls move on in turn")
    )

    def build(self, device: torch.device, checkpoint: Path | None) -> Any:
        return self.adapter(StatefulCodec(super().build(device, checkpoint).module).to(device))

    def make_runner(self, adapter: Any, device: Any, config: Any = None, pool: Any = None) -> GraphRunner:
        return _RestoresStateAfterWarmup(adapter, self.buckets, device=device, config=config, pool=pool)


class _ReplaysFromOneState(_RestoresStateAfterWarmup):
    def _replay(self, *args: Any) -> Any:
        phase = self._adapter.module.phase  # type: ignore[attr-defined]
        before = phase.clone()
        result = super()._replay(*args)
        phase.copy_(before)
        return result


class _AdvancesEverySecondReplay(_RestoresStateAfterWarmup):
    turns = 0

    def _replay(self, *args: Any) -> Any:
        phase = self._adapter.module.phase  # type: ignore[attr-defined]
        before = phase.clone()
        result = super()._replay(*args)
        self.turns += 1
        if self.turns % 2:
            phase.copy_(before)
        return result


class NudgesABias(ReferenceAdapter):
    """A running statistic is kept in a parameter of the module, though inference keeps nothing.

    https://github.com/vllm-project/vllm-omni/pull/7416
    """

    def unload(self, *args: Any) -> Any:
        with torch.no_grad():
            self.module.head.bias.add_(1e-8)
        return super().unload(*args)


class _SetsLastLength(nn.Module):
    def __init__(self, codec: Any) -> None:
        super().__init__()
        self.codec, self.n_vq, self.last_frames = codec, codec.n_vq, 0

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        self.last_frames = codes.shape[-1]
        wav: torch.Tensor = self.codec(codes)
        return wav


class SetsLastLength(ReferenceSpec):
    """The module notes its last length in Python, which a replay does not run.

    https://github.com/pytorch/pytorch/issues/114844
    """

    name = "SetsLastLength"

    def build(self, device: torch.device, checkpoint: Path | None) -> Any:
        return self.adapter(_SetsLastLength(super().build(device, checkpoint).module))


class _LooksUpPadding(nn.Module):
    """Computes what a length needs once, and looks it up again: no replay fills the table, and none has to."""

    def __init__(self, codec: Any) -> None:
        super().__init__()
        self.codec, self.n_vq, self.padding = codec, codec.n_vq, {}

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        frames = codes.shape[-1]
        if frames not in self.padding:
            self.padding[frames] = -frames % 1
        wav: torch.Tensor = self.codec(nn.functional.pad(codes, (0, self.padding[frames])))
        return wav


class MemoSpec(ReferenceSpec):
    """The correct subject with a table by length, as vllm-omni's causal convolutions keep one."""

    name = "correct_memo"

    def build(self, device: torch.device, checkpoint: Path | None) -> Any:
        return self.adapter(_LooksUpPadding(super().build(device, checkpoint).module))


class CountsByLength(MemoSpec):
    """A table counts the calls of each length in Python. https://github.com/vllm-project/vllm/pull/35917"""

    name = "CountsByLength"

    def build(self, device: torch.device, checkpoint: Path | None) -> Any:
        adapter = super().build(device, checkpoint)
        adapter.module.calls = {}
        adapter.module.register_forward_hook(_count_by_length)
        return adapter


def _count_by_length(module: Any, inputs: Any, output: Any) -> None:
    frames = output.shape[-1]
    module.calls[frames] = module.calls.get(frames, 0) + 1


class CountsInAHook(ReferenceSpec):
    """A forward hook counts calls in an attribute. https://github.com/vllm-project/vllm/pull/35917"""

    name = "CountsInAHook"

    def build(self, device: torch.device, checkpoint: Path | None) -> Any:
        adapter = super().build(device, checkpoint)
        adapter.module.calls = 0
        adapter.module.register_forward_hook(_count)
        return adapter


def _count(module: Any, inputs: Any, output: Any) -> None:
    module.calls += 1


MUTANTS = tuple(
    Mutant(spec, frozenset(codes.split()))
    for spec, codes in (
        (
            with_runner(
                _CapturesACopy,
                "CapturesACopy",
                "The graphs read weights copied at capture. https://github.com/sgl-project/sglang-omni/issues/801",
            ),
            "CG305 CG504",
        ),
        (
            with_runner(
                _ReplaysFromOneState,
                "ReplaysFromOneState",
                "Each replay starts from the state of capture. https://github.com/NVIDIA/TensorRT-LLM/pull/6665",
                StatefulSpec,
            ),
            "CG306",
        ),
        (
            with_runner(
                _AdvancesEverySecondReplay,
                "AdvancesEverySecondReplay",
                "Two copies of the state in turn. https://github.com/vllm-project/vllm-omni/pull/4929",
                StatefulSpec,
            ),
            "CG306",
        ),
        (with_adapter(ReferenceSpec, NudgesABias), "CG306"),
        (SetsLastLength, "CG105 CG307"),
        (CountsInAHook, "CG105 CG307"),
        (CountsByLength, "CG105 CG307"),
    )
)
