"""Capture, replay and eager fallback of one submodule's CUDA graphs."""

import logging
import os
import threading
import time
import traceback
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import Any

import torch
from torch import Tensor

from runner.adapter import GraphAdapter, Sizes, Tensors
from runner.buckets import Bucket, BucketTable
from runner.config import GraphConfig
from runner.errors import AdapterError, ConfigError
from runner.plan import CallPlan, CallSizes, Captured
from runner.policy import Fallback, FallbackReason, decide_enabled
from runner.statistics import GraphStatistics

logger = logging.getLogger(__name__)
_MOST_SIZES = 4096  # of calls that are remembered
_RUNNERS = weakref.WeakSet["GraphRunner"]()
if hasattr(os, "register_at_fork"):  # the short way asks for no process id: in a child nothing was decided before
    os.register_at_fork(after_in_child=lambda: [runner._plans.clear() for runner in _RUNNERS])


class GraphRunner:
    """Serves an adapter's `forward` from CUDA graphs where it can, and eagerly, with a counted reason, where not.

    1. Construct: declaration, buckets and configuration are validated; nothing is allocated.
    2. `warmup()`: every bucket is run and captured, largest first, into one pool. A bucket that fails is left out
       alone, its error in `failed`. All calls are eager until the last capture has ended. With a memory limit, buckets
       are captured in the order given, and those that do not fit are left out. With `lazy`, none is captured yet.
    3. Call: load into static buffers, replay, unload into fresh clones; or run `forward` on the caller's tensors.
    4. `close()`: graphs, buffers and pool are let go; later calls are eager.

    It does not retry a failed replay eagerly, keep a module's state, or register generators.
    """

    def __init__(self, adapter: GraphAdapter, buckets: Iterable[Sizes], *, device: torch.device | str,
                 config: GraphConfig | None = None, pool: Any = None) -> None:  # fmt: skip
        adapter.validate_declaration()
        adapter.fixed_sizes()
        self._adapter, self._config, self._pool = adapter, config or GraphConfig(), pool
        if pool is not None and self._config.memory_limit_bytes is not None:
            raise ConfigError("memory_limit_bytes goes with a pool of the runner's own, found one that was given")
        self._device, self._pid, self._lock = torch.device(device), os.getpid(), threading.Lock()
        self.enabled, why, overridden = astuple(decide_enabled(self._device, self._config))
        if overridden:
            logger.warning("CUDA graphs of %s: %s", type(adapter).__qualname__, why)
        self.statistics = GraphStatistics()
        self._requested = BucketTable(buckets, adapter.axes)
        self._available: BucketTable | None = None
        self._graphs: dict[Bucket, Captured] = {}
        self.captured: tuple[Bucket, ...] = ()  # what replays, cheapest first
        self.failed: dict[Bucket, str] = {}  # whose capture failed, with its error's text
        self.over_limit: tuple[Bucket, ...] = ()  # what the memory limit leaves to eager
        self._warm = self._closed = False
        self._known: dict[Any, Fallback | tuple[Bucket, Sizes]] = {}
        self._plans: dict[Any, CallPlan] = {}
        mine, kind = (GraphRunner._bind, GraphRunner._decide, GraphRunner._replay), type(self)
        self._short = (kind._bind, kind._decide, kind._replay) == mine and not self._config.lazy
        _RUNNERS.add(self)
        self._seen = Counter[Bucket]()  # calls that asked for a graph that is not captured yet

    def warmup(self) -> None:
        """Capture every bucket, once. Raises RuntimeError inside another capture; a bucket's own failure is logged.

        Raises ConfigError where the memory limit is below what any single bucket takes.
        """
        if not self.enabled or self._closed or os.getpid() != self._pid:
            return
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("warmup() was called inside a CUDA graph capture: call it before the capture begins")
        rng = torch.random.fork_rng([self._device])  # a module that draws must draw afterwards what it would have drawn
        with self._lock, rng, torch.no_grad(), torch.autocast("cuda", enabled=False), torch.cuda.device(self._device):
            if self._warm or self._closed:
                return
            started, reserved = time.perf_counter(), torch.cuda.memory_reserved()
            self._device = torch.empty(0, device=self._device).device
            self._pool = torch.cuda.graph_pool_handle() if self._pool is None else self._pool
            self._stream, self._side = torch.cuda.current_stream(), torch.cuda.Stream(self._device)
            self._raw, self._index = self._stream.cuda_stream, self._device.index
            wanted = [bucket for bucket in self._requested.given if not self._too_many_rows(bucket)]
            self.statistics.graphs_requested = len(wanted)
            if not self._config.lazy:
                self._publish(self._capture_all(wanted))
            self._warm = True
            took, size = time.perf_counter() - started, (torch.cuda.memory_reserved() - reserved) / 2**20
        name = type(self._adapter).__qualname__
        logger.info(
            "CUDA graphs of %s: %d of %d captured, %.2f s, %.1f MiB", name, len(self.captured), len(wanted), took, size
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`forward`'s result for the inputs given by position or name; it never shares memory with a static buffer."""
        if not kwargs:  # the short way of calls that were decided before: the same questions, and nothing twice
            plan = self._plans.get(tuple([(t.shape, t.dtype, t.device) for t in args if isinstance(t, Tensor)]))
            if plan is not None and not (
                torch.cuda.is_current_stream_capturing() or torch.is_autocast_enabled("cuda") or torch.is_grad_enabled()
            ):
                with self._lock:
                    if plan.live and torch._C._cuda_getCurrentRawStream(self._index) == self._raw:
                        return self._run(plan, args)
        inputs = self._bind(args, kwargs)
        decision = self._decide(inputs)
        if self._config.lazy and isinstance(decision, Fallback) and decision.reason is FallbackReason.NOT_CAPTURED:
            decision = self._capture_lazily(inputs)
        if not isinstance(decision, Fallback):
            with self._lock:
                if self._closed:
                    decision = Fallback(FallbackReason.CLOSED)
                elif self._config.lazy and decision[0] not in self._graphs:  # let go since it was decided
                    decision = Fallback(FallbackReason.NOT_CAPTURED)
                elif not self._follow_stream():
                    decision = Fallback(FallbackReason.OUTER_CAPTURE)
                else:
                    return self._replay(*decision, inputs)
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
            self._closed, self._pool = True, None
            self._publish({})
            if self._warm:
                torch.cuda.empty_cache()

    def _publish(self, graphs: dict[Bucket, Captured]) -> None:
        """Serve from these graphs from now on, and forget what was decided before."""
        self._graphs, self._available = graphs, BucketTable(graphs, self._adapter.axes) if graphs else None
        self.captured, self._known = self._available.buckets if self._available else (), {}
        for plan in self._plans.values():
            plan.live = False
        self._plans = {}

    def _capture_all(self, wanted: list[Bucket]) -> dict[Bucket, Captured]:
        """The graphs of all, largest first; with a limit, of those that fit in the order given."""
        limit, graphs, least = self._config.memory_limit_bytes, dict[Bucket, Captured](), 0
        if limit is None:
            for bucket in sorted(wanted, key=self._requested.largest_first.index):
                self._try_capture(bucket, graphs)
            return graphs
        before = torch.cuda.memory_reserved()
        for bucket in wanted:
            self._try_capture(bucket, graphs)
            if (taken := torch.cuda.memory_reserved() - before) <= limit:
                continue
            # What a pool has reserved it keeps, so the graphs that fit are captured anew into another.
            kept, least = [other for other in graphs if other != bucket], min(least or taken, taken)
            self.over_limit = (*self.over_limit, bucket)
            graphs.clear()
            self._pool = torch.cuda.graph_pool_handle()
            torch.cuda.empty_cache()
            for other in kept:
                self._try_capture(other, graphs)
        if not graphs and self.over_limit:
            raise ConfigError(f"memory_limit_bytes must be at least {least}, what one bucket takes; found {limit}")
        for bucket in self.over_limit:
            self.statistics.capture_bytes.pop(str(bucket), None)
            self.statistics.capture_seconds.pop(str(bucket), None)
        return graphs

    def _try_capture(self, bucket: Bucket, graphs: dict[Bucket, Captured]) -> None:
        """Add the bucket's graph to `graphs`, or its error to `failed`, in a state in which others can be captured."""
        reserved, started, statistics = torch.cuda.memory_reserved(), time.perf_counter(), self.statistics
        try:
            graphs[bucket] = self._capture(bucket, self._side)
        except Exception as error:
            logger.warning("capture of bucket %s failed; its calls run eagerly", bucket, exc_info=True)
            self.failed[bucket] = statistics.capture_failures[str(bucket)] = _root_cause(error)
            # A refusal leaves its pool recording, and the default generator capturing until a capture ends.
            self._pool = torch.cuda.graph_pool_handle()
            with torch.cuda.graph(torch.cuda.CUDAGraph(), pool=self._pool, stream=self._side):
                torch.zeros(1, device=self._device)
        else:
            statistics.capture_seconds[str(bucket)] = time.perf_counter() - started
            statistics.capture_bytes[str(bucket)] = max(0, torch.cuda.memory_reserved() - reserved)

    def _capture(self, bucket: Bucket, side: torch.cuda.Stream) -> Captured:
        adapter, graph, static = self._adapter, torch.cuda.CUDAGraph(), {}
        forward = torch.compile(adapter.forward, dynamic=False) if self._config.compile else adapter.forward
        sizes: dict[Any, Any] = {**adapter.fixed_sizes(), **bucket}
        with torch.inference_mode(False):  # an inference tensor could not be loaded outside inference mode
            for spec in adapter.device_inputs():
                shape = [sizes.get(axis, axis) for axis in spec.axes]
                static[spec.name] = torch.full(shape, spec.pad, dtype=spec.dtype, device=self._device)
        side.wait_stream(torch.cuda.current_stream())
        # torch.cuda.graph leaves its stream current when an operation was refused; the outer context puts it back.
        with torch.cuda.stream(side):
            for _ in range(self._config.warmup_iterations):
                forward(*static.values())
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, pool=self._pool, stream=side):
                result = forward(*static.values())
        return graph, static, *adapter.named_outputs(result, bucket)

    def _capture_lazily(self, inputs: Tensors) -> Fallback | tuple[Bucket, Sizes]:
        """The graph of a size that is asked for a second time, captured now: by one caller, and never twice in vain."""
        sizes = self._adapter.measure(inputs, self._device)
        assert not isinstance(sizes, str)
        bucket = self._requested.lookup(sizes) or Bucket(tuple(sizes.items()))
        with self._lock, torch.no_grad(), torch.autocast("cuda", enabled=False), torch.cuda.device(self._device):
            if self._closed:
                return Fallback(FallbackReason.CLOSED)
            if bucket not in self._graphs and bucket not in self.failed:
                self._seen = self._seen if len(self._seen) < _MOST_SIZES else Counter()
                self._seen[bucket] += 1
                if self._seen[bucket] < 2 or self._too_many_rows(bucket):
                    return Fallback(FallbackReason.NOT_CAPTURED)
                graphs = dict(self._graphs)
                if len(graphs) == self._config.max_lazy_graphs:
                    torch.cuda.synchronize(self._device)  # a replay may still be running
                    del graphs[next(iter(graphs))]
                    self.statistics.evictions += 1
                    self._publish(graphs)
                self._try_capture(bucket, graphs)
                self._publish(graphs)
            return (bucket, CallSizes(sizes)) if bucket in self._graphs else Fallback(FallbackReason.CAPTURE_FAILED)

    def _too_many_rows(self, bucket: Bucket) -> bool:
        sizes = self._config.cudagraph_capture_sizes
        return sizes is not None and bucket.get("batch", 1) > max(sizes)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        names = self._adapter.input_names
        if not kwargs and len(args) == len(names):
            return dict(zip(names, args, strict=True))
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
        try:
            key = tuple([(tensor.shape, tensor.dtype, tensor.device) for tensor in inputs.values()])
            decision = self._known.get(key)
        except (AttributeError, TypeError):
            return self._look_up(inputs)
        if decision is None:
            self._known = self._known if len(self._known) < _MOST_SIZES else {}
            decision = self._known[key] = self._look_up(inputs)
        if self._adapter.asks_at_each_call and not isinstance(decision, Fallback):
            word = self._adapter.ineligible(**inputs)
            return Fallback(FallbackReason.INELIGIBLE, word) if word else decision
        return decision

    def _look_up(self, inputs: dict[str, Any]) -> Fallback | tuple[Bucket, Sizes]:
        """What shapes, dtypes and devices alone decide."""
        sizes = self._adapter.measure(inputs, self._device)
        if isinstance(sizes, str):
            return Fallback(FallbackReason.INELIGIBLE, sizes)
        if self._available and (bucket := self._available.lookup(sizes)):
            return bucket, CallSizes(sizes)
        asked = self._requested.lookup(sizes)
        if asked in self.failed:
            return Fallback(FallbackReason.CAPTURE_FAILED)
        if asked in self.over_limit:
            return Fallback(FallbackReason.MEMORY_LIMIT)
        return Fallback(FallbackReason.NOT_CAPTURED if self._config.lazy else FallbackReason.NO_BUCKET)

    def _follow_stream(self) -> bool:
        """Let the caller's stream wait for the last caller's. False where that one is being captured meanwhile."""
        raw = torch._C._cuda_getCurrentRawStream(self._index)
        if raw != self._raw:
            with torch.cuda.stream(self._stream):
                if torch.cuda.is_current_stream_capturing():
                    return False
            stream = torch.cuda.current_stream(self._device)
            stream.wait_stream(self._stream)
            self._raw, self._stream = raw, stream
        return True

    def _replay(self, bucket: Bucket, sizes: Sizes, inputs: Tensors) -> Any:
        """One call's turn on the static memory."""
        values = [inputs[name] for name in self._adapter.input_names]
        plan: CallPlan | None = getattr(sizes, "plan", None)
        try:
            if plan is None:
                plan = CallPlan(self._adapter, self._graphs[bucket], sizes, bucket, inputs)
                if isinstance(sizes, CallSizes):
                    sizes.plan = plan
                if self._short and not self._adapter.asks_at_each_call and len(self._plans) < _MOST_SIZES:
                    self._plans[tuple([(value.shape, value.dtype, value.device) for value in values])] = plan
        except Exception:
            self.statistics.record_miss(None)
            raise
        if self._config.lazy:
            self._graphs[bucket] = self._graphs.pop(bucket)  # the least recently used comes first
        with torch.no_grad():
            return self._run(plan, values)

    def _run(self, plan: CallPlan, values: Sequence[Any]) -> Any:
        try:
            result = plan.run(values)
        except Exception:
            self.statistics.record_miss(None)
            raise
        self.statistics.record_hit(plan.bucket, plan.elements)
        return result


def _root_cause(error: BaseException) -> str:
    """The first error of the chain, as text. Clears the frames of all, which would keep static buffers alive."""
    traceback.clear_frames(error.__traceback__)
    earlier = error.__cause__ or error.__context__
    return _root_cause(earlier) if earlier else f"{type(error).__name__}: {error}"
