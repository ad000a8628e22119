"""The decoder wrapper of Qwen3-TTS that vllm-omni 0.30.0 ships, unmodified: `CUDAGraphDecoderWrapper`.

The one of `cuda_graph_decoder_wrapper`, stateless and padded. In 0.30.0 Qwen3-TTS itself has moved on to a segmented
wrapper with state; Qwen3-Omni still serves with this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from conformance.capabilities import unsupported
from conformance.registry import spec_of
from conformance.wrapped import WrapperSpec
from runner import GraphAdapter, GraphConfig

QWEN = spec_of("qwen3_tts")


class Qwen3Wrapper(WrapperSpec):
    """Qwen3-TTS's 12 Hz decoder behind vllm-omni's own graphs: rows and frames padded to a bucket."""

    name = "qwen3_tts@vllm_omni"
    adapter = QWEN.adapter
    buckets = QWEN.buckets
    sample_rate = QWEN.sample_rate
    hop = QWEN.hop
    left_context = QWEN.left_context
    capabilities = replace(QWEN.capabilities, threads=unsupported("a worker of vllm-omni decodes in one thread"))
    requires = QWEN.requires
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> GraphAdapter:
        built = QWEN.build(device, checkpoint)
        self.sample_rate, self.hop, self.left_context = QWEN.sample_rate, QWEN.hop, QWEN.left_context
        return built

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        return QWEN.make_inputs(adapter, sizes, generator)

    def make_wrapper(self, adapter: GraphAdapter, device: torch.device) -> Any:
        from vllm_omni.model_executor.models.qwen3_tts.cuda_graph_decoder_wrapper import CUDAGraphDecoderWrapper

        shapes = [(bucket["batch"], bucket["frames"]) for bucket in self.buckets]
        return CUDAGraphDecoderWrapper(
            self.module(adapter), capture_sizes=[], extra_capture_shapes=shapes, num_quantizers=adapter.sizes["n_vq"]
        )

    def warm(self, wrapper: Any, device: torch.device) -> None:
        wrapper.warmup(device)

    def answer(self, wrapper: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return wrapper.decode(inputs["codes"])

    def wanted(self, config: GraphConfig, device: torch.device) -> bool:
        """The model reads `enforce_eager`; the wrapper has a switch that nobody passes on."""
        return not config.enforce_eager and config.enabled is not False

    def captured(self, adapter: GraphAdapter) -> tuple[Any, str]:
        return self.module(adapter), "forward"
