"""Stands in for `torch.cuda.CUDAGraph`, and keeps the pools that graphs share.

Torch's own `torch.cuda.graph` and `make_graphed_callables` run unchanged on top of it.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from conformance.emulation import capture as captures
from conformance.emulation.capture import ALREADY_FAILED, UNJOINED_WORK, Capture
from conformance.emulation.errors import CaptureInvalidated
from conformance.emulation.program import Program
from conformance.emulation.random import Generator
from conformance.emulation.streams import DEFAULT_STREAM, current_stream
from conformance.emulation.tape import Tape

PoolHandle = tuple[int, int]
ERROR_MODES = ("global", "thread_local", "relaxed")

_pool_ids = itertools.count(1)
_pools: dict[PoolHandle, list[weakref.ref[CUDAGraph]]] = {}
_device_lock = threading.RLock()
"""One replay at a time: it fills memory that belongs to its graph, and poisons that of its pool's other graphs."""
_still_recording: set[PoolHandle] = set()
"""Pools of captures that were invalidated: torch leaves them recording, and refuses another capture into them."""


def graph_pool_handle() -> PoolHandle:
    """Stands in for `torch.cuda.graph_pool_handle`."""
    return (0, next(_pool_ids))


def forget_pools() -> None:
    _pools.clear()
    _still_recording.clear()


@contextlib.contextmanager
def _as_the_device_runs() -> Iterator[None]:
    """No dispatch mode, function mode, autograd, autocast or inference mode of the caller touches what was recorded."""
    autocast = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    with (
        torch._C._DisableTorchDispatch(),
        torch._C.DisableTorchFunction(),
        torch._C._InferenceMode(False),
        torch._C._AutoDispatchBelowAutograd(),
        torch._C._ExcludeDispatchKeyGuard(autocast),
    ):
        yield


def _failure_of(capture: Capture) -> str | None:
    """What CUDA says at the end of a capture that cannot become a graph."""
    if capture.refusal is not None:
        return f"{ALREADY_FAILED}. The first refused operation: {capture.refusal}"
    if capture.unjoined:
        return f"{UNJOINED_WORK}: let the capturing stream wait for {sorted(map(repr, capture.unjoined))}"
    return None


class CUDAGraph:
    """Records on `capture_begin`, freezes on `capture_end`, re-executes on `replay`.

    `captures` and `replays` count what succeeded, `calls` and `nbytes` say how large the graph is.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self._program: Program | None = None
        self._pool: PoolHandle | None = None
        self._registered: list[Generator] = []
        self._drawn_from: list[tuple[Generator, torch.Tensor]] = []
        self.captures = 0
        self.replays = 0

    @property
    def calls(self) -> int:
        return len(self._program.calls) if self._program else 0

    @property
    def nbytes(self) -> int:
        return self._program.nbytes if self._program else 0

    def capture_begin(
        self,
        pool: PoolHandle | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        if self._program is not None:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new instance."
            )
        if capture_error_mode not in ERROR_MODES:
            raise RuntimeError(
                f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got {capture_error_mode}"
            )
        stream = current_stream()
        if stream == DEFAULT_STREAM:
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. "
                "(However, after capture, it's ok to replay them on the default stream.)"
            )
        if pool in _still_recording:
            raise RuntimeError(f"beginAllocateToPool: already recording to mempool_id {pool}")
        default: Any = torch.cuda.default_generators[0]
        generators: tuple[Generator, ...] = (
            default,
            *(generator for generator in self._registered if generator is not default),
        )
        captures.begin(Capture(Tape(), stream, generators))
        self._pool = pool if pool is not None else graph_pool_handle()
        self._drawn_from = [(generator, generator.get_state()) for generator in generators]
        for generator in generators:
            generator.capturing = True

    def capture_end(self) -> None:
        opened = captures.current_capture()
        if opened is not None and opened.stream != current_stream():
            raise RuntimeError("Capture must end on the same stream it began on.")
        capture = captures.end()
        for generator, state in self._drawn_from:  # capture executes nothing, so it draws nothing
            generator.set_state(state)
        self._drawn_from = []
        with _as_the_device_runs():
            failure = _failure_of(capture)
            if failure is not None:
                capture.tape.undo_writes()
                assert self._pool is not None
                _still_recording.add(self._pool)
                raise CaptureInvalidated(failure)
            self._program = Program(capture.tape)
        for generator in capture.generators:
            generator.capturing = False
        self.captures += 1
        assert self._pool is not None
        _pools.setdefault(self._pool, []).append(weakref.ref(self))

    def instantiate(self) -> None:
        """Nothing to prepare."""

    def replay(self) -> None:
        if captures.current_capture() is not None:
            raise RuntimeError(
                "Cannot prepare for replay during capturing stage. during CUDA graph capture. "
                "Replay the graph outside the capture, or run eagerly while torch.cuda.is_current_stream_capturing()."
            )
        if self._program is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        with _device_lock, _as_the_device_runs(), torch.set_grad_enabled(self._program.grad_mode):
            self._clobber_later_graphs()
            self._program.replay()
        self.replays += 1

    def _clobber_later_graphs(self) -> None:
        """A pool gives a later graph the blocks that this one no longer held: its replay writes over their results."""
        assert self._pool is not None
        later = False
        for reference in _pools.get(self._pool, ()):
            graph = reference()
            if graph is self:
                later = True
            elif later and graph is not None and graph._program is not None:
                graph._program.poison_static()

    def reset(self) -> None:
        self._program = None
        if self._pool is not None and self._pool in _pools:
            _pools[self._pool] = [ref for ref in _pools[self._pool] if ref() not in (None, self)]

    def pool(self) -> PoolHandle:
        if self._program is None or self._pool is None:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self._pool

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Let the next capture draw from `generator`, which then advances with each replay."""
        if not isinstance(generator, Generator) or generator.device.type != "cuda":
            raise RuntimeError(f"Expected a 'cuda' device type for generator but found '{generator.device.type}'")
        self._registered.append(generator)

    def enable_debug_mode(self) -> None:
        """`debug_dump` always works."""

    def debug_dump(self, debug_path: str) -> None:
        """Write the recorded calls, one a line, with the user's line that made each."""
        with open(debug_path, "w", encoding="utf-8") as file:
            file.writelines(f"{call.name}  {call.site}\n" for call in (self._program.calls if self._program else ()))

    def raw_cuda_graph(self) -> Any:
        raise RuntimeError("raw_cuda_graph: emulated CUDA has no cudaGraph_t; use debug_dump to see the recorded calls")
