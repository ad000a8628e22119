"""How the kit builds, feeds and judges the flow-matching head of Ming-TTS of the installed vllm-omni."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.spec import AdapterSpec, Requirement
from conformance.traces import load_trace
from runner import GraphAdapter

from .adapter import MingCFMAdapter

VLLM_OMNI = Requirement("vllm_omni", "uv pip install 'audiograph[vllm]'")
PATCH, PAST, LATENT, DIM = 4, 8, 8, 24
STEPS = 10  # the package's `_CFM_STEPS`
CONTROLS = (2.0, 0.25, 0.5)  # guidance and sigma as released, and a temperature at which noise is heard


def tiny_model() -> Any:
    """The real modules, small, by the names that the model has for them."""
    from vllm_omni.model_executor.models.common.ming.aggregator import Aggregator
    from vllm_omni.model_executor.models.common.ming.cfm_head import FlowLoss

    size = {"hidden_size": 32, "depth": 2, "num_heads": 2}
    model = torch.nn.Module()
    model.flowloss = FlowLoss(z_channels=LATENT, llm_cond_dim=DIM, **size)
    model.linear_proj_audio = Aggregator(in_channels=LATENT, llm_input_dim=DIM, **size)
    model.stop_head = torch.nn.Linear(DIM, 2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.15)
    return model.eval()


def adapted(model: Any) -> MingCFMAdapter:
    """The adapter of a module on its device."""
    from vllm_omni.model_executor.models.common.ming.cfm_solver import build_timesteps

    device = model.stop_head.weight.device
    times = build_timesteps(STEPS, device=device, dtype=torch.float32, use_epss=True, sway_sampling_coef=-1.0)
    return MingCFMAdapter(model, times, past=PAST, patch=PATCH)


class MingCFMSpec(AdapterSpec):
    """The flow-matching head of Ming-TTS: one patch of latents for each row of a batch, from noise that is given."""

    name = "ming_cfm"
    adapter = MingCFMAdapter
    buckets = ({"batch": 1}, {"batch": 2}, {"batch": 4})
    sample_rate = 100  # numbers a second: 12.5 latents of 8
    hop = PATCH * LATENT
    capabilities = Capabilities(
        variable_length=unsupported("a call is one patch of each request, after a history of fixed length"),
        streaming=unsupported("a call is one patch of each request"),
        randomness=unsupported("the noise is an input, drawn by the caller"),
        state=unsupported("the caller keeps the latents and gives them in"),
        low_precision=supported(),
        autocast=supported(),
        zero_length=unsupported("a call has at least one request"),
        threads=supported(),
    )
    trace = load_trace(__file__)
    serving_buckets = ({"batch": 1},)
    requires = (VLLM_OMNI,)

    def build(self, device: torch.device, checkpoint: Path | None) -> MingCFMAdapter:
        return adapted(tiny_model().to(device))

    def cast(self, adapter: GraphAdapter, dtype: torch.dtype) -> MingCFMAdapter:
        """The attention keeps its weights joined, and its rotations, from the first call on: made anew in `dtype`."""
        model = self.module(adapter).to(dtype)
        for part in model.modules():
            if hasattr(part, "_rope_cache"):
                part._rope_cache, part._qkv_w, part._qkv_b = {}, None, None
        return adapted(model)

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        known = {**adapter.sizes, **sizes}
        drawn = {
            spec.name: torch.randn(
                [axis if isinstance(axis, int) else known[axis] for axis in spec.axes], generator=generator
            ).to(spec.dtype)
            for spec in adapter.inputs
        }
        return {**drawn, "controls": torch.tensor(CONTROLS)}
