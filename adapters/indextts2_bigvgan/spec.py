"""How the kit builds, feeds and judges IndexTTS2's BigVGAN of the installed vllm-omni."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.spec import AdapterSpec, Requirement
from conformance.traces import load_trace
from runner import GraphAdapter

from .adapter import IndexTTS2BigVGANAdapter

VLLM_OMNI = Requirement("vllm_omni", "uv pip install 'audiograph[vllm]'")


def tiny_model() -> Any:
    """The real module, small, with 8 samples a frame; the released activations (SnakeBeta in log scale)."""
    from vllm_omni.model_executor.models.indextts2.s2mel.modules.bigvgan import BigVGAN
    from vllm_omni.model_executor.models.indextts2.s2mel.modules.commons import AttrDict

    rates = {"num_mels": 8, "upsample_initial_channel": 16, "upsample_rates": [4, 2], "upsample_kernel_sizes": [8, 4]}
    blocks = {"resblock": "1", "resblock_kernel_sizes": [3, 7], "resblock_dilation_sizes": [[1], [3]]}
    model = BigVGAN(AttrDict({**rates, **blocks, "activation": "snakebeta", "snake_logscale": True}))
    model.remove_weight_norm()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.13)
    return model.eval()


def precompute_snakes(model: Any) -> Any:
    """What vllm-omni's own wrapper does before it captures: tables that the first call would otherwise make."""
    from vllm_omni.model_executor.models.common.snake_activation import SnakeBeta

    for part in model.modules():
        if isinstance(part, SnakeBeta):
            part.precompute_exp_cache()
    return model


class IndexTTS2BigVGANSpec(AdapterSpec):
    """BigVGAN of IndexTTS2: a vocoder that is centred everywhere, so no padded frames."""

    name = "indextts2_bigvgan"
    adapter = IndexTTS2BigVGANAdapter
    buckets = (
        {"batch": 1, "frames": 4},
        {"batch": 1, "frames": 12},
        {"batch": 2, "frames": 7},
        {"batch": 4, "frames": 7},
    )
    serving_buckets = tuple({"batch": 1, "frames": frames} for frames in (128, 256, 384, 512))
    min_hit_rate = 0.0  # requests are vocoded whole, at whatever length they have: exact buckets meet few of them
    sample_rate = 22050 // 32  # 8 samples a frame where the released model has 256
    hop = 8
    capabilities = Capabilities(
        variable_length=unsupported("a shorter row of a batch would hear its padding: centred convolutions"),
        streaming=unsupported("samples hear later frames, so a chunk needs context on its right too"),
        randomness=unsupported("the vocoder draws nothing"),
        state=unsupported("the vocoder keeps nothing between calls"),
        low_precision=supported(),
        autocast=supported(),
        zero_length=unsupported("a request has at least one frame"),
        threads=supported(),
    )
    trace = load_trace(__file__)
    requires = (VLLM_OMNI,)
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> IndexTTS2BigVGANAdapter:
        if checkpoint is None:
            return IndexTTS2BigVGANAdapter(precompute_snakes(tiny_model().to(device)))
        from vllm_omni.model_executor.models.indextts2.s2mel.modules.bigvgan import BigVGAN

        model = BigVGAN.from_pretrained(str(checkpoint))
        model.remove_weight_norm()
        self.sample_rate, self.hop = int(model.h.sampling_rate), prod(model.h.upsample_rates)
        return IndexTTS2BigVGANAdapter(precompute_snakes(model.eval().to(device)))

    def cast(self, adapter: GraphAdapter, dtype: torch.dtype) -> GraphAdapter:
        assert isinstance(adapter, IndexTTS2BigVGANAdapter)
        return IndexTTS2BigVGANAdapter(adapter.module.to(dtype))

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        mel = torch.randn(sizes["batch"], adapter.sizes["n_mels"], sizes["frames"], generator=generator)
        return {"mel": mel.to(adapter.inputs[0].dtype)}
