"""How the kit builds, feeds and judges the streaming decoder of the MOSS-TTS codec of the installed vllm-omni."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.spec import AdapterSpec, Requirement
from conformance.traces import load_trace
from runner import GraphAdapter

from .adapter import MossTTSStreamingAdapter

VLLM_OMNI = Requirement("vllm_omni", "uv pip install 'audiograph[vllm]'")
HOP = 8
STREAMS = 9  # more than any check or trace puts into one batch
ROWS = 8  # of the largest bucket that is captured, production's included


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


def tiny_config() -> Any:
    """A `MossAudioTokenizerConfig` with every kind of stage of the released model: 8 samples a frame, 4 quantizers.

    Attention looks back over 0.06 s, six frames, so that a ring cache wraps within a call or two.
    """
    from vllm_omni.model_executor.models.moss_tts.audio_tokenizer import MossAudioTokenizerConfig

    return MossAudioTokenizerConfig(
        sampling_rate=800,
        downsample_rate=HOP,
        causal_transformer_context_duration=0.06,
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


def tiny_model() -> Any:
    """The real module, small, with weights that make its output loud: default ones give 1e-2 and hide faults."""
    from vllm_omni.model_executor.models.moss_tts.audio_tokenizer import MossAudioTokenizerModel

    model = MossAudioTokenizerModel(tiny_config()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.3)
    return model


class MossTTSStreamingSpec(AdapterSpec):
    """MOSS-TTS codec decoder, streaming: a state a stream, in slots."""

    name = "moss_tts_streaming"
    adapter = MossTTSStreamingAdapter
    buckets = (
        {"batch": 1, "frames": 1},
        {"batch": 1, "frames": 5},
        {"batch": 2, "frames": 5},
        {"batch": 4, "frames": 1},
        {"batch": 4, "frames": 5},
    )
    sample_rate = 800
    hop = HOP
    slots_input = "slots"
    capabilities = Capabilities(
        variable_length=unsupported("rows of a call have as many frames as one another: padding would be remembered"),
        streaming=supported(),
        randomness=unsupported("the decoder draws nothing"),
        state=supported(),
        low_precision=unsupported("the quantizer computes in float32 whatever the weights are"),
        autocast=unsupported("the ring caches have the weights' dtype and refuse keys in another"),
        zero_length=unsupported("a chunk has at least one frame"),
        threads=unsupported("one pool of states, which calls move on in turn"),
    )
    trace = load_trace(__file__)
    serving_buckets = tuple({"batch": rows, "frames": frames} for rows in (1, 2, 4, 8) for frames in (1, 15))
    min_hit_rate = 0.9  # all but each request's last chunk
    requires = (VLLM_OMNI,)
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> MossTTSStreamingAdapter:
        """All slots are in the middle of a stream, each somewhere else: states drawn, as no call has run yet."""
        if checkpoint is None:
            model = tiny_model().to(device)
        else:
            from vllm_omni.model_executor.models.moss_tts.audio_tokenizer import MossAudioTokenizerModel

            model = MossAudioTokenizerModel.from_pretrained(checkpoint).eval().to(device)
            self.sample_rate, self.hop = model.sampling_rate, model.downsample_rate
        adapter = MossTTSStreamingAdapter(model, STREAMS, ROWS)
        for name, tensor in self.state_tensors(adapter).items():
            if name == "offsets":
                tensor.copy_(3 * torch.arange(STREAMS)[:, None])
            else:
                tensor.copy_(torch.randn(tensor.shape))
        return adapter

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        assert isinstance(adapter, MossTTSStreamingAdapter)
        shape = (sizes["batch"], adapter.sizes["n_vq"], sizes["frames"])
        codes = torch.randint(0, adapter.module.config.codebook_size, shape, generator=generator)
        return {"codes": codes, "slots": torch.randperm(STREAMS, generator=generator)[: sizes["batch"]]}

    def state_tensors(self, adapter: GraphAdapter) -> Mapping[str, torch.Tensor]:
        """The live slots of each attention's ring cache, `[slots, 2, heads, context, width]`, and of all offsets."""
        assert isinstance(adapter, MossTTSStreamingAdapter)
        model = adapter.module
        state = {"offsets": model._decoder_slot_offsets.t()}  # `[slots, attentions]`
        for number, attention in enumerate(model._decoder_streaming_attentions):
            state[f"ring{number}"] = attention._streaming_state.kv_cache.cache.transpose(0, 1)
        return {name: tensor[:STREAMS] for name, tensor in state.items()}

    def reset_slots(self, adapter: GraphAdapter, slots: torch.Tensor) -> None:
        assert isinstance(adapter, MossTTSStreamingAdapter)
        adapter.reset(slots)
