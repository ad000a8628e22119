"""Mistakes with memory: what a bucket costs, what calls leave behind, and what close gives back."""

from __future__ import annotations

import copy
import os
from typing import Any

import torch

from runner import Bucket, GraphRunner
from tests.mutants.base import CapturingRunner, Mutant, with_runner

_kept_for_ever: list[Any] = []


class _OwnCopy(CapturingRunner):
    """Each bucket's graph is captured around a copy of the module, which lives as long as the runner."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._copies: list[Any] = []

    def _capture(self, bucket: Bucket) -> Any:
        adapter: Any = self._adapter
        original = adapter.module
        adapter.module = copy.deepcopy(original)
        self._copies.append(adapter.module)
        try:
            return super()._capture(bucket)
        finally:
            adapter.module = original

    def close(self) -> None:
        super().close()
        self._copies.clear()


class _OwnPool(CapturingRunner):
    def _capture(self, bucket: Bucket) -> Any:
        self._pool = torch.cuda.graph_pool_handle()
        return super()._capture(bucket)


class _KeepsResults(GraphRunner):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = super().__call__(*args, **kwargs)
        self.__dict__.setdefault("_recent", []).append(result)
        return result


class _KeepsInputs(GraphRunner):
    def _decide(self, inputs: Any) -> Any:
        if os.getpid() == self._pid:
            self.__dict__.setdefault("_seen", []).append([tensor.clone() for tensor in inputs])
        return super()._decide(inputs)


class _WarmsUpAgain(GraphRunner):
    def warmup(self) -> None:
        self._warm = False
        super().warmup()


class _OnlySaysClosed(GraphRunner):
    def close(self) -> None:
        self._closed, self._known = True, {}


class _KeepsStatics(CapturingRunner):
    def _capture(self, bucket: Bucket) -> Any:
        captured = super()._capture(bucket)
        _kept_for_ever.append(captured.static)
        return captured


class _KeepsGraphs(CapturingRunner):
    def _capture(self, bucket: Bucket) -> Any:
        captured = super()._capture(bucket)
        _kept_for_ever.append(captured.graph)
        return captured


class _RefusesOnceClosed(GraphRunner):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._closed:
            raise RuntimeError("the runner is closed")
        return super().__call__(*args, **kwargs)


MUTANTS = tuple(
    Mutant(with_runner(runner, name, f"{doc} {url}"), frozenset(codes))
    for runner, name, codes, doc, url in (
        (
            _OwnCopy,
            "CopiesTheModule",
            {"CG305", "CG501"},
            "Each bucket is captured around a copy of the weights.",
            "https://github.com/sgl-project/sglang-omni/pull/1209",
        ),
        (
            _OwnPool,
            "PoolForEachBucket",
            {"CG501"},
            "Each bucket is captured into a pool of its own, whatever pool was given.",
            "https://github.com/vllm-project/vllm-omni/pull/3932",
        ),
        (
            _KeepsResults,
            "KeepsResults",
            {"CG502", "CG504"},
            "Every result is kept for a debug view.",
            "https://github.com/vllm-project/vllm-omni/pull/2059",
        ),
        (
            _KeepsInputs,
            "KeepsInputs",
            {"CG502", "CG504"},
            "A copy of every call's inputs is kept, to compare later ones with.",
            "https://github.com/pytorch/pytorch/issues/155398",
        ),
        (
            _WarmsUpAgain,
            "WarmsUpAgain",
            {"CG503"},
            "A second warm-up captures everything again.",
            "https://github.com/vllm-project/vllm/issues/49224",
        ),
        (
            _OnlySaysClosed,
            "OnlySaysClosed",
            {"CG504"},
            "Close sets a flag and keeps everything.",
            "https://github.com/pytorch/pytorch/issues/155398",
        ),
        (
            _KeepsStatics,
            "KeepsStaticBuffers",
            {"CG504"},
            "A module-wide cache keeps static buffers of runners that are closed.",
            "https://github.com/vllm-project/vllm/issues/49224",
        ),
        (
            _KeepsGraphs,
            "KeepsGraphs",
            {"CG504"},
            "A list for debugging keeps every graph, and with it its pool.",
            "https://github.com/pytorch/pytorch/issues/155398",
        ),
        (
            _RefusesOnceClosed,
            "RefusesOnceClosed",
            {"CG504", "CG603", "CG701"},
            "A call after close raises instead of running eagerly.",
            "https://github.com/sgl-project/sglang-omni/pull/1395",
        ),
    )
)
