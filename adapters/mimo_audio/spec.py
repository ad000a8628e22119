"""How the kit builds, feeds and judges the MiMo-Audio tokenizer's decoder of the installed vllm-omni."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.spec import AdapterSpec, Requirement
from conformance.traces import load_trace
from runner import GraphAdapter

from .adapter import MiMoAudioAdapter

VLLM_OMNI = Requirement("vllm_omni", "uv pip install 'audiograph[vllm]'")
N_VQ, CODEBOOK_SIZE = 12, 32  # more quantizers than the talker's 8 rows, as in the released tokenizer


def tiny_model() -> Any:
    """The real module, small: 64 samples a frame, of which the released one has 960.

    Matrices are drawn loud, and the codebooks too, which training fills: zeros decode every code to one vector.
    """
    from vllm_omni.model_executor.models.mimo_audio.config_mimo_audio import MiMoAudioTokenizerConfig
    from vllm_omni.model_executor.models.mimo_audio.modeling_audio_tokenizer import MiMoAudioTokenizer

    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "vocoder_attention_heads": 2}
    layers = {"encoder_layers": 1, "decoder_layers": 2, "vocoder_num_layers": 2, "encoder_skip_layer_id": None}
    widths = {"d_model": 32, "vocoder_dim": 32, "n_mels": 16, "num_quantizers": N_VQ}
    config = MiMoAudioTokenizerConfig(
        **heads,
        **layers,
        **widths,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        vocoder_intermediate_dim=64,
        codebook_size=[CODEBOOK_SIZE] * N_VQ,
        avg_pooler=2,
        stride_size=2,
        decoder_stride_size=2,
        decoder_kernel_size=3,
        vocoder_attn_window_size=[6, 3],
        sampling_rate=1600,
        hop_length=16,
        nfft=64,
        window_size=64,
        max_audio_seconds=4,
    )
    model = MiMoAudioTokenizer(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.15)
        for name, buffer in model.named_buffers():
            if name.endswith(".embed"):
                buffer.normal_(0, 0.5)
    return model


class MiMoAudioSpec(AdapterSpec):
    """MiMo-Audio tokenizer decoder, one request a call, with an exact number of frames and of code rows."""

    name = "mimo_audio"
    adapter = MiMoAudioAdapter
    buckets = (
        {"code_rows": 3, "frames": 4},
        {"code_rows": 6, "frames": 4},
        {"code_rows": 6, "frames": 9},
        {"code_rows": 6, "frames": 16},
    )
    sample_rate = 1600
    hop = 64
    capabilities = Capabilities(
        variable_length=unsupported("decode_fixed takes one request"),
        streaming=unsupported("GroupNorm hears all of a call: a chunk with left context is another signal"),
        randomness=unsupported("the decoder draws nothing"),
        state=unsupported("the decoder keeps nothing between calls"),
        low_precision=supported(),
        autocast=supported(),
        zero_length=unsupported("a request has at least one frame"),
        threads=supported(),
    )
    trace = load_trace(__file__)
    # The two chunks of a request's start, and the steady one. Last chunks have any of 30 lengths and run eagerly.
    serving_buckets = (
        {"code_rows": 8, "frames": 120},
        {"code_rows": 8, "frames": 240},
        {"code_rows": 8, "frames": 280},
    )
    min_hit_rate = 0.75
    requires = (VLLM_OMNI,)
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> MiMoAudioAdapter:
        if checkpoint is None:
            return MiMoAudioAdapter(tiny_model().to(device))
        from vllm_omni.model_executor.models.mimo_audio.modeling_audio_tokenizer import MiMoAudioTokenizer

        model = MiMoAudioTokenizer.from_pretrained(checkpoint).eval().to(device)
        config = model.config
        self.sample_rate = config.sampling_rate
        self.hop = config.avg_pooler * config.decoder_stride_size * config.hop_length
        return MiMoAudioAdapter(model)

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        assert isinstance(adapter, MiMoAudioAdapter)
        highest = adapter.module.config.codebook_size  # one size a row, the last one for all further rows
        rows = [highest[min(row, len(highest) - 1)] for row in range(sizes["code_rows"])]
        codes = [torch.randint(0, size, (sizes["frames"],), generator=generator) for size in rows]
        return {"codes": torch.stack(codes)}
