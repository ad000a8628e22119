"""MOSS-TTS's streaming wrapper that vllm-omni 0.30.0 ships, unmodified: `CUDAGraphStreamingDecoderWrapper`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from conformance.registry import spec_of
from conformance.wrapped import WrapperSpec
from runner import GraphAdapter, GraphConfig

MOSS = spec_of("moss_tts_streaming")


class MossStreamingWrapper(WrapperSpec):
    """MOSS-TTS's streaming decoder behind vllm-omni's own graphs: rows padded, state in slots, exact frames."""

    name = "moss_tts_streaming@vllm_omni"
    adapter = MOSS.adapter
    buckets = tuple({"batch": rows, "frames": frames} for rows in (1, 2, 4) for frames in (1, 5))
    sample_rate = MOSS.sample_rate
    hop = MOSS.hop
    slots_input = MOSS.slots_input
    capabilities = MOSS.capabilities
    trace = MOSS.trace
    serving_buckets = MOSS.serving_buckets
    min_hit_rate = MOSS.min_hit_rate
    requires = MOSS.requires
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> GraphAdapter:
        built = MOSS.build(device, checkpoint)
        self.sample_rate, self.hop = MOSS.sample_rate, MOSS.hop
        return built

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        return MOSS.make_inputs(adapter, sizes, generator)

    def state_tensors(self, adapter: GraphAdapter) -> Mapping[str, torch.Tensor]:
        return MOSS.state_tensors(adapter)

    def reset_slots(self, adapter: GraphAdapter, slots: torch.Tensor) -> None:
        MOSS.reset_slots(adapter, slots)

    def make_wrapper(self, adapter: GraphAdapter, device: torch.device) -> Any:
        """Graphs alone, without vLLM's compilation, which a mode of NONE leaves out."""
        from vllm.config import CompilationConfig, CompilationMode
        from vllm_omni.model_executor.models.moss_tts.cuda_graph_streaming_decoder_wrapper import (
            CUDAGraphStreamingDecoderWrapper,
        )

        return CUDAGraphStreamingDecoderWrapper(
            self.module(adapter),
            state_capacity=adapter.streams,  # type: ignore[attr-defined]
            batch_sizes=sorted({bucket["batch"] for bucket in self.buckets}),
            frame_sizes=sorted({bucket["frames"] for bucket in self.buckets}),
            num_quantizers=adapter.sizes["n_vq"],
            vllm_config=SimpleNamespace(compilation_config=CompilationConfig(mode=CompilationMode.NONE)),
        )

    def warm(self, wrapper: Any, device: torch.device) -> None:
        wrapper.warmup(device)

    def answer(self, wrapper: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """As the model's own step: what the graph gave, copied at once, or the codec's batch where there was none."""
        codes, slots = inputs["codes"].transpose(0, 1), inputs["slots"]
        given = wrapper.decode(codes, slots)
        if given is not None:
            audio, _, rows = given
            return audio[:rows].clone()
        lengths = torch.full((slots.shape[0],), codes.shape[-1], dtype=torch.long, device=codes.device)
        valid = torch.ones(slots.shape[0], dtype=torch.bool, device=codes.device)
        eager: torch.Tensor = wrapper.codec.decode_streaming_batch(codes, lengths, slots, valid).audio
        return eager

    def wanted(self, config: GraphConfig, device: torch.device) -> bool:
        """`MossTTSCodecDecoder` reads `enforce_eager` alone."""
        return not config.enforce_eager and config.enabled is not False

    def captured(self, adapter: GraphAdapter) -> tuple[Any, str]:
        return self.module(adapter), "decode_streaming_tensors"

    def captured_sizes(self, adapter: GraphAdapter, arguments: tuple[Any, ...]) -> dict[str, int]:
        _, rows, frames = arguments[0].shape
        return {"batch": rows, "frames": frames}
