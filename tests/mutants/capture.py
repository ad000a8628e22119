"""Mistakes at warm-up: what is captured, when, and what a failed capture leaves behind."""

from __future__ import annotations

import os
from typing import Any

import torch

from runner import Bucket, GraphRunner
from runner.capture import Captured, capture
from tests.mutants.base import CapturingRunner, Mutant, ReferenceAdapter, ReferenceSpec, with_adapter, with_runner


class _SkipsOne(CapturingRunner):
    def _capture(self, bucket: Bucket) -> Any:
        if str(bucket) == "b1-f8":
            raise RuntimeError("not worth its memory")
        return super()._capture(bucket)


class _CapturesTwice(CapturingRunner):
    def _capture(self, bucket: Bucket) -> Any:
        super()._capture(bucket)
        return super()._capture(bucket)


class _CapturesLate(GraphRunner):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        codes, here = kwargs["codes"], os.getpid() == self._pid
        frames, capturing = codes.shape[-1], here and torch.cuda.is_current_stream_capturing()
        if here and self._warm and not self._closed and not capturing and frames > 8 and codes.shape[0] == 1:
            late = Bucket((("batch", 1), ("frames", frames)))
            with torch.no_grad():
                capture(self._adapter, late, self._config, self._pool, self._side)
        return super().__call__(*args, **kwargs)


class _HalfAnEntry(CapturingRunner):
    def _capture(self, bucket: Bucket) -> Any:
        try:
            return super()._capture(bucket)
        except RuntimeError as error:
            codes = torch.zeros((bucket["batch"], 4, bucket["frames"]), dtype=torch.long, device=self._device)
            outputs, structure = self._adapter.named_outputs(self._adapter.forward(codes))
            self._pool = torch.cuda.graph_pool_handle()
            self.failed[bucket] = str(error)
            return Captured(bucket, torch.cuda.CUDAGraph(), {"codes": codes}, outputs, structure)


class _AllOrNothing(GraphRunner):
    def warmup(self) -> None:
        super().warmup()
        if self.failed:
            self._publish({})


class _FailsInSilence(GraphRunner):
    def warmup(self) -> None:
        super().warmup()
        self.statistics.failed = {}


class _CountsPlans(GraphRunner):
    def warmup(self) -> None:
        super().warmup()
        if self.failed:
            self.statistics.captures = dict.fromkeys(map(str, self._requested.buckets), (0.0, 0))


class _LeavesItsStream(CapturingRunner):
    def _capture(self, bucket: Bucket) -> Any:
        try:
            return super()._capture(bucket)
        except RuntimeError:
            torch.cuda.set_stream(self._side)
            raise


class _StopsAtTheFirst(GraphRunner):
    def warmup(self) -> None:
        super().warmup()
        if self.failed:
            raise RuntimeError(f"capture failed: {self.failed}")


class _Reseeds(GraphRunner):
    def warmup(self) -> None:
        torch.manual_seed(0)
        super().warmup()


class _DrawsAtWarmUp(GraphRunner):
    def warmup(self) -> None:
        torch.rand(1, device=self._device)
        super().warmup()


class _RescalesWeights(GraphRunner):
    def warmup(self) -> None:
        weight = self._adapter.module.head.weight  # type: ignore[attr-defined]
        with torch.no_grad():
            weight.mul_(1 + 2**-20)  # a few bits
        super().warmup()


class _CountsOnTheModule(GraphRunner):
    def warmup(self) -> None:
        module: Any = self._adapter.module  # type: ignore[attr-defined]
        module.warm_ups = getattr(module, "warm_ups", 0) + 1
        super().warmup()


class SyncsUnlessTold(ReferenceAdapter):
    """Codes are checked on the host, except where the runner sets a flag around its own captures.

    https://github.com/vllm-project/vllm-omni/issues/4562
    """

    told = False

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        if not self.told and int(codes.min()) < 0:
            raise ValueError("negative code")
        return super().forward(codes)


class _Tells(CapturingRunner):
    def _capture(self, bucket: Bucket) -> Any:
        adapter: Any = self._adapter
        adapter.told = True
        try:
            return super()._capture(bucket)
        finally:
            adapter.told = False


syncs_unless_told = with_adapter(
    ReferenceSpec,
    SyncsUnlessTold,
    make_runner=lambda self, adapter, device, config=None, pool=None: _Tells(
        adapter, self.buckets, device=device, config=config, pool=pool
    ),
)

MUTANTS = (
    Mutant(syncs_unless_told, frozenset({"CG103", "CG308", "CG402", "CG404", "CG701"})),
    *(
        Mutant(with_runner(runner, name, f"{doc} {url}"), frozenset(codes))
        for runner, name, codes, doc, url in (
            (
                _SkipsOne,
                "SkipsOneBucket",
                {"CG101", "CG104", "CG406", "CG408", "CG501", "CG701"},
                "A bucket in the middle is left to the next larger one.",
                "https://github.com/sgl-project/sglang-omni/pull/886",
            ),
            (
                _CapturesTwice,
                "CapturesTwice",
                {"CG101", "CG104", "CG701"},
                "Every bucket is captured twice, and the first graph is thrown away.",
                "https://github.com/vllm-project/vllm-omni/pull/3932",
            ),
            (
                _CapturesLate,
                "CapturesLate",
                {"CG102", "CG401"},
                "A length past the buckets is captured in the request that brings it.",
                "https://github.com/vllm-project/vllm-omni/pull/2059",
            ),
            (
                _HalfAnEntry,
                "KeepsHalfAnEntry",
                {"CG104"},
                "A failed capture leaves its entry in the table, with a graph that was never captured.",
                "https://github.com/pytorch/pytorch/pull/190348",
            ),
            (
                _AllOrNothing,
                "DropsAllForOne",
                {"CG104"},
                "One failed capture takes every other bucket's graph with it.",
                "https://github.com/sgl-project/sglang-omni/issues/1018",
            ),
            (
                _FailsInSilence,
                "FailsInSilence",
                {"CG104"},
                "A failed capture is told to nobody.",
                "https://github.com/sgl-project/sglang-omni/pull/798",
            ),
            (
                _CountsPlans,
                "CountsPlannedGraphs",
                {"CG104"},
                "The statistics count the graphs that were planned.",
                "https://github.com/sgl-project/sglang-omni/pull/798",
            ),
            (
                _LeavesItsStream,
                "LeavesItsStreamCurrent",
                {"CG104"},
                "After a failed capture the side stream stays current.",
                "https://github.com/sgl-project/sglang-omni/issues/1018",
            ),
            (
                _StopsAtTheFirst,
                "StopsAtTheFirstFailure",
                {"CG104"},
                "A failed capture ends the start-up of the whole service.",
                "https://github.com/pytorch/pytorch/pull/190348",
            ),
            (
                _Reseeds,
                "ReseedsAtWarmUp",
                {"CG105"},
                "Warm-up sets the seed, so that its inputs repeat.",
                "https://github.com/pytorch/pytorch/issues/84614",
            ),
            (
                _DrawsAtWarmUp,
                "DrawsAtWarmUp",
                {"CG105"},
                "Warm-up draws from the device's default generator.",
                "https://github.com/pytorch/pytorch/issues/91950",
            ),
            (
                _RescalesWeights,
                "RescalesWeights",
                {"CG105", "CG404"},
                "Warm-up folds a gain into the weights, each time it is called.",
                "https://github.com/vllm-project/vllm-omni/pull/4929",
            ),
            (
                _CountsOnTheModule,
                "CountsOnTheModule",
                {"CG105"},
                "Warm-up leaves its counter on the module, which other code reads.",
                "https://github.com/pytorch/pytorch/issues/114844",
            ),
        )
    ),
)
