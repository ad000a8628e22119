"""Mistakes that an exactly filled bucket, one later call or one counter does not show."""

from __future__ import annotations

from typing import Any

import torch

from runner import CapturedMinusPadding, Fallback, FallbackReason, GraphRunner
from runner.statistics import GraphStatistics
from tests.mutants.base import HOP, Mutant, ReferenceAdapter, ReferenceSpec, with_adapter, with_runner


class _FrozenInOuterCapture(GraphRunner):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = super().__call__(*args, **kwargs)
        last = self.__dict__.get("_last")
        if not torch.cuda.is_current_stream_capturing():
            self.__dict__["_last"] = result
        elif last is not None and last.shape == result.shape:
            return result * 0 + last
        return result


class _ReplaysForShow(GraphRunner):
    def _replay(self, plan: Any, inputs: Any) -> Any:
        super()._replay(plan, inputs)
        with torch.no_grad():
            return self._adapter.forward(*inputs)


class AliasesPaddedResults(ReferenceAdapter):
    """A padded result is a slice of the static output. https://github.com/vllm-project/vllm/pull/52115"""

    def unload(self, outputs: Any, inputs: Any, actual: Any, bucket: Any) -> Any:
        if actual["frames"] == bucket["frames"]:
            return super().unload(outputs, inputs, actual, bucket)
        wav = outputs["wav"]
        length = CapturedMinusPadding(HOP).trimmed(wav.shape[-1], actual["frames"], bucket["frames"])
        return {"wav": wav[: actual["batch"], :, :length]}


class WrongWhenBothPadded(ReferenceAdapter):
    """A call that fills neither the rows nor the frames of its bucket loses its first row.

    https://github.com/vllm-project/vllm-omni/pull/4606
    """

    def unload(self, outputs: Any, inputs: Any, actual: Any, bucket: Any) -> Any:
        result = super().unload(outputs, inputs, actual, bucket)
        if actual["batch"] < bucket["batch"] and actual["frames"] < bucket["frames"]:
            result["wav"][0] = result["wav"][-1]
        return result


class _ForgetsOuterCaptures(GraphStatistics):
    def record_miss(self, fallback: Fallback | None) -> None:
        if fallback is None or fallback.reason is not FallbackReason.OUTER_CAPTURE:
            super().record_miss(fallback)


class _CountsNoOuterCapture(GraphRunner):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.statistics = _ForgetsOuterCaptures()


class _GuardsFullCallsOnly(GraphRunner):
    def _decide(self, inputs: Any) -> Any:
        capturing = torch.cuda.is_current_stream_capturing
        padded = self._named(inputs)["codes"].shape[-1] == 5
        if not (padded and self._warm and not self._closed and capturing()):
            return super()._decide(inputs)
        return self._look_up(inputs, None)


MUTANTS = tuple(
    Mutant(spec, frozenset(codes.split()))
    for spec, codes in (
        (
            with_runner(
                _FrozenInOuterCapture,
                "FrozenInOuterCapture",
                "Inside an outer capture the last result is given again. "
                "https://github.com/vllm-project/vllm-omni/pull/2910",
            ),
            "CG402 CG504",
        ),
        (
            with_runner(
                _ReplaysForShow,
                "ReplaysForShow",
                "The graph is replayed, and the result comes from eager execution. "
                "https://github.com/vllm-project/vllm/pull/36165",
            ),
            "CG101 CG104 CG201 CG202 CG203 CG204 CG205 CG206 CG207 CG208 CG209 CG210 CG211 CG212 CG214 CG215 CG301 "
            "CG302 CG305 CG308 CG402 CG404 CG406 CG801",
        ),
        (with_adapter(ReferenceSpec, AliasesPaddedResults), "CG209 CG301 CG302 CG308"),
        (with_adapter(ReferenceSpec, WrongWhenBothPadded), "CG203 CG205 CG308"),
        (
            with_runner(
                _CountsNoOuterCapture,
                "CountsNoOuterCapture",
                "A fallback inside an outer capture is not counted. https://github.com/FastCrest/tether/issues/283",
            ),
            "CG402 CG701",
        ),
        (
            with_runner(
                _GuardsFullCallsOnly,
                "GuardsFullCallsOnly",
                "Only a call that fills its bucket asks whether a capture is open. "
                "https://github.com/vllm-project/vllm-omni/pull/6639",
            ),
            "CG308 CG402",
        ),
    )
)
