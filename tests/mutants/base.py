"""What mutants are made from: the correct subjects, and how one mistake is put into them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import torch
from torch import nn

from conformance.registry import bundled_folder, load_file
from conformance.spec import AdapterSpec
from conformance.traces import Trace
from runner import PADDED, AxisMode, Bucket, GraphAdapter, GraphRunner, InputSpec, OutputSpec, PerRowLengths
from runner import runner as runner_module
from runner.capture import Captured, capture

_reference: Any = type(load_file(bundled_folder() / "reference" / "spec.py"))
ReferenceAdapter: Any = _reference.adapter
HOP: int = _reference.hop


@dataclass(frozen=True)
class Mutant:
    """A spec with one mistake, and every code that it must fail: these, all of them, and no other.

    `by_chance` are codes that a race between threads shows or hides, as the machine's load has it.
    """

    spec: type[AdapterSpec]
    codes: frozenset[str]
    by_chance: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.spec.name


class RaggedCodec(nn.Module):
    """The reference codec with its last convolution padded on the left: 8·T samples for T frames."""

    def __init__(self, codec: Any) -> None:
        super().__init__()
        self.codec = codec
        self.n_vq = codec.n_vq

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """`[batch, n_vq, frames]` to `[batch, 1, 8·frames]`: one frame more than the codec's 8·T − 6, cut to fit."""
        first = codes[..., :1]
        return self.codec(torch.cat([first, codes], dim=-1))[..., 2:]


class RaggedAdapter(GraphAdapter):
    """Per-row lengths, which the caller gives on the host."""

    inputs = (
        InputSpec("codes", torch.long, ("batch", "n_vq", "frames")),
        InputSpec("lengths", torch.long, ("batch",), host=True),
    )
    outputs = (OutputSpec("wav", ("batch", 1, "samples"), length=PerRowLengths("lengths", scale=HOP)),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED, "frames": PADDED}

    def __init__(self, module: RaggedCodec) -> None:
        self.module = module
        self.sizes = {"n_vq": module.n_vq}

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        return self.module(codes)


class ReferenceSpec(_reference):
    """The correct reference subject, under the name of a mutant where a subclass gives it a mistake."""

    name = "correct_reference"
    buckets = ({"batch": 1, "frames": 4}, {"batch": 1, "frames": 8}, {"batch": 4, "frames": 8})
    trace = Trace.of({"batch": 1, "frames": 4}, {"batch": 1, "frames": 7}, {"batch": 3, "frames": 8})

    def build(self, device: torch.device, checkpoint: Path | None) -> Any:
        return self.adapter(super().build(device, checkpoint).module)


class RaggedSpec(ReferenceSpec):
    """The correct subject with per-row lengths."""

    name = "correct_ragged"
    adapter = RaggedAdapter

    def build(self, device: torch.device, checkpoint: Path | None) -> Any:
        codec = _reference().build(device, checkpoint).module
        return self.adapter(RaggedCodec(codec))

    def make_inputs(self, adapter: Any, sizes: Mapping[str, int], generator: torch.Generator) -> Any:
        codes = super().make_inputs(adapter, sizes, generator)
        return {**codes, "lengths": torch.full((sizes["batch"],), sizes["frames"])}


class CapturingRunner(GraphRunner):
    """A runner whose captures go through `_capture`, where a subclass puts its mistake."""

    def _capture_each(self, buckets: Any) -> Any:
        with mock.patch.object(runner_module, "capture", lambda adapter, bucket, *_: self._capture(bucket)):
            return super()._capture_each(buckets)

    def _capture(self, bucket: Bucket) -> Captured:
        return capture(self._adapter, bucket, self._config, self._pool, self._side)


def with_adapter(base: type[AdapterSpec], adapter: type[GraphAdapter], **attributes: Any) -> type[AdapterSpec]:
    """`base` on `adapter`, under the adapter's name and with its docstring."""
    return type(
        adapter.__name__,
        (base,),
        {"name": adapter.__name__, "adapter": adapter, "__doc__": adapter.__doc__} | attributes,
    )


def with_runner(
    runner: type[GraphRunner], name: str, doc: str, base: type[AdapterSpec] | None = None
) -> type[AdapterSpec]:
    """The reference subject (or `base`) on another runner class."""

    def make_runner(
        self: AdapterSpec, adapter: GraphAdapter, device: torch.device, config: Any = None, pool: Any = None
    ) -> GraphRunner:
        return runner(adapter, (*self.buckets, *self.left_out), device=device, config=config, pool=pool)

    return type(name, (base or ReferenceSpec,), {"name": name, "make_runner": make_runner, "__doc__": doc})
