"""How the kit builds, feeds and judges the Mimi decoder of the installed transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.spec import AdapterSpec, Requirement
from conformance.traces import load_trace
from runner import GraphAdapter

from .adapter import MimiAdapter

TRANSFORMERS = Requirement("transformers", "pip install transformers")
HOP = 16


def tiny_model() -> Any:
    """The real module, small, with 16 samples a frame: twice by the latent upsampling, then 4 and 2.

    Codebooks of zeros and layer scales of 0.01, which a new model has, would say the same for every code.
    """
    from transformers import MimiConfig, MimiModel

    config = MimiConfig(
        sampling_rate=1600,
        frame_rate=100,
        hidden_size=32,
        num_filters=4,
        upsampling_ratios=[4, 2],
        upsample_groups=32,
        codebook_size=32,
        codebook_dim=16,
        vector_quantization_hidden_dimension=16,
        num_quantizers=4,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=64,
        sliding_window=16,
        layer_scale_initial_scale=0.5,
    )
    model = MimiModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.15)
        for name, buffer in model.named_buffers():
            if name.endswith("embed_sum"):
                buffer.normal_(0, 1.0)
    return model


class MimiSpec(AdapterSpec):
    """Mimi's decoder: causal convolutions around a causal transformer in a sliding window."""

    name = "mimi"
    adapter = MimiAdapter
    buckets = (
        {"batch": 1, "frames": 4},
        {"batch": 1, "frames": 12},
        {"batch": 2, "frames": 8},
        {"batch": 4, "frames": 8},
    )
    serving_buckets = ({"batch": 1, "frames": 1}, {"batch": 1, "frames": 5})
    sample_rate = 1600
    hop = HOP
    capabilities = Capabilities(
        variable_length=supported(),
        streaming=unsupported("attention looks back over 250 latent frames in each of 8 layers: no chunk holds that"),
        randomness=unsupported("the decoder draws nothing"),
        state=unsupported("decode is called without past keys and values"),
        low_precision=supported(),
        autocast=supported(),
        zero_length=unsupported("a request has at least one frame"),
        threads=supported(),
    )
    trace = load_trace(__file__)
    requires = (TRANSFORMERS,)
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> MimiAdapter:
        if checkpoint is None:
            return MimiAdapter(tiny_model().to(device))
        from transformers import MimiModel

        model = MimiModel.from_pretrained(checkpoint).eval().to(device)
        self.sample_rate = model.config.sampling_rate
        self.hop = int(model.config.sampling_rate / model.config.frame_rate)
        return MimiAdapter(model)

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        assert isinstance(adapter, MimiAdapter)
        shape = (sizes["batch"], adapter.sizes["n_vq"], sizes["frames"])
        return {"codes": torch.randint(0, adapter.module.config.codebook_size, shape, generator=generator)}
