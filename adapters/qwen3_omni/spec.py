"""How the kit builds, feeds and judges Qwen3-Omni's Code2Wav of the installed vllm-omni."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.spec import AdapterSpec, Requirement
from conformance.traces import load_trace
from runner import GraphAdapter

from .adapter import TOTAL_UPSAMPLE, Qwen3OmniAdapter

VLLM_OMNI = Requirement("vllm_omni", "uv pip install 'audiograph[vllm]'")


def tiny_config() -> Any:
    """A `Qwen3OmniMoeCode2WavConfig`, small and with the released rates: 8 · 5 · 4 · 3 · 2 · 2 samples a frame.

    The layer scale lets attention be heard; the released 0.01 would drown it.
    """
    from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeCode2WavConfig

    return Qwen3OmniMoeCode2WavConfig(
        codebook_size=32,
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
        decoder_dim=16,
    )


def code2wav(config: Any) -> Any:
    """The real module with the package's own initialisation. It reads nothing else of a `VllmConfig`."""
    from vllm_omni.model_executor.models.qwen3_omni.qwen3_omni_code2wav import Qwen3OmniMoeCode2Wav

    config._attn_implementation = "sdpa"
    return Qwen3OmniMoeCode2Wav(vllm_config=SimpleNamespace(model_config=SimpleNamespace(hf_config=config))).eval()


def tiny_code2wav() -> Any:
    """Small, with weights that make it loud: its own initialisation gives samples of 1e-7."""
    module = code2wav(tiny_config())
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.startswith("code_embedding"):
                parameter.normal_(0, 1.0)
            elif parameter.ndim >= 2:
                parameter.normal_(0, 0.85 * parameter[0].numel() ** -0.5)
            elif name.endswith("gamma"):  # the ConvNeXt blocks' 1e-6 would drown them
                parameter.fill_(0.5)
        head = module.decoder[-1].conv
        head.weight.mul_(0.01)  # within the ±1 that the module clamps to, to be measured
        head.weight.mul_(0.25 / module(torch.arange(64).view(1, 4, 16) % 32).std())
    return module


def receptive_field(config: Any) -> int:
    """How many frames before its own a frame's samples depend on.

    Layers count in units of frames: each attention its window, ConvNeXt blocks and the convolutions of 7 taps 6 steps
    of their own rate, each block's transposed convolution one of the rate before, and its three dilations
    6 · (1 + 3 + 9).
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
    return int(config.num_hidden_layers * (config.sliding_window - 1) + math.ceil(steps))


def weights_of(checkpoint: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """The `code2wav.` weights of a checkpoint's folder, from the files alone that hold some."""
    from vllm.model_executor.model_loader.weight_utils import safetensors_weights_iterator

    files = {path.name for path in checkpoint.glob("*.safetensors")}
    index = checkpoint / "model.safetensors.index.json"
    if index.exists():
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        files = {file for name, file in places.items() if name.startswith("code2wav.")}
    found = safetensors_weights_iterator([str(checkpoint / file) for file in sorted(files)], use_tqdm_on_load=False)
    return ((name, tensor) for name, tensor in found if name.startswith("code2wav."))


class Qwen3OmniSpec(AdapterSpec):
    """Qwen3-Omni Code2Wav: 1920·T − 555 samples, chunks with left context."""

    name = "qwen3_omni"
    adapter = Qwen3OmniAdapter
    buckets = (
        {"batch": 1, "frames": 4},
        {"batch": 1, "frames": 8},
        {"batch": 1, "frames": 18},
        {"batch": 3, "frames": 6},
    )
    sample_rate = 24_000
    hop = TOTAL_UPSAMPLE
    left_context = 14
    capabilities = Capabilities(
        variable_length=supported(),
        streaming=supported(),
        randomness=unsupported("the module draws nothing"),
        state=unsupported("the module keeps nothing between calls"),
        low_precision=supported(),
        autocast=supported(),
        zero_length=supported(),
        threads=supported(),
    )
    trace = load_trace(__file__)
    serving_buckets = tuple({"batch": rows, "frames": frames} for rows in (1, 4) for frames in (4, 29, 50))
    requires = (VLLM_OMNI,)
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> Qwen3OmniAdapter:
        """`checkpoint` is the folder of a released model: its configuration and all of its weights."""
        if checkpoint is None:
            module = tiny_code2wav()
        else:
            from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeConfig

            module = code2wav(Qwen3OmniMoeConfig.from_pretrained(checkpoint).code2wav_config)
            module.load_weights(weights_of(checkpoint))
            self.hop, self.left_context = int(module.total_upsample), receptive_field(module.config)
        module.to(device).precompute_snake_caches()
        return Qwen3OmniAdapter(module)

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        assert isinstance(adapter, Qwen3OmniAdapter)
        shape = (sizes["batch"], adapter.sizes["n_vq"], sizes["frames"])
        return {"codes": torch.randint(0, adapter.module.config.codebook_size, shape, generator=generator)}
