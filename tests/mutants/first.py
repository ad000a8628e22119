"""One mutant for each of the RFC's seven checks, and the correct subjects that they were made from.

Each differs from a correct subject by one mistake that a public wrapper has made.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import torch
from torch import nn

from conformance.registry import bundled_folder, load_file
from conformance.spec import AdapterSpec
from runner import (
    PADDED,
    AxisMode,
    CapturedMinusPadding,
    Custom,
    GraphAdapter,
    GraphRunner,
    InputSpec,
    OutputSpec,
    PerRowLengths,
)

_reference: Any = type(load_file(bundled_folder() / "reference" / "spec.py"))
ReferenceAdapter: Any = _reference.adapter
HOP: int = _reference.hop


class LosesLastFrame(ReferenceAdapter):
    """An exact hit of one row takes a fast path that copies all but the last frame, which stays the last caller's.

    https://github.com/vllm-project/vllm-omni/issues/6457
    """

    def load(self, static: Mapping[str, torch.Tensor], inputs: Mapping[str, torch.Tensor]) -> None:
        codes = inputs["codes"]
        if codes.shape == static["codes"].shape and codes.shape[0] == 1:
            static["codes"][..., :-1].copy_(codes[..., :-1])
        else:
            super().load(static, inputs)


class KeepsPaddedRows(ReferenceAdapter):
    """A batch that fills its bucket's frames and not its rows comes back with the bucket's rows.

    https://github.com/vllm-project/vllm-omni/pull/4606
    """

    def unload(self, outputs: Any, inputs: Any, actual: Mapping[str, int], bucket: Mapping[str, int]) -> Any:
        if actual["frames"] == bucket["frames"]:
            actual = {**actual, "batch": bucket["batch"]}
        return super().unload(outputs, inputs, actual, bucket)


class TrimsNominally(ReferenceAdapter):
    """A padded result is cut at frames × hop, though the decoder returns 8·T − 6: surplus samples at every chunk's end.

    https://github.com/vllm-project/vllm-omni/issues/4466
    """

    outputs = (
        OutputSpec(
            "wav",
            ("batch", 1, "samples"),
            length=Custom(lambda captured, actual, bucket: min(actual * HOP, captured)),
        ),
    )


class ReturnsStaticOutput(ReferenceAdapter):
    """The static output is handed out without a copy. https://github.com/vllm-project/vllm/pull/52115"""

    def unload(self, outputs: Any, inputs: Any, actual: Mapping[str, int], bucket: Mapping[str, int]) -> Any:
        wav = outputs["wav"]
        length = CapturedMinusPadding(HOP).trimmed(wav.shape[-1], actual["frames"], bucket["frames"])
        return {"wav": wav[: actual["batch"], :, :length]}


class _CutsToLargestBucket(GraphRunner):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(codes=kwargs["codes"][:4, :, :16])


class _Unguarded(GraphRunner):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with mock.patch.object(torch.cuda, "is_current_stream_capturing", return_value=False):
            return super().__call__(*args, **kwargs)


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


class TrimsToLongestRow(RaggedAdapter):
    """Every row is cut at the longest row's length, and ends in what its padding decodes to.

    https://github.com/vllm-project/vllm-omni/issues/2115
    """

    def unload(self, outputs: Any, inputs: Any, actual: Mapping[str, int], bucket: Mapping[str, int]) -> Any:
        longest = torch.full_like(inputs["lengths"], int(inputs["lengths"].max()))
        return super().unload(outputs, {**inputs, "lengths": longest}, actual, bucket)


class ReferenceSpec(_reference):
    """The correct reference subject, under the name of a mutant where a subclass gives it a mistake."""

    name = "correct_reference"

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


def _with_adapter(base: type[AdapterSpec], adapter: type[GraphAdapter]) -> type[AdapterSpec]:
    return type(adapter.__name__, (base,), {"name": adapter.__name__, "adapter": adapter, "__doc__": adapter.__doc__})


def _with_runner(runner: type[GraphRunner], name: str, doc: str) -> type[AdapterSpec]:
    def make_runner(self: AdapterSpec, adapter: GraphAdapter, device: torch.device) -> GraphRunner:
        return runner(adapter, self.buckets, device=device)

    return type(name, (ReferenceSpec,), {"name": name, "make_runner": make_runner, "__doc__": doc})


loses_last_frame = _with_adapter(ReferenceSpec, LosesLastFrame)
keeps_padded_rows = _with_adapter(ReferenceSpec, KeepsPaddedRows)
trims_nominally = _with_adapter(ReferenceSpec, TrimsNominally)
returns_static_output = _with_adapter(ReferenceSpec, ReturnsStaticOutput)
trims_to_longest_row = _with_adapter(RaggedSpec, TrimsToLongestRow)
cuts_to_largest_bucket = _with_runner(
    _CutsToLargestBucket,
    "CutsToLargestBucket",
    "A call past every bucket is cut to the largest one. https://github.com/vllm-project/vllm/issues/8068",
)
replays_in_outer_capture = _with_runner(
    _Unguarded,
    "ReplaysInOuterCapture",
    "Nobody asks whether a capture is open. https://github.com/vllm-project/vllm-omni/pull/2910",
)

MUST_FAIL: dict[str, set[str]] = {
    "loses_last_frame": {"CG201"},
    "keeps_padded_rows": {"CG202"},
    "trims_nominally": {"CG203"},
    "trims_to_longest_row": {"CG204"},
    "returns_static_output": {"CG301"},
    "cuts_to_largest_bucket": {"CG401"},
    "replays_in_outer_capture": {"CG402"},
}
"""Attribute of this module to the codes that it must fail, all of them and no other."""
CORRECT = ("ReferenceSpec", "RaggedSpec")
