"""Voxtral-TTS's wrapper that vllm-omni 0.30.0 ships, unmodified: `CUDAGraphAcousticTransformerWrapper`."""

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
from runner import PADDED, AxisMode, GraphAdapter, GraphConfig, InputSpec, OutputSpec

VOXTRAL = spec_of("voxtral_tts")


class VoxtralLogits(GraphAdapter):
    """`compute_mm_logits` of the model: hidden states of a batch to the end-of-audio marks and the next codes.

    The module draws its own noise, so that replays are held to what eager draws from the same seed.
    """

    inputs = (
        InputSpec("llm_hidden", torch.float32, ("batch", "dim")),
        InputSpec("cfg_alpha", torch.float32, ("batch",), pad=1.0),
    )
    outputs = (OutputSpec("fake_eos", ("batch",)), OutputSpec("codes", ("batch", 1 + 36)))
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED}

    def __init__(self, module: Any) -> None:
        from vllm_omni.model_executor.models.voxtral_tts import voxtral_tts_audio_generation as package

        self.module = module
        dtype = module.llm_projection.weight.dtype
        self.sizes = {"dim": module.acoustic_transformer_args.input_dim}
        self.inputs = tuple(InputSpec(s.name, dtype, s.axes, s.pad) for s in type(self).inputs)
        codes = 1 + module.model_args.n_acoustic_codebook
        self.outputs = (OutputSpec("fake_eos", ("batch",)), OutputSpec("codes", ("batch", codes)))
        # The model around the transformer, whose other parts this method of its class never reads.
        end = package.AudioSpecialTokens.id(package.AudioSpecialTokens.end_audio)
        self.model = SimpleNamespace(acoustic_transformer=module, _fake_eos_consts={}, _end_audio_token_id=end)
        model_class = package.VoxtralTTSAudioGenerationForConditionalGeneration
        self.model.compute_mm_logits = MethodType(model_class.compute_mm_logits, self.model)

    def forward(self, llm_hidden: torch.Tensor, cfg_alpha: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`[batch, dim]` and `[batch]` to `[batch]` and codes `[batch, 1 + n_acoustic]`."""
        return joined(*self.model.compute_mm_logits(llm_hidden, cfg_alpha=cfg_alpha))


def joined(fake_eos: torch.Tensor, tokens: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The answer's list of one row a request as one tensor."""
    return fake_eos, torch.cat(tokens["codes"]["audio"]).squeeze(1)


class VoxtralWrapper(WrapperSpec):
    """Voxtral-TTS's acoustic transformer behind vllm-omni's own graphs: rows padded to a bucket."""

    name = "voxtral_tts@vllm_omni"
    adapter = VoxtralLogits
    buckets = VOXTRAL.buckets
    sample_rate = VOXTRAL.sample_rate
    hop = VOXTRAL.hop
    capabilities = replace(
        VOXTRAL.capabilities,
        randomness=supported(),
        threads=unsupported("a worker of vllm-omni decodes in one thread"),
    )
    trace = VOXTRAL.trace
    serving_buckets = VOXTRAL.serving_buckets
    requires = VOXTRAL.requires
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> VoxtralLogits:
        """In bfloat16, as it is served: there the marks that eager and graph give have one dtype."""
        built = VoxtralLogits(VOXTRAL.module(VOXTRAL.build(device, checkpoint)).to(torch.bfloat16))
        self.sample_rate, self.hop = VOXTRAL.sample_rate, VOXTRAL.hop
        return built

    def cast(self, adapter: GraphAdapter, dtype: torch.dtype) -> VoxtralLogits:
        return VoxtralLogits(self.module(adapter).to(dtype))

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        made = VOXTRAL.make_inputs(VOXTRAL.adapter(self.module(adapter)), sizes, generator)
        return {name: made[name] for name in ("llm_hidden", "cfg_alpha")}

    def make_wrapper(self, adapter: GraphAdapter, device: torch.device) -> Any:
        assert isinstance(adapter, VoxtralLogits)
        return _wrapper_class()(adapter.model, capture_sizes=[bucket["batch"] for bucket in self.buckets])

    def warm(self, wrapper: Any, device: torch.device) -> None:
        transformer = wrapper.acoustic_transformer
        dtype, dim = transformer.llm_projection.weight.dtype, transformer.acoustic_transformer_args.input_dim
        wrapper._warmup_and_capture(device, dtype, dim)

    def answer(self, wrapper: Any, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return joined(*wrapper(inputs["llm_hidden"], cfg_alpha=inputs["cfg_alpha"]))

    def wanted(self, config: GraphConfig, device: torch.device) -> bool:
        """The model reads `enforce_eager` alone."""
        return not config.enforce_eager and config.enabled is not False

    def captured(self, adapter: GraphAdapter) -> tuple[Any, str]:
        """The wrapper captures a program of its own, not the transformer's forward."""
        return _wrapper_class(), "_forward_cudagraph_compatible"

    def captured_sizes(self, adapter: GraphAdapter, arguments: tuple[Any, ...]) -> dict[str, int]:
        return {"batch": arguments[1].shape[0]}


def _wrapper_class() -> Any:
    from vllm_omni.model_executor.models.voxtral_tts import cuda_graph_acoustic_transformer_wrapper as wrapper

    return wrapper.CUDAGraphAcousticTransformerWrapper
