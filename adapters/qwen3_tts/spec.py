"""How the kit builds, feeds and judges the Qwen3-TTS 12 Hz decoder of the installed vllm-omni."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.spec import AdapterSpec, Requirement
from conformance.traces import load_trace
from runner import GraphAdapter

from .adapter import Qwen3TTSAdapter

VLLM_OMNI = Requirement("vllm_omni", "uv pip install 'audiograph[vllm]'")
HOP = 160  # samples a frame of the small build: 2 · 2 · 8 · 5


def tiny_config() -> Any:
    """A `Qwen3TTSTokenizerV2DecoderConfig` with every kind of layer of the released one: 160 samples a frame.

    The layer scale lets attention be heard; the released 0.01 would drown it.
    """
    from vllm_omni.model_executor.models.qwen3_tts.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import (
        Qwen3TTSTokenizerV2DecoderConfig,
    )

    return Qwen3TTSTokenizerV2DecoderConfig(
        codebook_size=32,
        codebook_dim=32,
        latent_dim=32,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        sliding_window=3,
        max_position_embeddings=512,
        layer_scale_initial_scale=0.5,
        num_quantizers=4,
        upsample_rates=(8, 5),
        upsampling_ratios=(2, 2),
        decoder_dim=32,
    )


def tiny_decoder() -> Any:
    """The real module, small, with weights that make it loud: its own initialisation leaves the codebooks at zero."""
    from vllm_omni.model_executor.models.qwen3_tts.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2 import (
        Qwen3TTSTokenizerV2Decoder,
    )

    decoder = Qwen3TTSTokenizerV2Decoder._from_config(tiny_config(), attn_implementation="sdpa").eval()
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            if name.endswith("embedding_sum"):  # the codebooks
                parameter.normal_(0, 1.0)
            elif parameter.ndim >= 2:
                parameter.normal_(0, parameter[0].numel() ** -0.5)
            elif name.endswith("gamma"):  # the ConvNeXt blocks' 1e-6 would drown them
                parameter.fill_(0.5)
        head = decoder.decoder[-1].conv
        head.weight.mul_(0.01)  # within the ±1 that the decoder clamps to, to be measured
        head.weight.mul_(0.25 / decoder(torch.arange(64).view(1, 4, 16) % 32).std())
    return decoder


def load_code2wav(checkpoint: Path) -> Any:
    """The package's Code2Wav stage on the host, in float32 and without graphs, its weights those of `checkpoint`."""
    from vllm.config import LoadConfig
    from vllm_omni.model_executor.models.qwen3_tts.qwen3_tts_code2wav import Qwen3TTSCode2Wav

    # What the stage reads of a VllmConfig, whose own constructor needs a platform that a machine without a GPU lacks.
    model = SimpleNamespace(model=str(checkpoint), revision=None, dtype=torch.float32, enforce_eager=True)
    device = SimpleNamespace(device=torch.device("cpu"))
    code2wav = Qwen3TTSCode2Wav(
        vllm_config=SimpleNamespace(model_config=model, load_config=LoadConfig(), device_config=device)
    )
    code2wav.load_weights(())
    return code2wav


def receptive_field(config: Any) -> int:
    """How many frames before its own a frame's samples depend on.

    Layers count in units of frames: the first convolution 2, each attention its window, ConvNeXt blocks and the
    convolutions of 7 taps 6 steps of their own rate, each block's transposed convolution one of the rate before, and
    its three dilations 6 · (1 + 3 + 9).
    """
    rate, steps = 1, 0.0
    for ratio in config.upsampling_ratios:
        rate *= ratio
        steps += 6 / rate
    steps += 6 / rate
    for factor in config.upsample_rates:
        steps += 1 / rate
        rate *= factor
        steps += 78 / rate
    steps += 6 / rate
    return 2 + config.num_hidden_layers * (config.sliding_window - 1) + math.ceil(steps)


class Qwen3TTSSpec(AdapterSpec):
    """Qwen3-TTS 12 Hz tokenizer decoder, stateless: whole requests and chunks with left context."""

    name = "qwen3_tts"
    adapter = Qwen3TTSAdapter
    buckets = (
        {"batch": 1, "frames": 4},
        {"batch": 1, "frames": 8},
        {"batch": 1, "frames": 20},
        {"batch": 4, "frames": 8},
    )
    sample_rate = 2000  # 12.5 frames a second
    hop = HOP
    left_context = 16
    capabilities = Capabilities(
        variable_length=supported(),
        streaming=supported(),
        randomness=unsupported("the decoder draws nothing"),
        state=unsupported("decoded without `caches`, it keeps nothing between calls"),
        low_precision=supported(),
        autocast=supported(),
        zero_length=supported(),
        threads=supported(),
    )
    trace = load_trace(__file__)
    serving_buckets = tuple({"batch": rows, "frames": frames} for rows in (1, 2, 4) for frames in (150, 325))
    requires = (VLLM_OMNI,)
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> Qwen3TTSAdapter:
        """`checkpoint` is the folder of a released model, which holds `speech_tokenizer`.

        Its loader is that of the package's own stage. `Qwen3TTSTokenizerV2Model.from_pretrained` is no second door:
        with transformers 5 it leaves the decoder's rotary frequencies uninitialised.
        """
        if checkpoint is None:
            decoder = tiny_decoder()
        else:
            code2wav = load_code2wav(checkpoint)
            decoder = code2wav.decoder
            self.sample_rate, self.hop = code2wav._output_sample_rate, int(decoder.total_upsample)
            self.left_context = receptive_field(decoder.config)
        decoder.to(device).precompute_snake_caches()  # as the package does once weights are loaded
        return Qwen3TTSAdapter(decoder)

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        assert isinstance(adapter, Qwen3TTSAdapter)
        shape = (sizes["batch"], adapter.sizes["n_vq"], sizes["frames"])
        return {"codes": torch.randint(0, adapter.module.config.codebook_size, shape, generator=generator)}
