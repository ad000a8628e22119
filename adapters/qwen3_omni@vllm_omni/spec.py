"""The Code2Wav wrapper of Qwen3-Omni that vllm-omni 0.30.0 ships, unmodified: Qwen3-TTS's `CUDAGraphDecoderWrapper`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from conformance.capabilities import unsupported
from conformance.registry import spec_of
from runner import GraphAdapter

OMNI = spec_of("qwen3_omni")
Qwen3Wrapper: Any = type(spec_of("qwen3_tts@vllm_omni"))


class Qwen3OmniWrapper(Qwen3Wrapper):
    """Qwen3-Omni's Code2Wav behind vllm-omni's own graphs: rows and frames padded to a bucket."""

    name = "qwen3_omni@vllm_omni"
    adapter = OMNI.adapter
    buckets = OMNI.buckets
    sample_rate = OMNI.sample_rate
    hop = OMNI.hop
    left_context = OMNI.left_context
    capabilities = replace(OMNI.capabilities, threads=unsupported("a worker of vllm-omni decodes in one thread"))
    trace = OMNI.trace
    # What `enable_cudagraph` picks for chunks of 25 frames after 25 of left context, at one row.
    serving_buckets = tuple({"batch": 1, "frames": size} for size in (2, 4, 8, 16, 25, 32, 50, 64, 128, 256, 325))
    requires = OMNI.requires

    def build(self, device: torch.device, checkpoint: Path | None) -> GraphAdapter:
        built = OMNI.build(device, checkpoint)
        self.hop, self.left_context = OMNI.hop, OMNI.left_context
        return built

    def make_inputs(self, *arguments: Any) -> dict[str, torch.Tensor]:
        return OMNI.make_inputs(*arguments)
