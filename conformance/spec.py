"""What an author's `spec.py` declares: how the kit builds an adapter, feeds it and judges it.

A spec is importable without the model's own package: heavy imports belong inside :meth:`AdapterSpec.build`, so that
a missing package is one clear message and listing adapters stays fast.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from conformance.capabilities import Capabilities, validate_capabilities
from conformance.errors import SpecError
from conformance.snapshots.terms import SnapshotTerms
from conformance.traces import Trace

if TYPE_CHECKING:
    import torch

    from runner import GraphAdapter, GraphConfig, GraphRunner


@dataclass(frozen=True)
class Requirement:
    """A package that an adapter needs: `module` is what is imported, `install` the command that brings it."""

    module: str
    install: str


class AdapterSpec:
    """The kit's side of one adapter. Subclass it in `adapters/NAME/spec.py`.

    `buckets` are the capture shapes, e.g. `{"batch": 1, "frames": 8}`, one size for each axis of the adapter.
    `limits` are the largest sizes that the module itself takes of an axis, such as its number of quantizers.
    `hop` is the number of output samples that one input frame stands for; failures are located in frames with it.
    `capabilities` is its spec sheet: every claim is given, and every claim is checked.
    `trace` are the calls of serving, usually `load_trace(__file__)`, of which at least `min_hit_rate` must replay on
    a runner of `serving_buckets`: those of production, or `buckets` where none are given.
    `left_context` is how many frames before a chunk its samples depend on; a spec that claims streaming gives it.
    `config` is the configuration of the runner under test; `--graph-config` changes its fields for a run.
    `left_out` are buckets that the runner is asked for besides, and that `config.memory_limit_bytes` leaves to eager.
    `takes_pool` says that `make_runner` hands its pool on; a wrapper without such an argument cannot.
    `shares_module` is false where a second wrapper around one module spoils the first: the checks' further runners then
    get a module of their own, made by `build` from the run's seed, and CG302 judges the sharing.
    `lengths_input` names the input that holds the rows' lengths, where the module itself reads them.
    `min_speedup` is how many times as long as a replay eager takes on a GPU, at least (CG801).
    `snapshot_folder` is where its snapshots are kept, if not in `snapshots/` beside the spec's file.
    `slots_input` names the input that says in which slot each row's state is, no two rows of a batch in one; such a
    spec overrides `reset_slots`, and its `state_tensors` have the slots as their first axis.
    """

    name: ClassVar[str]
    adapter: ClassVar[type[GraphAdapter]]
    buckets: ClassVar[tuple[Mapping[str, int], ...]]
    limits: ClassVar[Mapping[str, int]] = {}
    sample_rate: int  # Hz
    hop: int
    capabilities: ClassVar[Capabilities]
    trace: ClassVar[Trace | None] = None
    serving_buckets: ClassVar[tuple[Mapping[str, int], ...]] = ()
    min_hit_rate: ClassVar[float] = 1.0
    min_speedup: ClassVar[float] = 1.0
    left_context: ClassVar[int] = 0
    lengths_input: ClassVar[str | None] = None
    slots_input: ClassVar[str | None] = None
    requires: ClassVar[tuple[Requirement, ...]] = ()
    loads_checkpoints: ClassVar[bool] = False
    takes_pool: ClassVar[bool] = True
    config: GraphConfig | None = None
    left_out: ClassVar[tuple[Mapping[str, int], ...]] = ()
    shares_module: ClassVar[bool] = True
    snapshot_folder: ClassVar[Path | None] = None
    snapshot_terms: SnapshotTerms = SnapshotTerms()  # set by the run

    def build(self, device: torch.device, checkpoint: Path | None) -> GraphAdapter:
        """The adapter around its real module on `device`: tiny random weights, or those of `checkpoint`.

        Called under `torch.manual_seed(seed)`; whatever it draws repeats with the seed.
        """
        raise NotImplementedError

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        """Inputs by name on the host, drawn from `generator`, for axis sizes such as `{"batch": 2, "frames": 5}`."""
        raise NotImplementedError

    def make_runner(
        self, adapter: GraphAdapter, device: torch.device, config: GraphConfig | None = None, pool: Any = None
    ) -> GraphRunner:
        """The runner under test. The reference runner unless an author brings another with the same protocol."""
        from runner import GraphRunner

        return GraphRunner(adapter, (*self.buckets, *self.left_out), device=device, config=config, pool=pool)

    @property
    def limited(self) -> bool:
        """Whether graphs have a memory limit: buckets are tried, and may be let go again, to find what it holds."""
        return self.config is not None and self.config.memory_limit_bytes is not None

    @property
    def lazy(self) -> bool:
        """Whether a bucket is captured by the first call that needs it, and not at warm-up."""
        return self.config is not None and self.config.lazy

    def captured(self, adapter: GraphAdapter) -> tuple[Any, str]:
        """The object and its attribute that is captured, and that the eager path calls: the kit listens there."""
        return adapter, "forward"

    def captured_sizes(self, adapter: GraphAdapter, arguments: tuple[Any, ...]) -> dict[str, int]:
        """The size of each axis, as the positional arguments of what is captured have it."""
        return {
            str(axis): int(size)
            for spec, tensor in zip(adapter.device_inputs(), arguments, strict=True)
            for axis, size in zip(spec.axes, tensor.shape, strict=True)
            if axis in adapter.axes
        }

    def module(self, adapter: GraphAdapter) -> torch.nn.Module:
        """The module behind `adapter`, whose parameters, buffers and attributes the kit watches."""
        module: torch.nn.Module = adapter.module  # type: ignore[attr-defined]
        return module

    def cast(self, adapter: GraphAdapter, dtype: torch.dtype) -> GraphAdapter:
        """A fresh `adapter` with its module in `dtype`. Override it where inputs are declared in the module's dtype."""
        self.module(adapter).to(dtype)
        return adapter

    def state_tensors(self, adapter: GraphAdapter) -> Mapping[str, torch.Tensor]:
        """What the module keeps between calls, by name: its buffers, unless it keeps its state in other tensors.

        Views are welcome: the kit writes a state back with `copy_`. Scratch rows that only padding uses do not belong.
        """
        return dict(self.module(adapter).named_buffers())

    def reset_slots(self, adapter: GraphAdapter, slots: torch.Tensor) -> None:
        """Make the `slots` (int64, on the device) ready for new streams, as a server does when a request has ended."""
        raise NotImplementedError

    def validate(self) -> None:
        """Raise :class:`SpecError` for a declaration that no run could make sense of. Builds nothing."""
        where = _place_of(type(self))
        for field in ("name", "adapter", "buckets", "sample_rate", "hop", "capabilities"):
            if getattr(self, field, None) is None:
                raise SpecError(f"{where} declares no `{field}`; a spec must set it as a class attribute")
        validate_capabilities(self.capabilities, f"adapter {self.name!r} ({where})")
        if not 0.0 <= self.min_hit_rate <= 1.0:
            raise SpecError(f"adapter {self.name!r}: min_hit_rate must lie in 0..1, found {self.min_hit_rate!r}")
        if not isinstance(self.min_speedup, (int, float)) or not 0.0 < self.min_speedup < float("inf"):
            raise SpecError(f"adapter {self.name!r}: min_speedup must be a positive number, found {self.min_speedup!r}")
        for field in ("buckets", "serving_buckets"):
            if not isinstance(getattr(self, field), (tuple, list)):
                raise SpecError(f"{where}: `{field}` must be a tuple of mappings, found {getattr(self, field)!r}")
        if not isinstance(self.limits, Mapping) or not all(type(size) is int for size in self.limits.values()):
            raise SpecError(f"{where}: `limits` must give the largest size of an axis, found {self.limits!r}")
        if self.trace is not None and not isinstance(self.trace, Trace):
            raise SpecError(
                f"{where}: `trace` must be load_trace(__file__) or Trace.of(sizes, …), found {self.trace!r}"
            )
        for field in ("sample_rate", "hop"):
            value = getattr(self, field)
            if type(value) is not int or value < 1:
                raise SpecError(f"{where}: `{field}` must be a positive int, found {value!r}")
        for requirement in self.requires:
            if not isinstance(requirement, Requirement):
                raise SpecError(f"{where}: `requires` must hold Requirement(module, install), found {requirement!r}")
        for method in ("build", "make_inputs"):
            if getattr(type(self), method) is getattr(AdapterSpec, method):
                raise SpecError(f"{where} defines no `{method}`; a spec must")
        from runner import AdapterError, BucketTable, GraphAdapter

        if not (isinstance(self.adapter, type) and issubclass(self.adapter, GraphAdapter)):
            raise SpecError(f"{where}: `adapter` must be a subclass of GraphAdapter, found {self.adapter!r}")
        try:
            self.adapter.validate_declaration()
            BucketTable(self.buckets, self.adapter.axes)
            if self.serving_buckets:
                BucketTable(self.serving_buckets, self.adapter.axes)
        except AdapterError as error:
            raise SpecError(f"adapter {self.name!r} ({where}): {error}") from error
        for bucket in self.buckets:
            for axis, limit in self.limits.items():
                if bucket.get(axis, limit) > limit or axis not in bucket:
                    raise SpecError(f"{where}: limits[{axis!r}] is {limit}, which bucket {dict(bucket)} does not keep")
        self._validate_slots(where)
        for call in self.trace.calls if self.trace else ():
            if call.sizes.keys() != self.adapter.axes.keys():
                raise SpecError(f"{where}: the trace gives {dict(call.sizes)}; the axes are {list(self.adapter.axes)}")

    def _validate_slots(self, where: str) -> None:
        if self.slots_input is None:
            return
        if not self.capabilities.state.supported:
            raise SpecError(f"{where}: `slots_input` is {self.slots_input!r}, and state is not claimed: claim it")
        if type(self).reset_slots is AdapterSpec.reset_slots:
            raise SpecError(f"{where} names `slots_input` and defines no `reset_slots`; a spec with slots must")
        names = [spec.name for spec in self.adapter.inputs]
        if self.slots_input not in names:
            raise SpecError(f"{where}: `slots_input` must be one of the inputs {names}, found {self.slots_input!r}")


def _place_of(spec: type[AdapterSpec]) -> str:
    """`/path/spec.py:12 MySpec`, where the file can be read; the dotted name otherwise."""
    try:
        return f"{inspect.getfile(spec)}:{inspect.getsourcelines(spec)[1]} {spec.__qualname__}"
    except (OSError, TypeError):
        return f"{spec.__module__}.{spec.__qualname__}"


def axis_label(axis: str) -> str:
    """The short form of an axis in test ids: `b1-f8` for batch 1, frames 8."""
    return axis[0]


def sizes_label(sizes: Mapping[str, Any], axes: Iterable[str]) -> str:
    """`{"batch": 1, "frames": 8}` as `b1-f8`, axes in declaration order."""
    return "-".join(f"{axis_label(axis)}{sizes[axis]}" for axis in axes)
