"""When a submodule's CUDA graphs serve a call, and when it runs eagerly instead."""

import logging
import os
import threading
import time
from collections.abc import Iterable, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any

import torch

from runner.adapter import GraphAdapter, Sizes
from runner.buckets import Bucket, BucketTable
from runner.capture import CallPlan, Captured, capture, root_cause
from runner.config import MOST_ROWS, GraphConfig, decide_enabled
from runner.errors import AdapterError, ConfigError
from runner.statistics import Fallback, FallbackReason, GraphStatistics

logger = logging.getLogger(__name__)
_LOOK = attrgetter("__class__", "shape", "dtype", "device")  # of an input: what decides how it is served
_autocasts = torch._C._is_any_autocast_enabled
_process = [os.getpid()]  # told by each fork: asking at each call takes longer
os.register_at_fork(after_in_child=lambda: _process.__setitem__(0, os.getpid()))


class GraphRunner:
    """Serves an adapter's `forward` from CUDA graphs where it can, and eagerly, with a counted reason, where not.

    1. Construct: declaration, buckets and configuration are validated; nothing is allocated.
    2. `warmup()`: every bucket is run and captured, largest first, into one pool, or with `lazy` by the first call that
       needs it, never inside a capture. One that fails is left out, told in `failed`. Until it ends, calls are eager.
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
        self._device, self._pid, self._lock = torch.device(device), _process[0], threading.Lock()
        self.enabled, why = decide_enabled(self._device, self._config)
        if self.enabled and why:
            logger.warning("CUDA graphs of %s: %s", type(adapter).__qualname__, why)
        self.statistics = GraphStatistics()
        self._requested = BucketTable(buckets, adapter.axes)
        most_rows = max(self._config.cudagraph_capture_sizes or [MOST_ROWS])
        self._wanted = [bucket for bucket in self._requested.given if bucket.get("batch", 1) <= most_rows]
        self._graphs: dict[Bucket, Captured] = {}  # under `lazy` the least recently used comes first
        self.captured: tuple[Bucket, ...] = ()  # what replays, cheapest first
        self.failed: dict[Bucket, str] = {}  # whose capture failed, with its error's text
        self._warm = self._closed = False
        self._known: dict[Any, Fallback | CallPlan] = {}  # by shapes, dtypes and devices; empty unless calls may replay
        self._names, self._single = [spec.name for spec in adapter.inputs], len(adapter.inputs) == 1
        self._asks, self._on_device = adapter.overrides("ineligible"), [not spec.host for spec in adapter.inputs]
        self._rows = adapter.has_rows() or adapter.overrides("rows_of")

    def warmup(self) -> None:
        """Capture every bucket, once; a bucket's own failure is logged. Raises RuntimeError inside another capture."""
        if not self.enabled or self._pid != _process[0]:
            return
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("warmup() was called inside a CUDA graph capture: call it before the capture begins")
        with self._lock:
            if self._warm or self._closed:
                return
            started, self._device = time.perf_counter(), torch.empty(0, device=self._device).device
            reserved, self._stream = torch.cuda.memory_reserved(self._device), torch.cuda.current_stream(self._device)
            self._index, self._stream_number = self._device.index, self._stream.cuda_stream
            self._side, self._pool = torch.cuda.Stream(self._device), self._pool or torch.cuda.graph_pool_handle()
            self.statistics.graphs_requested = len(self._requested.given)
            self._publish({} if self._config.lazy else self._capture_all(self._wanted))
            self._warm = True
        took, mib = time.perf_counter() - started, (torch.cuda.memory_reserved(self._device) - reserved) / 2**20
        said = type(self._adapter).__qualname__, len(self.captured), len(self._requested.given), took, mib
        logger.info("CUDA graphs of %s: %d of %d captured, %.2f s, %.1f MiB", *said)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`forward`'s result for the inputs given by position or name; it never shares memory with a static buffer."""
        if torch.is_grad_enabled():
            with torch.no_grad():  # entering takes 1 µs, and decorating a call with it 5
                return GraphRunner.__call__(self, *args, **kwargs)
        inputs = self._bind(args, kwargs) if kwargs or len(args) != len(self._names) else args
        try:
            decision = self._decide(inputs)
            if not isinstance(decision, Fallback):
                with self._lock:
                    live = decision.captured.live  # or let go since it was decided
                    same = torch._C._cuda_getCurrentRawStream(self._index) == self._stream_number  # no Stream is made
                    if live and (same or self._follow_stream()):
                        return self._replay(decision, inputs)
                    reason = FallbackReason.OUTER_CAPTURE if live else FallbackReason.NOT_CAPTURED
                    decision = Fallback(FallbackReason.CLOSED if self._closed else reason)
        except Exception:
            self.statistics.record_miss(None)
            raise
        self.statistics.record_miss(decision)
        return self._eager(inputs)

    def close(self) -> None:
        """Let go of graphs, buffers and pool, once the device no longer uses them. Idempotent."""
        if self._pid != _process[0]:  # a child can neither free the parent's device memory nor trust its lock
            return
        with self._lock:
            if self._graphs and not torch.cuda.is_current_stream_capturing():
                torch.cuda.synchronize(self._device)
            self._closed, self._pool = True, None
            self._publish({})
            if self._warm:
                torch.cuda.empty_cache()

    def _publish(self, graphs: dict[Bucket, Captured]) -> None:
        """Serve from these graphs from now on, and let go of the others."""
        for bucket, captured in self._graphs.items():
            captured.live = graphs.get(bucket) is captured
        self._known = {k: plan for k, plan in self._known.items() if isinstance(plan, CallPlan) and plan.captured.live}
        self._graphs, self.captured = graphs, tuple(b for b in self._requested.buckets if b in graphs)
        if not self._closed:
            self.statistics.captures = {bucket.label: captured.cost for bucket, captured in graphs.items()}
            self.statistics.failed = dict(self.failed)

    def _eager(self, inputs: tuple[Any, ...]) -> Any:
        result = self._adapter.forward(*(inputs if self._single else compress(inputs, self._on_device)))
        return self._adapter.rows_of(result, self._named(inputs)) if self._rows else result

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        found = {**self._named(args), **kwargs}
        if len(args) + len(kwargs) != len(self._names) or found.keys() != set(self._names):
            takes, given = type(self._adapter).__qualname__, f"{len(args)} by position and {sorted(kwargs)} by name"
            raise AdapterError(f"{takes} takes the inputs {self._names}, each once; found {given}")
        return tuple([found[name] for name in self._names])

    def _named(self, inputs: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(self._names, inputs, strict=False))

    def _decide(self, inputs: tuple[Any, ...]) -> Fallback | CallPlan:
        """What every call asks, in the fewest steps: torch._C rather than torch.cuda saves a call."""
        try:
            key = _LOOK(inputs[0]) if self._single else tuple(map(_LOOK, inputs))
            found = self._known.get(key)
        except (AttributeError, TypeError):  # not a tensor
            key, found = None, None
        if found and self.enabled and self._pid == _process[0] and not (self._asks or _autocasts()):
            return self._judge(inputs, key) if torch._C._cuda_isCurrentStreamCapturing() else found
        return self._judge(inputs, key)

    def _judge(self, inputs: tuple[Any, ...], key: Any) -> Fallback | CallPlan:
        """What holds whatever the sizes are, and then what is known of those."""
        if self._closed or self._pid != _process[0]:
            return Fallback(FallbackReason.CLOSED if self._closed else FallbackReason.FORKED)
        if not self.enabled:
            return Fallback(FallbackReason.DISABLED)
        if (inside := torch.cuda.is_current_stream_capturing()) or not self._warm:
            return Fallback(FallbackReason.OUTER_CAPTURE if inside else FallbackReason.NOT_CAPTURED)
        if torch.is_autocast_enabled("cuda"):  # captured without: a replay would compute in another precision
            return Fallback(FallbackReason.INELIGIBLE, "autocast")
        decision = self._known.get(key) or self._look_up(inputs, key)
        word = self._asks and isinstance(decision, CallPlan) and self._adapter.ineligible(**self._named(inputs))
        return Fallback(FallbackReason.INELIGIBLE, word) if word else decision

    def _look_up(self, inputs: tuple[Any, ...], key: Any) -> Fallback | CallPlan:
        """What shapes, dtypes and devices alone decide: a plan, or why there is none. Kept until other graphs serve."""
        sizes = self._adapter.measure(self._named(inputs), self._device)
        if isinstance(sizes, str):
            return Fallback(FallbackReason.INELIGIBLE, sizes)
        with self._lock:
            decision = self._plan(sizes, inputs)
            stays = decision == Fallback(FallbackReason.NO_BUCKET)
            # Sizes that never come again must not fill the memory, nor those without a bucket take the place of plans.
            if key and len(self._known) < (2048 if stays else 4096) and (stays or isinstance(decision, CallPlan)):
                self._known[key] = decision
            return decision

    def _plan(self, sizes: Sizes, inputs: tuple[Any, ...]) -> Fallback | CallPlan:
        if self._closed:
            return Fallback(FallbackReason.CLOSED)
        lazy = [bucket for bucket in self._wanted if self._config.lazy and bucket not in self.failed]
        bucket = self._requested.lookup(sizes, lazy or self._graphs)
        if bucket and bucket not in self._graphs:
            self._capture_lazily(bucket)
        if bucket not in self._graphs:
            asked = bucket or self._requested.lookup(sizes)
            limited = self._config.memory_limit_bytes is not None and asked in self._wanted
            reason = FallbackReason.MEMORY_LIMIT if limited else FallbackReason.NO_BUCKET
            return Fallback(FallbackReason.CAPTURE_FAILED if asked in self.failed else reason)
        return CallPlan(self._adapter, self._graphs[bucket], sizes, inputs, self.statistics.served(bucket, sizes))

    def _capture_lazily(self, bucket: Bucket) -> None:
        """Capture what was called for, and let go of what was not for longest. A failure is not tried again."""
        graphs = dict(self._graphs)
        if len(graphs) == self._config.max_lazy_graphs:
            torch.cuda.synchronize(self._device)  # a replay may still be running
            del graphs[next(iter(graphs))]
            self.statistics.evictions += 1
            self._publish(graphs)
        self._publish({**graphs, **self._capture_each([bucket])})

    def _capture_all(self, buckets: Sequence[Bucket]) -> dict[Bucket, Captured]:
        """All, or what the memory limit holds, those given first preferred. ConfigError where not even one fits."""
        if (limit := self._config.memory_limit_bytes) is None:
            return self._capture_each(buckets)
        # Each is tried beside those that fit: what buckets take of one pool is no sum of what each takes alone.
        kept, took, graphs = list[Bucket](), dict[Bucket, int](), dict[Bucket, Captured]()
        for bucket in (*buckets, None):  # None: those that fit, once more
            graphs.clear()
            self._side, self._pool = torch.cuda.Stream(self._device), torch.cuda.graph_pool_handle()
            torch.cuda.empty_cache()
            before = torch.cuda.memory_reserved(self._device)
            graphs = self._capture_each([b for b in (*kept, bucket) if b and b not in self.failed])
            if bucket in graphs:
                took[bucket] = torch.cuda.memory_reserved(self._device) - before
                kept += [bucket] if took[bucket] <= limit else []
        if took and not kept:
            raise ConfigError(f"memory_limit_bytes must be at least {min(took.values())}, as one bucket; found {limit}")
        return graphs

    def _capture_each(self, buckets: Sequence[Bucket]) -> dict[Bucket, Captured]:
        """Captured largest first, apart from the caller's modes; a module that draws is given its numbers back."""
        graphs = dict[Bucket, Captured]()
        rng, device = torch.random.fork_rng([self._device]), torch.cuda.device(self._device)
        with rng, device, torch.no_grad(), torch.autocast("cuda", enabled=False):
            for bucket in sorted(buckets, key=self._requested.buckets.index, reverse=True):
                reserved, started = torch.cuda.memory_reserved(), time.perf_counter()
                try:
                    made = graphs[bucket] = capture(self._adapter, bucket, self._config, self._pool, self._side)
                    made.cost = time.perf_counter() - started, torch.cuda.memory_reserved() - reserved
                except Exception as error:
                    logger.warning("capture of bucket %s failed; its calls run eagerly", bucket, exc_info=True)
                    self.failed[bucket] = root_cause(error)
                    # A refusal leaves its pool recording, and the default generator capturing until a capture ends.
                    self._side, self._pool = torch.cuda.Stream(self._device), torch.cuda.graph_pool_handle()
                    with torch.cuda.graph(torch.cuda.CUDAGraph(), pool=self._pool, stream=self._side):
                        torch.zeros(1, device=self._device)
        return graphs

    def _follow_stream(self) -> bool:
        """Let the caller's stream wait for the last caller's. False where that one is being captured meanwhile."""
        with torch.cuda.stream(self._stream):
            if torch.cuda.is_current_stream_capturing():
                return False
        last, self._stream = self._stream, torch.cuda.current_stream(self._device)
        self._stream.wait_stream(last)
        self._stream_number = self._stream.cuda_stream
        return True

    def _replay(self, plan: CallPlan, inputs: tuple[Any, ...]) -> Any:
        """One call's turn on the static memory."""
        if self._config.lazy:
            self._graphs[plan.captured.bucket] = self._graphs.pop(plan.captured.bucket)
        result = plan.run(inputs)
        plan.served[0] += 1
        return result
