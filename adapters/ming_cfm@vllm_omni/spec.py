"""Ming-TTS's executor that vllm-omni 0.30.0 ships, unmodified: `CFMGraphExecutor`, as the model calls it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any, ClassVar

import torch

from conformance.capabilities import supported, unsupported
from conformance.registry import spec_of
from conformance.wrapped import WrapperSpec
from runner import EXACT, AxisMode, GraphAdapter, GraphConfig, InputSpec, OutputSpec

MING = spec_of("ming_cfm")
CONTROLS = {"cfg_scale": 2.0, "sigma": 0.25, "temperature": 0.0}  # as released


def owner(adapter: GraphAdapter, graphs: bool) -> Any:
    """What `_decode_one_step` of the language model reads of it, with that method and the one that makes graphs."""
    from vllm_omni.model_executor.models.ming_tts.ming_tts_llm import MingLLMModel

    module: Any = adapter.module  # type: ignore[attr-defined]
    module.flowloss.cfm.model._ming_compiled = True  # its compilation is no part of the graph
    model = SimpleNamespace(
        flowloss=module.flowloss,
        linear_proj_audio=module.linear_proj_audio,
        stop_head=module.stop_head,
        fm_dtype=module.stop_head.weight.dtype,
        ming_config=SimpleNamespace(patch_size=adapter.sizes["patch"], latent_dim=adapter.sizes["latent"]),
        _cfm_graph=None,
        _cfm_graph_enabled=graphs,
        sizes=adapter.sizes,
    )
    for name in ("_decode_one_step", "_maybe_build_cfm_graph"):
        setattr(model, name, MethodType(getattr(MingLLMModel, name), model))
    return model


def decoded(model: Any, hidden: torch.Tensor, history: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The patch, its embedding and the chance of the end; the history after it only repeats the patch."""
    given = model._decode_one_step(hidden_states=hidden, latent_history=history, **CONTROLS)
    patch, embedding, _, stop = given
    return patch, embedding, stop


class MingStep(GraphAdapter):
    """One step of the model with its graphs off: the noise is drawn inside, row by row."""

    inputs = (
        InputSpec("hidden", torch.float32, ("batch", "dim")),
        InputSpec("history", torch.float32, ("batch", "past", "latent")),
    )
    outputs = MING.adapter.outputs
    axes: ClassVar[dict[str, AxisMode]] = {"batch": EXACT}

    def __init__(self, adapter: Any) -> None:
        """`adapter` is the one on the reference runner, of the same modules."""
        self.module = adapter.module
        self.sizes = {name: adapter.sizes[name] for name in ("dim", "past", "patch", "latent")}
        self.inputs = tuple(InputSpec(spec.name, adapter.dtype, spec.axes) for spec in type(self).inputs)
        patch, embedding, _ = adapter.outputs
        self.outputs = (patch, embedding, OutputSpec("stop", ("batch",)))

    def forward(self, hidden: torch.Tensor, history: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """`[batch, dim]` and `[batch, past, latent]` to `[batch, patch, latent]`, `[batch, 1, dim]` and `[batch]`."""
        return decoded(owner(self, graphs=False), hidden, history)


class MingWrapper(WrapperSpec):
    """Ming-TTS's flow-matching head behind vllm-omni's own graph: one graph, of one row, captured at the first call."""

    name = "ming_cfm@vllm_omni"
    adapter = MingStep
    buckets = ({"batch": 1},)
    sample_rate = MING.sample_rate
    hop = MING.hop
    capabilities = replace(
        MING.capabilities,
        randomness=supported(),
        threads=unsupported("a worker of vllm-omni decodes in one thread"),
    )
    trace = MING.trace
    serving_buckets = MING.serving_buckets
    requires = MING.requires

    def build(self, device: torch.device, checkpoint: Path | None) -> MingStep:
        return MingStep(MING.build(device, checkpoint))

    def cast(self, adapter: GraphAdapter, dtype: torch.dtype) -> MingStep:
        return MingStep(MING.cast(adapter, dtype))

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        known = {**adapter.sizes, **sizes}
        return {
            spec.name: torch.randn([known[str(axis)] for axis in spec.axes], generator=generator).to(spec.dtype)
            for spec in adapter.inputs
        }

    def make_wrapper(self, adapter: GraphAdapter, device: torch.device) -> Any:
        return owner(adapter, graphs=True)

    def warm(self, wrapper: Any, device: torch.device) -> None:
        """There is no warm-up: the first patch of the first request captures."""
        sizes, dtype = wrapper.sizes, wrapper.fm_dtype
        hidden = torch.zeros(1, sizes["dim"], device=device, dtype=dtype)
        decoded(wrapper, hidden, torch.zeros(1, sizes["past"], sizes["latent"], device=device, dtype=dtype))

    def answer(self, wrapper: Any, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return decoded(wrapper, inputs["hidden"], inputs["history"])

    def wanted(self, config: GraphConfig, device: torch.device) -> bool:
        """The model reads the variable MING_CFM_CUDAGRAPH, and none of vLLM's switches."""
        return config.enabled is not False

    def captured(self, adapter: GraphAdapter) -> tuple[Any, str]:
        """The solver without host reads, which graphs run and eager calls do not."""
        from vllm_omni.model_executor.models.common.ming.cfm_cudagraph import CFMSampler

        return CFMSampler, "forward"

    def captured_sizes(self, adapter: GraphAdapter, arguments: tuple[Any, ...]) -> dict[str, int]:
        return {"batch": arguments[1].shape[0]}
