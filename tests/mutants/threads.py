"""Mistakes that only a second thread, a close among calls or a fork can show.

Each waits a moment where the race is, as a slow copy would, so that it shows every time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import torch

from runner import Fallback, FallbackReason, GraphRunner
from tests.mutants.base import Mutant, ReferenceAdapter, ReferenceSpec, with_adapter, with_runner

MOMENT = 0.001  # seconds


class _NoLock:
    """Stands in for the runner's lock."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class _Unlocked(GraphRunner):
    """All calls share one stream: two replays at once would read one another's indices, and a GPU is lost to that."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lock = _NoLock()  # type: ignore[assignment]
        self._stream = torch.cuda.Stream()

    def _replay(self, *args: Any) -> Any:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            result = super()._replay(*args)
        self._stream.synchronize()
        return result


class LoadsSlowly(ReferenceAdapter):
    """No lock holds the static buffers from load to unload, so that a second caller's input replaces the first's.

    https://github.com/sgl-project/sglang-omni/issues/825
    """

    def load(self, static: Mapping[str, torch.Tensor], inputs: Mapping[str, torch.Tensor]) -> None:
        super().load(static, inputs)
        time.sleep(MOMENT)

    def unload(self, outputs: Any, inputs: Any, actual: Mapping[str, int], bucket: Mapping[str, int]) -> Any:
        time.sleep(MOMENT)
        return super().unload(outputs, inputs, actual, bucket)


class _SharedDecision(GraphRunner):
    def _decide(self, inputs: Any) -> Any:
        self._decision = super()._decide(inputs)
        time.sleep(MOMENT)
        return self._decision

    def close(self) -> None:
        super().close()
        self._decision = Fallback(FallbackReason.CLOSED)


class _ClosesUnderCalls(GraphRunner):
    def close(self) -> None:
        if os.getpid() == self._pid:
            for captured in self._graphs.values():
                captured.graph.reset()
            time.sleep(20 * MOMENT)
        super().close()


class _NoForkGuard(GraphRunner):
    def _decide(self, inputs: Any) -> Any:
        self._pid = os.getpid()
        return super()._decide(inputs)


class _CountsForksAsClosed(GraphRunner):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if os.getpid() != self._pid:
            self._closed = True
        return super().__call__(*args, **kwargs)


class _ClosesInAChild(GraphRunner):
    def close(self) -> None:
        if os.getpid() != self._pid and self._graphs:
            raise RuntimeError("the parent's graphs cannot be freed here")
        super().close()


def _unlocked(self: Any, adapter: Any, device: torch.device, config: Any = None, pool: Any = None) -> GraphRunner:
    return _Unlocked(adapter, self.buckets, device=device, config=config, pool=pool)


unlocked = with_adapter(ReferenceSpec, LoadsSlowly, make_runner=_unlocked)

MUTANTS = (
    Mutant(unlocked, frozenset({"CG601", "CG603"}), by_chance=frozenset({"CG602"})),
    *(
        Mutant(with_runner(runner, name, f"{doc} {url}"), frozenset(codes))
        for runner, name, codes, doc, url in (
            (
                _SharedDecision,
                "SharesItsDecision",
                {"CG602"},
                "The bucket of a call is kept on the runner, where the next call's replaces it.",
                "https://github.com/vllm-project/vllm/pull/48053",
            ),
            (
                _ClosesUnderCalls,
                "ClosesUnderCalls",
                {"CG603"},
                "Close lets graphs go without waiting for the calls that use them.",
                "https://github.com/sgl-project/sglang-omni/pull/1395",
            ),
            (
                _NoForkGuard,
                "ReplaysInAChild",
                {"CG604"},
                "Nobody asks which process this is.",
                "https://github.com/sgl-project/sglang-omni/pull/1101",
            ),
            (
                _CountsForksAsClosed,
                "CountsForksAsClosed",
                {"CG604"},
                "A call in a child is counted as one after close.",
                "https://github.com/FastCrest/tether/issues/283",
            ),
            (
                _ClosesInAChild,
                "ClosesInAChild",
                {"CG604"},
                "Close in a child reaches for the parent's graphs, and raises.",
                "https://github.com/sgl-project/sglang-omni/pull/1101",
            ),
        )
    ),
)
