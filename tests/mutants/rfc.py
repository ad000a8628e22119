"""Mistakes against the RFC's seven checks.

Each differs from a correct subject by one mistake that a public wrapper has made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from runner import CapturedMinusPadding, Custom, Fallback, FallbackReason, GraphRunner, OutputSpec
from tests.mutants.base import (
    HOP,
    Mutant,
    RaggedAdapter,
    RaggedSpec,
    ReferenceAdapter,
    ReferenceSpec,
    with_adapter,
    with_runner,
)


class LosesLastFrame(ReferenceAdapter):
    """An exact hit of one row takes a fast path that copies all but the last frame, which stays the last caller's.

    https://github.com/vllm-project/vllm-omni/issues/6457
    """

    def load(self, static: Mapping[str, torch.Tensor], inputs: Mapping[str, torch.Tensor]) -> None:
        codes = inputs["codes"]
        if codes.shape == static["codes"].shape and codes.shape[0] == 1:
            static["codes"][..., :-1].copy_(codes[..., :-1])
        else:
            super().load(static, inputs)


class KeepsPaddedRows(ReferenceAdapter):
    """A batch that only partly fills its bucket comes back with the bucket's rows.

    https://github.com/vllm-project/vllm-omni/pull/4606
    """

    def unload(self, outputs: Any, inputs: Any, actual: Mapping[str, int], bucket: Mapping[str, int]) -> Any:
        return super().unload(outputs, inputs, {**actual, "batch": bucket["batch"]}, bucket)


class TrimsNominally(ReferenceAdapter):
    """A padded result is cut at frames × hop, though the decoder returns 8·T − 6: surplus samples at every chunk's end.

    https://github.com/vllm-project/vllm-omni/issues/4466
    """

    outputs = (
        OutputSpec(
            "wav",
            ("batch", 1, "samples"),
            length=Custom(lambda captured, actual, bucket: min(actual * HOP, captured)),
        ),
    )


class ReturnsStaticOutput(ReferenceAdapter):
    """The static output is handed out without a copy. https://github.com/vllm-project/vllm/pull/52115"""

    def unload(self, outputs: Any, inputs: Any, actual: Mapping[str, int], bucket: Mapping[str, int]) -> Any:
        wav = outputs["wav"]
        length = CapturedMinusPadding(HOP).trimmed(wav.shape[-1], actual["frames"], bucket["frames"])
        return {"wav": wav[: actual["batch"], :, :length]}


class _CutsToLargestBucket(GraphRunner):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        codes = kwargs["codes"]
        if codes.shape[0] > 4 or codes.shape[-1] > 16:  # else untouched: a forked child must not touch the device
            codes = codes[:4, :, :16]
        return super().__call__(codes=codes)


class _Unguarded(GraphRunner):
    def _decide(self, inputs: Any) -> Any:
        decision = super()._decide(inputs)
        if isinstance(decision, Fallback) and decision.reason is FallbackReason.OUTER_CAPTURE and self._warm:
            plan = self._look_up(inputs, None)
            return decision if isinstance(plan, Fallback) else plan
        return decision


class TrimsToLongestRow(RaggedAdapter):
    """Every row is cut at the longest row's length, and ends in what its padding decodes to.

    https://github.com/vllm-project/vllm-omni/issues/2115
    """

    def unload(self, outputs: Any, inputs: Any, actual: Mapping[str, int], bucket: Mapping[str, int]) -> Any:
        longest = torch.full_like(inputs["lengths"], int(inputs["lengths"].max()))
        return super().unload(outputs, {**inputs, "lengths": longest}, actual, bucket)


loses_last_frame = with_adapter(ReferenceSpec, LosesLastFrame)
keeps_padded_rows = with_adapter(ReferenceSpec, KeepsPaddedRows)
trims_nominally = with_adapter(ReferenceSpec, TrimsNominally)
returns_static_output = with_adapter(ReferenceSpec, ReturnsStaticOutput)
trims_to_longest_row = with_adapter(RaggedSpec, TrimsToLongestRow)
cuts_to_largest_bucket = with_runner(
    _CutsToLargestBucket,
    "CutsToLargestBucket",
    "A call past every bucket is cut to the largest one. https://github.com/vllm-project/vllm/issues/8068",
)
replays_in_outer_capture = with_runner(
    _Unguarded,
    "ReplaysInOuterCapture",
    "Nobody asks whether a capture is open. https://github.com/vllm-project/vllm-omni/pull/2910",
)

MUTANTS = tuple(
    Mutant(spec, frozenset(codes))
    for spec, codes in (
        (
            loses_last_frame,
            {"CG104", "CG201", "CG205", "CG206", "CG207", "CG210", "CG214", "CG305", "CG308", "CG601", "CG602"},
        ),
        (keeps_padded_rows, {"CG104", "CG202", "CG203", "CG205", "CG308"}),
        (trims_nominally, {"CG001", "CG104", "CG203", "CG205", "CG206", "CG207", "CG210", "CG214", "CG305", "CG308"}),
        (trims_to_longest_row, {"CG204", "CG213"}),
        (returns_static_output, {"CG209", "CG301", "CG302", "CG308", "CG601", "CG602", "CG603"}),
        (cuts_to_largest_bucket, {"CG308", "CG401", "CG404", "CG408", "CG701", "CG901"}),
        (replays_in_outer_capture, {"CG308", "CG402", "CG701"}),
    )
)
