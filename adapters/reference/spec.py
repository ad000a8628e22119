"""How the kit builds, feeds and judges the reference adapter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.spec import AdapterSpec
from conformance.traces import Trace
from runner import GraphAdapter

from .adapter import HOP, CausalCodec, ReferenceAdapter


class ReferenceSpec(AdapterSpec):
    """A small causal codec in plain torch with an affine output length: no package beyond torch."""

    name = "reference"
    adapter = ReferenceAdapter
    buckets = (
        {"batch": 1, "frames": 4},
        {"batch": 1, "frames": 8},
        {"batch": 1, "frames": 16},
        {"batch": 2, "frames": 8},
        {"batch": 4, "frames": 8},
        {"batch": 4, "frames": 16},
    )
    sample_rate = 16_000
    hop = HOP
    capabilities = Capabilities(
        variable_length=supported(),
        streaming=supported(),
        randomness=unsupported("the decoder draws nothing"),
        state=unsupported("the decoder keeps nothing between calls"),
        low_precision=supported(),
        autocast=supported(),
        zero_length=unsupported("a request has at least one frame"),
        threads=supported(),
    )
    trace = Trace.of(
        {"batch": 1, "frames": 4},
        {"batch": 1, "frames": 7},
        {"batch": 2, "frames": 8},
        {"batch": 4, "frames": 16},
    )
    left_context = 4

    def build(self, device: torch.device, checkpoint: Path | None) -> ReferenceAdapter:
        return ReferenceAdapter(CausalCodec().eval().to(device))

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        shape = (sizes["batch"], adapter.sizes["n_vq"], sizes["frames"])
        return {"codes": torch.randint(0, 64, shape, generator=generator)}
