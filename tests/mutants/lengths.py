"""Mistakes of length, padding, batch and stream: classes A, B, C and H."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from conformance.capabilities import supported, unsupported
from conformance.traces import Trace
from runner import EXACT, GraphRunner
from tests.mutants.base import HOP, Mutant, ReferenceAdapter, ReferenceSpec, with_adapter, with_runner

Tensors = Mapping[str, torch.Tensor]
Sizes = Mapping[str, int]
FULL = 8  # frames of the largest bucket


class _Remembers(ReferenceAdapter):
    """An adapter that knows the sizes of the calls before."""

    def unload(self, outputs: Tensors, inputs: Tensors, actual: Sizes, bucket: Sizes) -> Any:
        self.calls = [*getattr(self, "calls", []), (actual["batch"], actual["frames"])][-4:]
        return super().unload(outputs, inputs, actual, bucket)


class KeepsSurplusOfRamp(_Remembers):
    """The fourth chunk of a ramp, each a frame longer than the last, keeps samples of its padding.

    https://github.com/vllm-project/vllm-omni/pull/4525
    """

    def unload(self, outputs: Tensors, inputs: Tensors, actual: Sizes, bucket: Sizes) -> Any:
        results = super().unload(outputs, inputs, actual, bucket)
        ramp = [(1, actual["frames"] - step) for step in (3, 2, 1, 0)]
        return {"wav": nn.functional.pad(results["wav"], (0, 3))} if self.calls == ramp else results


class DropsTailOfGrowingBatch(_Remembers):
    """A batch that a fourth request has just joined loses its last sample.

    https://github.com/vllm-project/vllm-omni/issues/6712
    """

    def unload(self, outputs: Tensors, inputs: Tensors, actual: Sizes, bucket: Sizes) -> Any:
        results = super().unload(outputs, inputs, actual, bucket)
        growing = [(rows, actual["frames"]) for rows in (1, 2, 3, 4)]
        return {"wav": results["wav"][..., :-1]} if self.calls == growing else results


class MultipliesPadsByZero(ReferenceAdapter):
    """A scratch buffer of the last call is masked by a product with zero, which NaN survives.

    https://github.com/vllm-project/vllm/issues/40047
    """

    def unload(self, outputs: Tensors, inputs: Tensors, actual: Sizes, bucket: Sizes) -> Any:
        results = super().unload(outputs, inputs, actual, bucket)
        wav = results["wav"]
        if not hasattr(self, "scratch"):
            self.scratch = torch.zeros(4, 1, FULL * HOP, device=wav.device)
        old = self.scratch[: wav.shape[0], :, : wav.shape[-1]].to(wav.dtype)
        results["wav"] = wav + 0.0 * old
        self.scratch[: wav.shape[0], :, : wav.shape[-1]] = wav
        return results


class ForgetsToResetPadsAfterLarger(ReferenceAdapter):
    """After four calls of the largest bucket its last frame leaks into a full call of a smaller one.

    https://github.com/flashinfer-ai/flashinfer/issues/3057
    """

    own = threading.local()  # what a thread called: the turns of two threads must not decide what this mutant fails

    def unload(self, outputs: Tensors, inputs: Tensors, actual: Sizes, bucket: Sizes) -> Any:
        results = super().unload(outputs, inputs, actual, bucket)
        in_a_row = getattr(self.own, "in_a_row", 0)
        if in_a_row >= 4 and dict(actual) == {"batch": 1, "frames": FULL}:
            results["wav"][..., -1] += 0.5
        self.own.in_a_row = in_a_row + 1 if bucket["batch"] > 1 else 0
        return results


class MixesRowsOfThree(ReferenceAdapter):
    """The last of three rows takes its first sample from row 0, as a kernel that indexes one row too few does.

    https://github.com/vllm-project/vllm-omni/pull/4606
    """

    def unload(self, outputs: Tensors, inputs: Tensors, actual: Sizes, bucket: Sizes) -> Any:
        results = super().unload(outputs, inputs, actual, bucket)
        if dict(actual) == {"batch": 3, "frames": FULL}:
            results["wav"][-1, :, 0] = results["wav"][0, :, 0]
        return results


class RemembersRowsByContent(ReferenceAdapter):
    """A row that the last batch held elsewhere gets the gain of its old place.

    https://github.com/pytorch/torchtitan/issues/3668
    """

    last: Any = None

    def unload(self, outputs: Tensors, inputs: Tensors, actual: Sizes, bucket: Sizes) -> Any:
        results = super().unload(outputs, inputs, actual, bucket)
        codes = inputs["codes"]
        if self.last is not None and self.last.shape == codes.shape and codes.shape[0] > 1:
            moved = (codes[1:] == self.last[:-1]).flatten(1).all(dim=1).to(results["wav"].dtype)
            results["wav"][1:] *= 1 - 0.5 * moved[:, None, None]
        self.last = codes.clone()
        return results


class _NeedsMoreContext(ReferenceSpec):
    """The spec declares one frame of left context, and the decoder's receptive field is longer: clicks at each chunk.

    https://github.com/vllm-project/vllm-omni/issues/4466
    """

    name = "DeclaresTooLittleContext"
    left_context = 1


class NoisyCodec(nn.Module):
    """The codec with noise on its samples, drawn on the device."""

    def __init__(self, codec: Any) -> None:
        super().__init__()
        self.codec = codec
        self.n_vq = codec.n_vq

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        wav: torch.Tensor = self.codec(codes)
        return wav + 0.1 * torch.randn_like(wav)


class NoisyAdapter(ReferenceAdapter):
    """Sizes are exact: numbers drawn for a whole bucket would be other ones than eager draws."""

    axes = {"batch": EXACT, "frames": EXACT}  # noqa: RUF012


class NoisySpec(ReferenceSpec):
    """The correct subject that draws."""

    name = "correct_noisy"
    adapter = NoisyAdapter
    buckets = ({"batch": 1, "frames": 4}, {"batch": 1, "frames": 8}, {"batch": 2, "frames": 8})
    trace = Trace.of(*buckets)
    capabilities = replace(
        ReferenceSpec.capabilities,
        randomness=supported(),
        variable_length=unsupported("a row alone draws other numbers than the row in a batch"),
        streaming=unsupported("chunks draw other numbers than the whole"),
        threads=unsupported("threads draw from one generator in turn"),
    )

    def build(self, device: torch.device, checkpoint: Any) -> Any:
        return self.adapter(NoisyCodec(super().build(device, checkpoint).module))


class CentresNoisyRows(NoisyAdapter):
    """The mean over the batch is taken out of every row, eagerly as well, and the noise hides that from no check.

    https://github.com/pytorch/torchtitan/issues/3668
    """

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        wav: torch.Tensor = self.module(codes)
        return wav - 0.5 * wav.mean(dim=0, keepdim=True)


class _SeedsEachReplay(GraphRunner):
    def _replay(self, *args: Any) -> Any:
        torch.manual_seed(torch.initial_seed())
        return super()._replay(*args)


class _DrawsOnHost(GraphRunner):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        torch.rand(())
        return super().__call__(*args, **kwargs)


class DrawsForNothing(ReferenceAdapter):
    """Dither that is switched off is drawn all the same. https://github.com/vllm-project/vllm-omni/pull/4938"""

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        wav: torch.Tensor = self.module(codes)
        return wav + 0 * torch.rand_like(wav)


keeps_surplus = with_adapter(ReferenceSpec, KeepsSurplusOfRamp)
drops_tail = with_adapter(ReferenceSpec, DropsTailOfGrowingBatch)
multiplies_pads = with_adapter(ReferenceSpec, MultipliesPadsByZero)
forgets_after_larger = with_adapter(ReferenceSpec, ForgetsToResetPadsAfterLarger)
mixes_rows = with_adapter(ReferenceSpec, MixesRowsOfThree)
centres_noisy_rows = with_adapter(NoisySpec, CentresNoisyRows)
remembers_rows = with_adapter(ReferenceSpec, RemembersRowsByContent)
seeds_each_replay = with_runner(
    _SeedsEachReplay,
    "SeedsEachReplay",
    "Each replay starts from one seed: the same noise for ever. https://github.com/pytorch/pytorch/issues/84614",
    NoisySpec,
)
draws_on_host = with_runner(
    _DrawsOnHost,
    "DrawsOnHost",
    "A request id is drawn from the default generator. https://github.com/sgl-project/sglang-omni/pull/419",
)
draws_for_nothing = with_adapter(ReferenceSpec, DrawsForNothing)

MUTANTS = tuple(
    Mutant(spec, frozenset(codes.split()))
    for spec, codes in (
        (keeps_surplus, "CG205 CG214"),
        (drops_tail, "CG205"),
        (multiplies_pads, "CG206"),
        (forgets_after_larger, "CG207"),
        (mixes_rows, "CG202 CG205 CG208"),
        (centres_noisy_rows, "CG208"),
        (remembers_rows, "CG208 CG504"),
        (_NeedsMoreContext, "CG214"),
        (seeds_each_replay, "CG215"),
        (draws_on_host, "CG215"),
        (draws_for_nothing, "CG215"),
    )
)
