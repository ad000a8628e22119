"""Mistakes of a runner that captures a bucket when it is first called for, or no more than a memory limit holds."""

from __future__ import annotations

import time
from typing import Any

import torch

from runner import Fallback, FallbackReason, GraphConfig, GraphRunner
from tests.mutants.base import Mutant, ReferenceSpec, with_runner


class LazySpec(ReferenceSpec):
    """The correct reference subject, each bucket captured by its first call."""

    name = "correct_lazy"
    config = GraphConfig(lazy=True, max_lazy_graphs=8)


class LimitedSpec(ReferenceSpec):
    """The correct reference subject under a memory limit that leaves out one bucket."""

    name = "correct_limited"
    config = GraphConfig(memory_limit_bytes=8_000)
    left_out = ({"batch": 8, "frames": 32},)


class _SaysNoBucket(GraphRunner):
    def _decide(self, inputs: Any) -> Any:
        decision = super()._decide(inputs)
        over = isinstance(decision, Fallback) and decision.reason is FallbackReason.MEMORY_LIMIT
        return Fallback(FallbackReason.NO_BUCKET) if over else decision


class _CapturesInside(GraphRunner):
    def _decide(self, inputs: Any) -> Any:
        decision = super()._decide(inputs)
        inside = isinstance(decision, Fallback) and decision.reason is FallbackReason.OUTER_CAPTURE
        if inside and self._warm and not self._graphs:
            self._look_up(inputs, None)
        return decision


class _CapturesForEach(GraphRunner):
    """Looks without the lock whether a graph is missing."""

    def _decide(self, inputs: Any) -> Any:
        if self._warm and not self._graphs and not self._closed and not torch.cuda.is_current_stream_capturing():
            time.sleep(0.005)  # where the race is
            sizes: Any = self._adapter.measure(self._named(inputs), self._device)
            if not isinstance(sizes, str) and (bucket := self._requested.lookup(sizes)):
                with self._lock:
                    self._capture_lazily(bucket)
        return super()._decide(inputs)


class _ReturnsWhatItCaptured(GraphRunner):
    def _replay(self, plan: Any, inputs: Any) -> Any:
        first = not self.__dict__.setdefault("_served", set()) & {plan.captured.bucket}
        self.__dict__["_served"].add(plan.captured.bucket)
        result = super()._replay(plan, inputs)
        return torch.zeros_like(result) if first else result


MUTANTS = tuple(
    Mutant(with_runner(runner, name, f"{doc} {url}", base), frozenset(codes))
    for base, runner, name, codes, doc, url in (
        (
            LimitedSpec,
            _SaysNoBucket,
            "HidesItsMemoryLimit",
            {"CG701"},
            "A call whose bucket the memory limit left out counts as one that no bucket holds.",
            "https://github.com/vllm-project/vllm-omni/pull/3932",
        ),
        (
            LazySpec,
            _CapturesInside,
            "CapturesInsideACapture",
            {"CG106"},
            "A graph that is missing is captured inside an outer capture as well.",
            "https://github.com/vllm-project/vllm-omni/pull/7180",
        ),
        (
            LazySpec,
            _CapturesForEach,
            "CapturesForEachCaller",
            {"CG106"},
            "Callers that come at the same time capture the same bucket once each.",
            "https://github.com/sgl-project/sglang-omni/issues/825",
        ),
        (
            LazySpec,
            _ReturnsWhatItCaptured,
            "ReturnsWhatItCaptured",
            {"CG106"},
            "The call that captures returns memory that no replay has written.",
            "https://github.com/vllm-project/vllm/pull/52115",
        ),
    )
)
