"""Mistakes that make a graph not worth its while: class N, seen by the clock or by counts over many calls."""

from __future__ import annotations

import time
from typing import Any

from runner import Fallback, FallbackReason, GraphRunner
from tests.mutants.base import Mutant, ReferenceSpec, with_runner

_LATER = 12
"""Calls that a runner takes before its mistake shows."""


class _Counting(GraphRunner):
    calls = 0

    def _replay(self, plan: Any, inputs: Any) -> Any:
        self.calls += 1
        return super()._replay(plan, inputs)


class _Waits(_Counting):
    def _replay(self, plan: Any, inputs: Any) -> Any:
        time.sleep(0.004)
        return super()._replay(plan, inputs)


class _CapturesAgain(_Counting):
    def _replay(self, plan: Any, inputs: Any) -> Any:
        if self.calls == _LATER:
            self._capture_each([plan.captured.bucket])
        return super()._replay(plan, inputs)


class _KeepsAll(_Counting):
    def _replay(self, plan: Any, inputs: Any) -> Any:
        result = super()._replay(plan, inputs)
        if self.calls > _LATER:
            self.kept = [*getattr(self, "kept", ()), result]
        return result


class _TiresOfReplaying(GraphRunner):
    """Falls back once a bucket was asked for, and nothing else, many times in a row."""

    calls = 0
    last: Any = None

    def _decide(self, inputs: Any) -> Any:
        decision = super()._decide(inputs)
        sizes = None if isinstance(decision, Fallback) else decision.sizes
        self.calls, self.last = (self.calls + 1 if sizes == self.last else 0), sizes
        return Fallback(FallbackReason.NOT_CAPTURED) if sizes and self.calls > 20 else decision


_WRONG: tuple[tuple[type[GraphRunner], str, str, str], ...] = (
    (
        _Waits,
        "WaitsInTheReplay",
        "A call takes longer than eager. https://github.com/vllm-project/vllm-omni/pull/3732",
        "CG801",
    ),
    (
        _CapturesAgain,
        "CapturesInLaterCalls",
        "A bucket is captured again while serving. https://github.com/vllm-project/vllm-omni/pull/2910",
        "CG102 CG801",
    ),
    (
        _KeepsAll,
        "KeepsEveryLaterResult",
        "Results are kept for ever. https://github.com/vllm-project/vllm-omni/pull/3932",
        "CG502 CG801",
    ),
    (
        _TiresOfReplaying,
        "TiresOfReplaying",
        "Later calls fall back. https://github.com/sgl-project/sglang-omni/pull/886",
        "CG801",
    ),
)
MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant(with_runner(runner, name, doc, ReferenceSpec), frozenset(codes.split()))
    for runner, name, doc, codes in _WRONG
)
