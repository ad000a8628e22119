"""What a check sees: a module with graphs in front of it, and the same module without.

Checks know subjects, not adapters: a subject answers calls, gives the eager truth, makes inputs, and lets its captures
and replays be observed.
"""

from __future__ import annotations

import contextlib
import copy
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_map_only

from conformance.bench.timer import PlainTimer
from conformance.catalogue import Machine
from conformance.configuration import layered, refuse_other_limit
from conformance.loudness import refuse_silence
from conformance.noise import Noise, measure_noise
from conformance.observe import Observer, Seen
from conformance.rows import row_alone, row_axis, time_axis, with_lengths, with_row
from conformance.settling import settle
from conformance.snapshots.store import FileStore, SnapshotStore
from conformance.snapshots.terms import snapshot_folder
from conformance.spec import AdapterSpec
from runner import Bucket, BucketTable, GraphAdapter, GraphConfig, GraphRunner, OutputSpec, PerRowLengths

Inputs = dict[str, torch.Tensor]
Rows = list[torch.Tensor]
"""The rows of one output, each `[..., samples]`; an output without a batch axis has one row."""
Outputs = dict[str, Rows]


class Subject:
    """An adapter on the runner that its spec makes. Made by :func:`open_subject`, which also warms it up."""

    def __init__(self, spec: AdapterSpec, machine: Machine, seed: int, checkpoint: Path | None) -> None:
        self.spec = spec
        self.machine = machine
        self.seed = seed
        self.checkpoint = checkpoint
        self.device = torch.device("cuda", 0)
        torch.manual_seed(seed)
        self.adapter: GraphAdapter = spec.build(self.device, checkpoint)
        self.table = BucketTable(spec.buckets, self.adapter.axes)
        self._start = self._now()
        self.snapshots: SnapshotStore = FileStore(snapshot_folder(spec))
        self.timer = PlainTimer()
        self._runner = self._make_runner(self.adapter)
        self._noise: Noise | None = None
        self._structure: TreeSpec | None = None
        self._observer = Observer()
        self._observer.install()

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """What the module keeps between calls, by name; nothing where it claims no state."""
        return self.spec.state_tensors(self.adapter) if self.spec.capabilities.state.supported else {}

    def _now(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [(tensor, tensor.clone()) for tensor in self.state.values()]

    def rebuild(self, adapter: GraphAdapter) -> None:
        """Stand on another adapter of the same spec and a runner of its own, with nothing measured yet."""
        self.adapter = adapter
        self._start = self._now()
        self._runner = self._make_runner(adapter)
        self._noise, self._structure = None, None

    def measured(self, noise: Noise) -> None:
        """Compare with `noise` from now on."""
        self._noise = noise

    def fresh_start(self) -> None:
        """Put back the state and the seed that every call starts from, where the subject claims to have either.

        Inside a capture only the state is put back, which the graph repeats: CUDA takes no seed there.
        """
        for tensor, start in self._start:
            tensor.copy_(start)
        if self.spec.capabilities.randomness.supported and not torch.cuda.is_current_stream_capturing():
            torch.manual_seed(self.seed)

    def settle(self) -> None:
        """Undo what a refused operation of an earlier case left behind."""
        settle(self.device)

    @property
    def row_axis(self) -> str | None:
        return row_axis(self.adapter)

    @property
    def time_axis(self) -> str | None:
        """The axis that the outputs' lengths depend on."""
        return time_axis(self.adapter)

    @property
    def noise(self) -> Noise:
        """How much eager alone varies, measured once."""
        if self._noise is None:
            kept = self._now()  # a comparison in the middle of a stream may be the first that asks
            try:
                self._noise = measure_noise(self)
            finally:
                for tensor, before in kept:
                    tensor.copy_(before)
        return self._noise

    @cached_property
    def module_calls_of_eager(self) -> int:
        """How many torch modules one eager call runs; 0 where the adapter's module is a plain function.

        Counted by a call from the start, so that it must be asked before a call whose state matters afterwards.
        """
        with self.observe() as seen:
            self.eager(self.draw(self.spec.buckets[0], "module calls"))
        return seen.module_calls

    def warmup(self) -> Seen:
        """Capture; a runner that captures lazily gets its first call at each bucket. Returns what was observed."""
        with self.observe() as seen:
            self._runner.warmup()
            if self.spec.lazy and self._runner.enabled:
                self._call_each_bucket()
        return seen

    def _call_each_bucket(self) -> None:
        """First calls, whose effects on state and random numbers are undone: they are the kit's, and no request's."""
        kept = self._now()
        with torch.random.fork_rng([self.device]):
            for bucket in reversed(self.table.buckets):
                self.fresh_start()
                self._runner(**self.draw(bucket, "first call"))
        for tensor, before in kept:
            tensor.copy_(before)

    def _make_runner(self, adapter: GraphAdapter, switches: GraphConfig | None = None, pool: Any = None) -> GraphRunner:
        config = layered(self.spec.config, switches, pool)
        return self.spec.make_runner(adapter, self.device, config, pool)

    def __call__(self, inputs: Inputs) -> Outputs:
        """The graphed call, as the caller would have it."""
        if self._structure is None:
            self.eager(inputs)
        self.fresh_start()
        return self.proceed(inputs)

    def raw(self, inputs: Inputs) -> Any:
        """The runner's own result, in its own structure, from the state that the last call left."""
        return self._runner(**inputs)

    def proceed(self, inputs: Inputs) -> Outputs:
        """The graphed call from the state that the last call left, in a subject that has been called eagerly."""
        return self.named(self._runner(**inputs))

    def named(self, result: Any) -> Outputs:
        """A graphed call's raw `result` as rows by output name, once the subject has been called eagerly."""
        assert self._structure is not None
        values = self._structure.flatten_up_to(result)
        return {
            spec.name: list(value) if isinstance(value, tuple) else self._rows(spec, value)
            for spec, value in zip(self.adapter.outputs, values, strict=True)
        }

    def eager(self, inputs: Inputs) -> Outputs:
        """The module on `inputs` as they are, with no bucket, padding or trimming: the truth to compare with."""
        self.fresh_start()
        return self.eager_proceed(inputs)

    def eager_proceed(self, inputs: Inputs) -> Outputs:
        """The module on `inputs`, from the state that the last call left."""
        with torch.no_grad():
            result = self.adapter.forward(*(inputs[spec.name] for spec in self.adapter.device_inputs()))
        named, self._structure = self.adapter.named_outputs(result)
        return {spec.name: self._rows(spec, named[spec.name]) for spec in self.adapter.outputs}

    def _rows(self, spec: OutputSpec, output: torch.Tensor) -> Rows:
        if self.row_axis not in spec.axes:
            return [output]
        return list(output.unbind(spec.axes.index(self.row_axis)))

    def eager_row(self, inputs: Inputs, row: int, length: int) -> Outputs:
        """Row `row` of `inputs` alone in a batch of one, cut to `length` frames: what that request would hear."""
        return self.eager(row_alone(self.adapter, inputs, row, length))

    def with_row(self, inputs: Inputs, position: int, row: Inputs) -> Inputs:
        """`inputs` with the first row of `row` in place of the one at `position`.

        A neighbour that had its slot takes the slot of the row that went.
        """
        return with_row(self.adapter, inputs, position, row, self.spec.slots_input)

    def draw(self, sizes: Mapping[str, int], salt: str, seed: int | None = None) -> Inputs:
        """Inputs for the axis sizes given, from the run's seed (or `seed`) and `salt`: the same in every process."""
        generator = torch.Generator()
        seed = self.seed if seed is None else seed
        generator.manual_seed((seed << 32) + zlib.crc32(f"{salt}:{sorted(sizes.items())}".encode()))
        made = self.spec.make_inputs(self.adapter, sizes, generator)
        host = {spec.name for spec in self.adapter.inputs if spec.host}
        return {name: tensor if name in host else tensor.to(self.device) for name, tensor in made.items()}

    def shorten_rows(self, inputs: Inputs, lengths: Sequence[int]) -> Inputs:
        """`inputs` with row i padded by the caller after `lengths[i]` frames, and lengths said where they are asked."""
        asked = {spec.length.lengths for spec in self.adapter.outputs if isinstance(spec.length, PerRowLengths)}
        return with_lengths(self.adapter, inputs, lengths, asked | {str(self.spec.lengths_input)})

    def lasting_outputs(self) -> list[str]:
        """The outputs that have a length: those that a listener hears."""
        return [spec.name for spec in self.adapter.outputs if spec.length is not None]

    def rows_are_trimmed(self) -> dict[str, bool]:
        """Whether each output comes as rows of their own length (true), or as one tensor (false)."""
        return {spec.name: isinstance(spec.length, PerRowLengths) for spec in self.adapter.outputs}

    def bucket_for(self, sizes: Mapping[str, int]) -> Bucket | None:
        return self.table.lookup(sizes)

    def is_left_out(self, sizes: Mapping[str, int]) -> bool:
        """Whether the memory limit left out the bucket that would hold a call of `sizes`."""
        out = self.spec.left_out
        return bool(out) and BucketTable(out, self.adapter.axes).lookup(sizes) is not None

    def padded_frames(self, sizes: Mapping[str, int]) -> int | None:
        """By how many frames its bucket pads a call of `sizes`; None where no bucket holds it, or it has no frames."""
        bucket, axis = self.bucket_for(sizes), self.time_axis
        return None if bucket is None or axis is None else bucket[axis] - sizes[axis]

    def stats(self) -> Mapping[str, Any] | None:
        """The subject's own statistics, where it keeps any."""
        statistics = getattr(self._runner, "statistics", None)
        return statistics.snapshot() if statistics is not None else None

    @property
    def runner(self) -> GraphRunner:
        """The runner itself, for what only its memory can show."""
        return self._runner

    @property
    def module(self) -> torch.nn.Module:
        """The module itself, to watch its parameters, buffers and attributes."""
        return self.spec.module(self.adapter)

    def apart(self) -> Subject:
        """Where a runner that must not spoil this one's module is made from: this subject, or a copy on another module.

        The copy has the weights that this one began with; its runner is still this one's, which answers the same.
        """
        if self.spec.shares_module:
            return self
        other = copy.copy(self)
        with torch.random.fork_rng(devices=[self.device]):
            torch.manual_seed(self.seed)
            other.adapter = self.spec.build(self.device, self.checkpoint)
        other._start = other._now()
        return other

    @contextlib.contextmanager
    def sibling(
        self,
        config: GraphConfig | None = None,
        pool: Any = None,
        *,
        warm: bool = True,
        buckets: Sequence[Mapping[str, int]] | None = None,
        same_module: bool = False,
    ) -> Iterator[Subject]:
        """A second runner with its own configuration, pool or buckets; closed on exit.

        It is made around the same module, unless the spec says that it cannot share: then only on `same_module`.
        """
        other = copy.copy(self if same_module else self.apart())
        if buckets is not None:
            other.spec = copy.copy(self.spec)
            other.spec.buckets, other.spec.left_out = tuple(buckets), ()  # type: ignore[misc]
            other.table = BucketTable(buckets, self.adapter.axes)
        other._runner = other._make_runner(other.adapter, config, pool)
        try:
            if warm:
                other.warmup()
            yield other
        finally:
            other._runner.close()

    def observe(self) -> contextlib.AbstractContextManager[Seen]:
        return self._observer.watch()

    def without_module_counts(self) -> contextlib.AbstractContextManager[None]:
        return self._observer.without_module_counts()

    def raw_eager(self, inputs: Inputs) -> Any:
        """What eager gives, in the structure that the caller gets."""
        self.fresh_start()
        return self.eager_as_served(inputs)

    def eager_as_served(self, inputs: Inputs) -> Any:
        """What eager gives, in the structure that the caller gets, from the state that the last call left."""
        with torch.no_grad():
            result = self.adapter.forward(*(inputs[spec.name] for spec in self.adapter.device_inputs()))
            return self.adapter.rows_of(result, inputs)

    def close_runner(self) -> None:
        """Close the runner alone, as a server does; the subject still answers, eagerly, and is still observed."""
        self._runner.close()

    def close(self) -> None:
        self._runner.close()
        self._observer.remove()


def snapshot(value: Any) -> Any:
    """A copy of every tensor in `value`, on memory of its own."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), value)


def open_subject(spec: AdapterSpec, machine: Machine, seed: int, checkpoint: Path | None) -> Subject:
    """Build the subject on the open device, refuse it if it is silent, and warm it up. Close it when done."""
    subject = Subject(spec, machine, seed, checkpoint)
    try:
        refuse_silence(subject)
        _ = subject.module_calls_of_eager
        subject.warmup()
        refuse_other_limit(subject)
        if subject.state:  # before a case leaves something behind that eager varies by
            with contextlib.suppress(Exception):  # eager that fails is a case's to tell
                _ = subject.noise
    except BaseException:
        subject.close()
        raise
    return subject
