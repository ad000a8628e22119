"""Mistakes about which calls are graphed, by what: classes F, N, Q and U."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import torch

from conformance.traces import Trace
from runner import BucketTable, Fallback, FallbackReason, GraphRunner
from tests.mutants.base import Mutant, ReferenceAdapter, ReferenceSpec, with_adapter, with_runner


class _IgnoresEnforceEager(GraphRunner):
    def __init__(self, *args: Any, config: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, config=config and replace(config, enforce_eager=False), **kwargs)


class _IgnoresMode(GraphRunner):
    def __init__(self, *args: Any, config: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, config=config and replace(config, cudagraph_mode=None), **kwargs)


class _CapturesAllTheSame(GraphRunner):
    def warmup(self) -> None:
        enabled, self.enabled = self.enabled, True
        try:
            super().warmup()
        finally:
            self.enabled = enabled


class _SaysNotCaptured(GraphRunner):
    def _decide(self, inputs: Any) -> Any:
        decision = super()._decide(inputs)
        if isinstance(decision, Fallback) and decision.reason is FallbackReason.DISABLED:
            return Fallback(FallbackReason.NOT_CAPTURED)
        return decision


class _WarmsUpAnywhere(GraphRunner):
    def warmup(self) -> None:
        if torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()
        super().warmup()


class _WaitsBeforeWarmup(GraphRunner):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.enabled and not self._warm and not self._closed:
            torch.cuda.synchronize()
        return super().__call__(*args, **kwargs)


class CastsCodes(ReferenceAdapter):
    """Float codes are copied into the integer buffer. https://github.com/vllm-project/vllm/issues/43145"""

    def measure(self, inputs: Any, device: torch.device) -> Any:
        codes = inputs["codes"]
        return super().measure({"codes": codes.long() if isinstance(codes, torch.Tensor) else codes}, device)


class BroadcastsOneCodeRow(ReferenceAdapter):
    """One code row is broadcast over all quantizers. https://github.com/vllm-project/vllm/issues/8068"""

    def measure(self, inputs: Any, device: torch.device) -> Any:
        codes = inputs["codes"]
        if isinstance(codes, torch.Tensor) and codes.dim() == 3 and codes.shape[1] == 1:
            codes = codes.expand(-1, self.sizes["n_vq"], -1)
        return super().measure({"codes": codes}, device)


class TakesHostTensors(ReferenceAdapter):
    """A host tensor is copied over without a word. https://github.com/vllm-project/vllm/issues/43145"""

    def measure(self, inputs: Any, device: torch.device) -> Any:
        codes = inputs["codes"]
        return super().measure({"codes": codes.to(device) if isinstance(codes, torch.Tensor) else codes}, device)


class _DearestFirst(BucketTable):
    def lookup(self, sizes: Any, among: Any = None) -> Any:
        serving = (bucket for bucket in self.buckets[::-1] if among is None or bucket in among)
        return next((bucket for bucket in serving if all(bucket[axis] >= sizes[axis] for axis in sizes)), None)


class _TakesTheLargest(GraphRunner):
    def warmup(self) -> None:
        super().warmup()
        self._requested = _DearestFirst(self._requested.buckets, self._adapter.axes)


class _DeclaresTooFewBuckets(ReferenceSpec):
    """Half of the calls that serving makes are longer than any bucket.

    https://github.com/sgl-project/sglang-omni/pull/886
    """

    name = "DeclaresTooFewBuckets"
    trace = Trace.of({"batch": 1, "frames": 8}, {"batch": 1, "frames": 9})


class _FallsBackToTheModule(GraphRunner):
    """The fallback calls the module, past the adapter."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        adapter: Any = self._adapter
        decision = self._decide(inputs := self._bind(args, kwargs))
        if not isinstance(decision, Fallback):
            return super().__call__(*args, **kwargs)
        self.statistics.record_miss(decision)
        with torch.no_grad():
            return adapter.module(self._named(inputs)["codes"])


class _CapturesTheModule(GraphRunner):
    """The capture calls the module, past the adapter."""

    def warmup(self) -> None:
        adapter: Any = self._adapter
        with mock.patch.object(adapter, "forward", adapter.module):
            super().warmup()


_NOT_READ = "https://github.com/vllm-project/vllm-omni/pull/3732"
MUTANTS = tuple(
    Mutant(spec if doc is None else with_runner(spec, name, doc), frozenset(codes.split()))
    for spec, name, doc, codes in (
        (_IgnoresEnforceEager, "IgnoresEnforceEager", f"`enforce_eager` is not read. {_NOT_READ}", "CG403"),
        (_IgnoresMode, "IgnoresCudagraphMode", f"`cudagraph_mode` is not read. {_NOT_READ}", "CG403"),
        (
            _CapturesAllTheSame,
            "CapturesAllTheSame",
            "The switch keeps calls from replaying, and warm-up captures. https://github.com/kekzl/imp/pull/1502",
            "CG403",
        ),
        (_SaysNotCaptured, "SaysNotCaptured", f"Disabled is counted as not captured. {_NOT_READ}", "CG403 CG701"),
        (
            _WarmsUpAnywhere,
            "WarmsUpAnywhere",
            "Warm-up waits inside a capture. https://github.com/vllm-project/vllm-omni/pull/6639",
            "CG404",
        ),
        (
            _WaitsBeforeWarmup,
            "WaitsBeforeWarmup",
            "The path to lazy capture waits. https://github.com/vllm-project/vllm-omni/pull/2910",
            "CG404",
        ),
        (with_adapter(ReferenceSpec, CastsCodes), "", None, "CG405 CG701"),
        (with_adapter(ReferenceSpec, BroadcastsOneCodeRow), "", None, "CG405"),
        (with_adapter(ReferenceSpec, TakesHostTensors), "", None, "CG405"),
        (
            _TakesTheLargest,
            "TakesTheLargestBucket",
            "The lookup takes the largest bucket. https://github.com/vllm-project/vllm/pull/36165",
            "CG406 CG701",
        ),
        (_DeclaresTooFewBuckets, "", None, "CG407"),
        (
            _FallsBackToTheModule,
            "FallsBackToTheModule",
            "The fallback is another callable. https://github.com/sgl-project/sglang-omni/pull/1209",
            "CG408 CG604",
        ),
        (
            _CapturesTheModule,
            "CapturesTheModule",
            "What is captured is another callable. https://github.com/sgl-project/sglang-omni/pull/1209",
            "CG104 CG408 CG701",
        ),
    )
)
