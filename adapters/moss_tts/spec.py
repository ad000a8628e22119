"""How the kit builds, feeds and judges the MOSS-TTS codec of the installed vllm-omni."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.spec import AdapterSpec, Requirement
from conformance.traces import Trace
from runner import GraphAdapter

from .adapter import MossTTSAdapter

VLLM_OMNI = Requirement("vllm_omni", "uv pip install 'audiograph[vllm]'")
HOP = 8


def _transformer(width_in: int, width_out: int) -> dict[str, Any]:
    """One small causal transformer stage. The layer scale lets attention be heard; the released 0.01 would drown it."""
    return {
        "module_type": "Transformer",
        "input_dimension": width_in,
        "output_dimension": width_out,
        "d_model": 32,
        "num_heads": 2,
        "num_layers": 1,
        "dim_feedforward": 64,
        "causal": True,
        "norm": "layer_norm",
        "positional_embedding": "rope",
        "max_period": 10000,
        "gating": "none",
        "layer_scale": 0.5,
        "conv_layout": True,
    }


def tiny_config(context: float) -> Any:
    """A `MossAudioTokenizerConfig` with every kind of stage of the released model: 8 samples a frame, 4 quantizers.

    Attention looks back over `context` seconds.
    """
    from vllm_omni.model_executor.models.moss_tts.audio_tokenizer import MossAudioTokenizerConfig

    return MossAudioTokenizerConfig(
        sampling_rate=800,
        downsample_rate=HOP,
        causal_transformer_context_duration=context,
        encoder_kwargs=[
            {"module_type": "PatchedPretransform", "patch_size": 4},
            _transformer(4, 16),
            {"module_type": "PatchedPretransform", "patch_size": 2},
            _transformer(32, 24),
        ],
        decoder_kwargs=[
            _transformer(24, 32),
            {"module_type": "PatchedPretransform", "patch_size": 2},
            _transformer(16, 4),
            {"module_type": "PatchedPretransform", "patch_size": 4},
        ],
        quantizer_kwargs={
            "input_dim": 24,
            "rvq_dim": 16,
            "output_dim": 24,
            "num_quantizers": 4,
            "codebook_size": 32,
            "codebook_dim": 8,
            "quantizer_type": "rlfq",
        },
    )


def tiny_model(context: float) -> Any:
    """The real module, small, with weights that make its output loud: default ones give 1e-2 and hide faults."""
    from vllm_omni.model_executor.models.moss_tts.audio_tokenizer import MossAudioTokenizerModel

    model = MossAudioTokenizerModel(tiny_config(context)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.3)
    return model


class MossTTSSpec(AdapterSpec):
    """MOSS-TTS codec decoder, batched, each row with its own length."""

    name = "moss_tts"
    adapter = MossTTSAdapter
    buckets = (
        {"batch": 1, "frames": 4},
        {"batch": 1, "frames": 8},
        {"batch": 1, "frames": 16},
        {"batch": 2, "frames": 8},
        {"batch": 4, "frames": 8},
        {"batch": 4, "frames": 16},
    )
    sample_rate = 800
    hop = HOP
    capabilities = Capabilities(
        variable_length=supported(),
        streaming=unsupported("attention looks back over 10 s: a chunk with less left context is another signal"),
        randomness=unsupported("the decoder draws nothing"),
        state=unsupported("the decoder keeps nothing between calls"),
        low_precision=unsupported("the quantizer computes in float32 whatever the weights are"),
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
    requires = (VLLM_OMNI,)
    loads_checkpoints = True

    def codec(self, device: torch.device, checkpoint: Path | None, context: float = 10.0) -> Any:
        """The codec alone, small ones looking back over `context` seconds. Sets `sample_rate` and `hop` to its own."""
        if checkpoint is None:
            return tiny_model(context).to(device)
        from vllm_omni.model_executor.models.moss_tts.audio_tokenizer import MossAudioTokenizerModel

        model = MossAudioTokenizerModel.from_pretrained(checkpoint).eval().to(device)
        self.sample_rate, self.hop = model.sampling_rate, model.downsample_rate
        return model

    def build(self, device: torch.device, checkpoint: Path | None) -> MossTTSAdapter:
        return MossTTSAdapter(self.codec(device, checkpoint))

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        assert isinstance(adapter, MossTTSAdapter)
        shape = (sizes["batch"], adapter.sizes["n_vq"], sizes["frames"])
        codes = torch.randint(0, adapter.module.config.codebook_size, shape, generator=generator)
        return {"codes": codes, "lengths": torch.full((sizes["batch"],), sizes["frames"])}
