"""How the kit builds, feeds and judges the Voxtral-TTS acoustic transformer of the installed vllm-omni."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.spec import AdapterSpec, Requirement
from conformance.traces import load_trace
from runner import GraphAdapter

from .adapter import VoxtralTTSAdapter

VLLM_OMNI = Requirement("vllm_omni", "uv pip install 'audiograph[vllm]'")
N_ACOUSTIC = 7


def tiny_model() -> Any:
    """The real module, small: one semantic and 7 acoustic codes a frame, 3 steps of integration."""
    from vllm_omni.model_executor.models.voxtral_tts.voxtral_tts_audio_generation import FlowMatchingAudioTransformer

    transformer = {"input_dim": 32, "dim": 32, "n_layers": 2, "head_dim": 16, "hidden_dim": 64, "n_heads": 2}
    codebooks = {"semantic_codebook_size": 64, "acoustic_codebook_size": 21, "n_acoustic_codebook": N_ACOUSTIC}
    arguments = {**codebooks, "acoustic_transformer_args": {**transformer, "n_kv_heads": 1, "n_decoding_steps": 3}}
    model = FlowMatchingAudioTransformer(arguments).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.15)
    return model


def load_model(folder: Path) -> tuple[Any, float]:
    """The acoustic transformer of a checkpoint in Mistral's layout, in float32, and its frames a second."""
    from safetensors import safe_open
    from vllm_omni.model_executor.models.voxtral_tts.voxtral_tts_audio_generation import FlowMatchingAudioTransformer
    from vllm_omni.transformers_utils.parsers.voxtral_tts import VoxtralTTSConfigParser

    _, config = VoxtralTTSConfigParser().parse(folder, trust_remote_code=False)
    arguments = config.audio_config["audio_model_args"]
    model, prefix = FlowMatchingAudioTransformer(arguments).eval(), "acoustic_transformer."
    for path in sorted(folder.glob("consolidated*.safetensors")):
        with safe_open(path, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - it is no mapping
                if name.startswith(prefix):
                    model.load_weight((name.removeprefix(prefix), tensors.get_tensor(name)))
    return model, arguments["audio_encoding_args"]["frame_rate"]


class VoxtralTTSSpec(AdapterSpec):
    """Voxtral-TTS acoustic transformer: one frame of codes for each row of a batch, from noise that is given."""

    name = "voxtral_tts"
    adapter = VoxtralTTSAdapter
    buckets = ({"batch": 1}, {"batch": 2}, {"batch": 4}, {"batch": 8})
    sample_rate = 100  # codes a second: 12.5 frames of 8
    hop = 1 + N_ACOUSTIC
    capabilities = Capabilities(
        variable_length=unsupported("a call is one frame of each request"),
        streaming=unsupported("a call is one frame of each request"),
        randomness=unsupported("the noise is an input, drawn by the caller"),
        state=unsupported("the transformer keeps nothing between calls"),
        low_precision=supported(),
        autocast=supported(),
        zero_length=unsupported("a call has at least one request"),
        threads=supported(),
    )
    trace = load_trace(__file__)
    serving_buckets = ({"batch": 1}, {"batch": 2}, {"batch": 4}, {"batch": 8}, {"batch": 16}, {"batch": 32})
    requires = (VLLM_OMNI,)
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> VoxtralTTSAdapter:
        if checkpoint is None:
            return VoxtralTTSAdapter(tiny_model().to(device))
        model, frame_rate = load_model(checkpoint)
        self.hop = 1 + model.model_args.n_acoustic_codebook
        self.sample_rate = round(frame_rate * self.hop)
        return VoxtralTTSAdapter(model.to(device))

    def cast(self, adapter: GraphAdapter, dtype: torch.dtype) -> VoxtralTTSAdapter:
        return VoxtralTTSAdapter(self.module(adapter).to(dtype))

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        assert isinstance(adapter, VoxtralTTSAdapter)
        rows, dim = sizes["batch"], adapter.sizes["dim"]
        hidden = torch.randn(rows, dim, generator=generator).to(adapter.dtype)
        alpha = torch.empty(rows).uniform_(1.0, 2.0, generator=generator).to(adapter.dtype)
        return {
            "llm_hidden": hidden,
            "cfg_alpha": alpha,
            "noise": adapter.draw_noise(rows, torch.device("cpu"), generator),
        }
