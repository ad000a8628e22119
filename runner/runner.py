"""Capture, replay and eager fallback of one submodule's CUDA graphs."""

import logging
import os
import threading
import time
import traceback
from collections.abc import Iterable
from dataclasses import astuple
from math import prod
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_unflatten

from runner.adapter import GraphAdapter, Sizes, Tensors
from runner.buckets import Bucket, BucketTable
from runner.config import GraphConfig
from runner.errors import AdapterError
from runner.policy import Fallback, FallbackReason, decide_enabled
from runner.statistics import GraphStatistics

logger = logging.getLogger(__name__)
_Captured = tuple[torch.cuda.CUDAGraph, Tensors, Tensors, TreeSpec]  # the graph, its static inputs and outputs


class GraphRunner:
    """Serves an adapter's `forward` from CUDA graphs where it can, and eagerly, with a counted reason, where not.

    1. Construct: declaration, buckets and configuration are validated; nothing is allocated.
    2. `warmup()`: every bucket is run and captured, largest first, into one pool. A bucket that fails is left out
       alone, its error in `failed`. All calls are eager until the last capture has ended.
    3. Call: load into static buffers, replay, unload into fresh clones; or run `forward` on the caller's tensors.
    4. `close()`: graphs, buffers and pool are let go; later calls are eager.

    It does not capture lazily, evict, retry a failed replay eagerly, keep a module's state, or register generators.
    """

    def __init__(self, adapter: GraphAdapter, buckets: Iterable[Sizes], *, device: torch.device | str,
                 config: GraphConfig | None = None, pool: Any = None) -> None:  # fmt: skip
        adapter.validate_declaration()
        adapter.fixed_sizes()
        self._adapter, self._config, self._pool = adapter, config or GraphConfig(), pool
        self._device, self._pid, self._lock = torch.device(device), os.getpid(), threading.Lock()
        self.enabled, why, overridden = astuple(decide_enabled(self._device, self._config))
        if overridden:
            logger.warning("CUDA graphs of %s: %s", type(adapter).__qualname__, why)
        self.statistics = GraphStatistics()
        self._requested = BucketTable(buckets, adapter.axes)
        self._available: BucketTable | None = None
        self._graphs: dict[Bucket, _Captured] = {}
        self.captured: tuple[Bucket, ...] = ()  # what replays, cheapest first
        self.failed: dict[Bucket, str] = {}  # whose capture failed, with its error's text
        self._warm = self._closed = False

    def warmup(self) -> None:
        """Capture every bucket, once. Raises RuntimeError inside another capture; a bucket's own failure is logged."""
        if not self.enabled or self._closed or os.getpid() != self._pid:
            return
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("warmup() was called inside a CUDA graph capture: call it before the capture begins")
        rng = torch.random.fork_rng([self._device])  # a module that draws must draw afterwards what it would have drawn
        with self._lock, rng, torch.no_grad(), torch.autocast("cuda", enabled=False), torch.cuda.device(self._device):
            if self._warm or self._closed:
                return
            self._device = torch.empty(0, device=self._device).device
            self._pool = torch.cuda.graph_pool_handle() if self._pool is None else self._pool
            self._idle = torch.cuda.current_stream().record_event()
            self.statistics.graphs_requested = len(self._requested.buckets)
            side, graphs = torch.cuda.Stream(self._device), {}
            for bucket in self._requested.largest_first:
                reserved, started = torch.cuda.memory_reserved(), time.perf_counter()
                try:
                    graphs[bucket] = self._capture(bucket, side)
                except Exception as error:
                    logger.warning("capture of bucket %s failed; its calls run eagerly", bucket, exc_info=True)
                    self.failed[bucket] = self.statistics.capture_failures[str(bucket)] = _root_cause(error)
                    # A refusal leaves its pool recording, and the default generator capturing until a capture ends.
                    self._pool = torch.cuda.graph_pool_handle()
                    with torch.cuda.graph(torch.cuda.CUDAGraph(), pool=self._pool, stream=side):
                        torch.zeros(1, device=self._device)
                else:
                    self.statistics.capture_seconds[str(bucket)] = time.perf_counter() - started
                    self.statistics.capture_bytes[str(bucket)] = max(0, torch.cuda.memory_reserved() - reserved)
            self._graphs, self._available = graphs, BucketTable(graphs, self._adapter.axes) if graphs else None
            self.captured, self._warm = self._available.buckets if self._available else (), True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`forward`'s result for the inputs given by position or name; it never shares memory with a static buffer."""
        inputs = self._bind(args, kwargs)
        if not isinstance(decision := self._decide(inputs), Fallback):
            with self._lock:
                if not self._closed:
                    return self._replay(*decision, inputs)
            decision = Fallback(FallbackReason.CLOSED)
        self.statistics.record_miss(decision)
        with torch.no_grad():
            result = self._adapter.forward(*[inputs[spec.name] for spec in self._adapter.device_inputs()])
            return self._adapter.rows_of(result, inputs)

    def close(self) -> None:
        """Let go of graphs, buffers and pool, once the device no longer uses them. Idempotent."""
        if os.getpid() != self._pid:  # a child can neither free the parent's device memory nor trust its lock
            return
        with self._lock:
            if self._graphs and not torch.cuda.is_current_stream_capturing():
                torch.cuda.synchronize(self._device)
            self._closed, self._graphs, self._pool, self.captured = True, {}, None, ()
            if self._warm:
                torch.cuda.empty_cache()

    def _capture(self, bucket: Bucket, side: torch.cuda.Stream) -> _Captured:
        adapter, graph, static = self._adapter, torch.cuda.CUDAGraph(), {}
        sizes: dict[Any, Any] = {**adapter.fixed_sizes(), **bucket}
        with torch.inference_mode(False):  # an inference tensor could not be loaded outside inference mode
            for spec in adapter.device_inputs():
                shape = [sizes.get(axis, axis) for axis in spec.axes]
                static[spec.name] = torch.full(shape, spec.pad, dtype=spec.dtype, device=self._device)
        side.wait_stream(torch.cuda.current_stream())
        # torch.cuda.graph leaves its stream current when an operation was refused; the outer context puts it back.
        with torch.cuda.stream(side):
            for _ in range(self._config.warmup_iterations):
                adapter.forward(*static.values())
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, pool=self._pool, stream=side):
                result = adapter.forward(*static.values())
        return graph, static, *adapter.named_outputs(result, bucket)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        names = [spec.name for spec in self._adapter.inputs]
        inputs = {**dict(zip(names, args, strict=False)), **kwargs}
        if len(args) + len(kwargs) != len(names) or inputs.keys() != set(names):
            given = f"{len(args)} by position and {sorted(kwargs)} by name"
            raise AdapterError(f"{type(self._adapter).__qualname__} takes the inputs {names}, each once; found {given}")
        return inputs

    def _decide(self, inputs: dict[str, Any]) -> Fallback | tuple[Bucket, Sizes]:
        if self._closed or os.getpid() != self._pid:
            return Fallback(FallbackReason.CLOSED if self._closed else FallbackReason.FORKED)
        if not self.enabled:
            return Fallback(FallbackReason.DISABLED)
        if torch.cuda.is_current_stream_capturing():
            return Fallback(FallbackReason.OUTER_CAPTURE)
        if not self._warm:
            return Fallback(FallbackReason.NOT_CAPTURED)
        if torch.is_autocast_enabled("cuda"):  # captured without: a replay would compute in another precision
            return Fallback(FallbackReason.INELIGIBLE, "autocast")
        sizes = self._adapter.measure(inputs, self._device)
        word = sizes if isinstance(sizes, str) else self._adapter.ineligible(**inputs)
        if isinstance(sizes, str) or word:
            return Fallback(FallbackReason.INELIGIBLE, word or "")
        if self._available and (bucket := self._available.lookup(sizes)):
            return bucket, sizes
        failed = self._requested.lookup(sizes) is not None
        return Fallback(FallbackReason.CAPTURE_FAILED if failed else FallbackReason.NO_BUCKET)

    def _replay(self, bucket: Bucket, sizes: Sizes, inputs: Tensors) -> Any:
        """One call's turn on the static memory; the event keeps callers on different streams apart."""
        graph, static, outputs, structure = self._graphs[bucket]
        stream = torch.cuda.current_stream(self._device)
        try:
            with torch.no_grad():
                stream.wait_event(self._idle)
                try:
                    self._adapter.load(static, inputs)
                    graph.replay()
                    results = self._adapter.unload(outputs, inputs, sizes, bucket)
                finally:
                    stream.record_event(self._idle)
            result = tree_unflatten([results[name] for name in outputs], structure)
        except Exception:
            self.statistics.record_miss(None)
            raise
        self.statistics.record_hit(bucket, prod(sizes.values()))
        return result


def _root_cause(error: BaseException) -> str:
    """The first error of the chain, as text. Clears the frames of all, which would keep static buffers alive."""
    traceback.clear_frames(error.__traceback__)
    earlier = error.__cause__ or error.__context__
    return _root_cause(earlier) if earlier else f"{type(error).__name__}: {error}"
