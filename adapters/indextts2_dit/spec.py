"""How the kit builds, feeds and judges IndexTTS2's DiT of the installed vllm-omni."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.spec import AdapterSpec, Requirement
from conformance.traces import load_trace
from runner import GraphAdapter

from .adapter import IndexTTS2DiTAdapter

VLLM_OMNI = Requirement("vllm_omni", "uv pip install 'audiograph[vllm]'")
STYLE = 12


def tiny_model() -> Any:
    """The real module, small: every option as in the released model, 3 layers with a skip, 2 of WaveNet."""
    from vllm_omni.diffusion.config import set_current_diffusion_config
    from vllm_omni.diffusion.data import AttentionConfig
    from vllm_omni.model_executor.models.indextts2.configuration_indextts2 import IndexTTS2Config
    from vllm_omni.model_executor.models.indextts2.s2mel.modules.commons import AttrDict
    from vllm_omni.model_executor.models.indextts2.s2mel.modules.diffusion_transformer import DiT

    released = IndexTTS2Config().s2mel
    dit = {**released["DiT"], "hidden_dim": 32, "num_heads": 2, "depth": 3, "in_channels": 8, "content_dim": 16}
    wavenet = {**released["wavenet"], "hidden_dim": 32, "num_layers": 2}
    config = AttrDict({"DiT": AttrDict(dit), "wavenet": AttrDict(wavenet), "style_encoder": AttrDict({"dim": STYLE})})
    # Its attention reads nothing else of an OmniDiffusionConfig.
    attention = SimpleNamespace(
        diffusion_attention_config=AttentionConfig(default="TORCH_SDPA"), parallel_config=SimpleNamespace(ring_degree=1)
    )
    with set_current_diffusion_config(attention):
        model = DiT(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.2)
    return model


class IndexTTS2DiTSpec(AdapterSpec):
    """The DiT of IndexTTS2: non-causal, with masks for rows of unequal length."""

    name = "indextts2_dit"
    adapter = IndexTTS2DiTAdapter
    buckets = (
        {"batch": 2, "frames": 4},
        {"batch": 2, "frames": 12},
        {"batch": 4, "frames": 9},
    )
    serving_buckets = tuple({"batch": 2, "frames": frames} for frames in (512, 768, 1024, 1280))
    sample_rate = 86  # mel frames a second: 22.05 kHz by 256
    hop = 1
    lengths_input = "lengths"
    capabilities = Capabilities(
        variable_length=supported(),
        streaming=unsupported("every frame attends to every other"),
        randomness=unsupported("the noise is an input, drawn once a request"),
        state=unsupported("the solver keeps the state and gives it in"),
        low_precision=supported(),
        autocast=supported(),
        zero_length=unsupported("a request has at least the frames of its reference"),
        threads=supported(),
    )
    trace = load_trace(__file__)
    requires = (VLLM_OMNI,)

    def build(self, device: torch.device, checkpoint: Path | None) -> IndexTTS2DiTAdapter:
        from vllm_omni.model_executor.models.indextts2.indextts2_s2mel_decoder import _strip_weight_norm

        model = tiny_model().to(device)
        _strip_weight_norm(model)  # as the decoder does once its weights are loaded
        model.setup_caches(max_batch_size=8, max_seq_length=16384)
        return IndexTTS2DiTAdapter(model, STYLE)

    def cast(self, adapter: GraphAdapter, dtype: torch.dtype) -> GraphAdapter:
        assert isinstance(adapter, IndexTTS2DiTAdapter)
        return IndexTTS2DiTAdapter(adapter.module.to(dtype), STYLE)

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        """The first third of a row's frames is the reference, where `prompt_x` speaks and `x` is silent."""
        known = {**adapter.sizes, **sizes}
        drawn = {
            spec.name: torch.randn([known[str(axis)] for axis in spec.axes], generator=generator).to(spec.dtype)
            for spec in adapter.inputs
        }
        reference = sizes["frames"] // 3
        drawn["x"][..., :reference] = 0
        drawn["prompt_x"][..., reference:] = 0
        drawn["lengths"] = torch.full((sizes["batch"],), sizes["frames"])
        drawn["t"] = torch.rand(sizes["batch"], generator=generator).to(drawn["t"].dtype)
        return drawn
