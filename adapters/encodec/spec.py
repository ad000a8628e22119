"""How the kit builds, feeds and judges the EnCodec decoder of the installed transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.spec import AdapterSpec, Requirement
from conformance.traces import load_trace
from runner import GraphAdapter

from .adapter import EncodecAdapter

TRANSFORMERS = Requirement("transformers", "pip install transformers")


def tiny_model() -> Any:
    """The real module, small, with 8 samples a frame and 4 codebooks; the rest as in the released 24 kHz model.

    Codebooks are zeros in a new model.
    """
    from transformers import EncodecConfig, EncodecModel

    config = EncodecConfig(
        sampling_rate=800,
        target_bandwidths=[1.0, 2.0],
        num_filters=4,
        upsampling_ratios=[4, 2],
        codebook_size=32,
        codebook_dim=32,
        hidden_size=32,
    )
    model = EncodecModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.5)
        for name, buffer in model.named_buffers():
            if name.endswith("codebook.embed"):
                buffer.normal_(0, 1.0)
    return model


class EncodecSpec(AdapterSpec):
    """EnCodec's decoder: causal convolutions that reflect at the left edge, and an LSTM."""

    name = "encodec"
    adapter = EncodecAdapter
    buckets = (
        {"batch": 1, "frames": 4},
        {"batch": 1, "frames": 12},
        {"batch": 2, "frames": 9},
        {"batch": 4, "frames": 9},
    )
    serving_buckets = ({"batch": 1, "frames": 256}, {"batch": 1, "frames": 512}, {"batch": 1, "frames": 1024})
    sample_rate = 800
    hop = 8
    capabilities = Capabilities(
        variable_length=supported(),
        streaming=unsupported("an LSTM carries every earlier frame along: no left context is enough"),
        randomness=unsupported("the decoder draws nothing"),
        state=unsupported("the LSTM starts anew at each call"),
        low_precision=supported(),
        autocast=supported(),
        zero_length=unsupported("a request has at least one frame"),
        threads=supported(),
    )
    trace = load_trace(__file__)
    requires = (TRANSFORMERS,)
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> EncodecAdapter:
        if checkpoint is None:
            return EncodecAdapter(tiny_model().to(device))
        from transformers import EncodecModel

        model = EncodecModel.from_pretrained(checkpoint).eval().to(device)
        self.sample_rate, self.hop = model.config.sampling_rate, model.config.hop_length
        return EncodecAdapter(model)

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        assert isinstance(adapter, EncodecAdapter)
        shape = (sizes["batch"], adapter.sizes["n_vq"], sizes["frames"])
        return {"codes": torch.randint(0, adapter.module.config.codebook_size, shape, generator=generator)}
