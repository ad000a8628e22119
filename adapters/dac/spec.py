"""How the kit builds, feeds and judges the DAC decoder of the installed transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.spec import AdapterSpec, Requirement
from conformance.traces import load_trace
from runner import GraphAdapter

from .adapter import DacAdapter

TRANSFORMERS = Requirement("transformers", "pip install transformers")


def tiny_model() -> Any:
    """The real module, small, with 8 samples a frame; weights that use the range of its tanh without filling it."""
    from transformers import DacConfig, DacModel

    config = DacConfig(
        sampling_rate=800,
        encoder_hidden_size=8,
        decoder_hidden_size=32,
        downsampling_ratios=[2, 4],
        upsampling_ratios=[4, 2],
        n_codebooks=4,
        codebook_size=32,
        codebook_dim=4,
    )
    model = DacModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("codebook.weight"):
                parameter.normal_(0, 1.0)
            elif parameter.ndim >= 2 and not name.endswith("alpha"):  # a snake's alpha of zero divides by zero
                parameter.normal_(0, 0.1)
    return model


class DacSpec(AdapterSpec):
    """DAC's decoder: centred convolutions, so no padded frames."""

    name = "dac"
    adapter = DacAdapter
    buckets = (
        {"batch": 1, "frames": 4},
        {"batch": 1, "frames": 12},
        {"batch": 2, "frames": 8},
        {"batch": 4, "frames": 8},
    )
    serving_buckets = ({"batch": 1, "frames": 5}, {"batch": 1, "frames": 30}, {"batch": 1, "frames": 54})
    min_hit_rate = 0.85  # the last call of a request has any length, and runs eagerly
    sample_rate = 800
    hop = 8
    capabilities = Capabilities(
        variable_length=unsupported("a shorter row of a batch would hear its padding: centred convolutions"),
        streaming=unsupported("samples hear later frames, so a chunk needs context on its right too"),
        randomness=unsupported("the decoder draws nothing"),
        state=unsupported("the decoder keeps nothing between calls"),
        low_precision=supported(),
        autocast=supported(),
        zero_length=unsupported("a request has at least one frame"),
        threads=supported(),
    )
    trace = load_trace(__file__)
    requires = (TRANSFORMERS,)
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> DacAdapter:
        if checkpoint is None:
            return DacAdapter(tiny_model().to(device))
        from transformers import DacModel

        model = DacModel.from_pretrained(checkpoint).eval().to(device)
        self.sample_rate, self.hop = model.config.sampling_rate, model.config.hop_length
        return DacAdapter(model)

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        assert isinstance(adapter, DacAdapter)
        shape = (sizes["batch"], adapter.sizes["n_vq"], sizes["frames"])
        return {"codes": torch.randint(0, adapter.module.config.codebook_size, shape, generator=generator)}
