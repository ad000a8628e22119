"""Mistakes with dtypes, layouts, structure and empty calls: classes I, P and S."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from runner import Fallback, GraphRunner
from tests.mutants.base import (
    Mutant,
    RaggedAdapter,
    RaggedSpec,
    ReferenceAdapter,
    ReferenceSpec,
    with_adapter,
    with_runner,
)

Tensors = Mapping[str, torch.Tensor]
Sizes = Mapping[str, int]


class ReturnsTransposedMemory(ReferenceAdapter):
    """The clone keeps the layout of a transposed kernel output, which the fallback's result has not.

    https://github.com/vllm-project/vllm-omni/pull/4341
    """

    def unload(self, outputs: Tensors, inputs: Tensors, actual: Sizes, bucket: Sizes) -> Any:
        results = super().unload(outputs, inputs, actual, bucket)
        results["wav"] = results["wav"].transpose(0, -1).contiguous().transpose(0, -1)
        return results


class CopiesIntoFloatBuffer(ReferenceAdapter):
    """The output buffer is float32 whatever the weights are. https://github.com/sgl-project/sglang/pull/3431"""

    def unload(self, outputs: Tensors, inputs: Tensors, actual: Sizes, bucket: Sizes) -> Any:
        results = super().unload(outputs, inputs, actual, bucket)
        return {"wav": results["wav"].float()}


class RoundsToHalf(ReferenceAdapter):
    """bfloat16 samples are kept as float8 between graph and caller, three bits of mantissa.

    https://github.com/vllm-project/vllm-omni/pull/4341
    """

    def unload(self, outputs: Tensors, inputs: Tensors, actual: Sizes, bucket: Sizes) -> Any:
        results = super().unload(outputs, inputs, actual, bucket)
        wav = results["wav"]
        if wav.dtype is torch.bfloat16:
            results["wav"] = (wav * 2).round() / 2
        return results


class ReplaysUnderAutocast(GraphRunner):
    def _decide(self, inputs: Any) -> Any:
        decision = super()._decide(inputs)
        if isinstance(decision, Fallback) and decision.detail == "autocast":
            return self._look_up(inputs, None)
        return decision


class CopiesByStorage(ReferenceAdapter):
    """The copy reads the caller's storage in order, whatever the strides. https://github.com/pytorch/pytorch/pull/184699"""

    def load(self, static: Tensors, inputs: Tensors) -> None:
        codes = inputs["codes"]
        if codes.untyped_storage().nbytes() >= codes.numel() * codes.element_size():
            codes = codes.as_strided(codes.shape, torch.empty(codes.shape).stride(), codes.storage_offset())
        super().load(static, {"codes": codes})


class CopiesFromStorageStart(ReferenceAdapter):
    """The copy starts at the storage, not at the tensor: a slice of a larger tensor is its first part.

    https://github.com/vllm-project/vllm-omni/issues/6457
    """

    def load(self, static: Tensors, inputs: Tensors) -> None:
        codes = inputs["codes"]
        super().load(static, {"codes": codes.as_strided(codes.shape, codes.stride(), 0)})


class ReplaysEmptyCalls(ReferenceAdapter):
    """An empty call is taken for one of a single frame. https://github.com/vllm-project/vllm/pull/49302"""

    def measure(self, inputs: Mapping[str, Any], device: torch.device) -> Any:
        codes = inputs["codes"]
        if isinstance(codes, torch.Tensor) and not codes.numel() and codes.dim() == 3:
            return {"batch": max(1, codes.shape[0]), "frames": max(1, codes.shape[2])}
        return super().measure(inputs, device)


class _GivesUpOn(GraphRunner):
    """Tries to capture what it should refuse, and turns its graphs off when that fails."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        codes = kwargs["codes"]
        if isinstance(codes, torch.Tensor) and self.bad(codes):
            self.enabled = False
        return super().__call__(*args, **kwargs)

    def bad(self, codes: torch.Tensor) -> bool:
        raise NotImplementedError


class _GivesUpOnEmptyCalls(_GivesUpOn):
    def bad(self, codes: torch.Tensor) -> bool:
        return codes.dim() == 3 and not codes.numel() and codes.shape[1] > 0


class _GivesUpOnBadCodes(_GivesUpOn):
    def bad(self, codes: torch.Tensor) -> bool:
        return codes.is_floating_point()


class TakesZeroForUnknown(RaggedAdapter):
    """`length or frames`: a row of no frames comes back full. https://github.com/vllm-project/vllm/pull/49302"""

    def unload(self, outputs: Tensors, inputs: Tensors, actual: Sizes, bucket: Sizes) -> Any:
        lengths = inputs["lengths"]
        lengths = lengths.masked_fill(lengths == 0, actual["frames"])
        return super().unload(outputs, {**inputs, "lengths": lengths}, actual, bucket)


gives_up_on_empty_calls = with_runner(
    _GivesUpOnEmptyCalls,
    "GivesUpOnEmptyCalls",
    "One empty call turns graphs off for good. https://github.com/vllm-project/vllm/pull/49302",
)
gives_up_on_bad_codes = with_runner(
    _GivesUpOnBadCodes,
    "GivesUpOnBadCodes",
    "One bad call turns graphs off for good. https://github.com/sgl-project/sglang-omni/issues/1018",
)
replays_under_autocast = with_runner(
    ReplaysUnderAutocast,
    "ReplaysUnderAutocast",
    "Nobody asks whether autocast is on. https://github.com/vllm-project/vllm-omni/pull/4341",
)

MUTANTS = tuple(
    Mutant(spec, frozenset(codes.split()))
    for spec, codes in (
        (with_adapter(ReferenceSpec, ReturnsTransposedMemory), "CG209"),
        (with_adapter(ReferenceSpec, CopiesIntoFloatBuffer), "CG210"),
        (with_adapter(ReferenceSpec, RoundsToHalf), "CG210"),
        (replays_under_autocast, "CG211"),
        (with_adapter(ReferenceSpec, CopiesByStorage), "CG212"),
        (with_adapter(ReferenceSpec, CopiesFromStorageStart), "CG212"),
        (with_adapter(ReferenceSpec, ReplaysEmptyCalls), "CG213"),
        (with_adapter(RaggedSpec, TakesZeroForUnknown), "CG213"),
        (gives_up_on_empty_calls, "CG213"),
        (gives_up_on_bad_codes, "CG405"),
    )
)
