"""The BigVGAN wrapper of IndexTTS2 that vllm-omni 0.30.0 ships, unmodified: `CUDAGraphBigVGANWrapper`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from conformance.capabilities import unsupported
from conformance.registry import spec_of
from conformance.wrapped import WrapperSpec
from runner import PADDED, AxisMode, GraphAdapter, GraphConfig

BIGVGAN = spec_of("indextts2_bigvgan")
Adapter: Any = BIGVGAN.adapter


class BigVGANVocode(Adapter):
    """The vocoder alone, whose frames the wrapper pads; of more than one row it makes no use."""

    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED, "frames": PADDED}


class BigVGANWrapper(WrapperSpec):
    """IndexTTS2's BigVGAN behind vllm-omni's own graphs: one row, frames padded to a bucket."""

    name = "indextts2_bigvgan@vllm_omni"
    adapter = BigVGANVocode
    buckets = ({"batch": 1, "frames": 4}, {"batch": 1, "frames": 12}, {"batch": 1, "frames": 20})
    sample_rate = BIGVGAN.sample_rate
    hop = BIGVGAN.hop
    capabilities = replace(BIGVGAN.capabilities, threads=unsupported("a worker of vllm-omni vocodes in one thread"))
    trace = BIGVGAN.trace
    shares_module = False  # its warm-up makes the activations' tables anew and frees those that earlier graphs read
    serving_buckets = tuple({"batch": 1, "frames": size} for size in (128, 256, 384, 512))  # the wrapper's default
    requires = BIGVGAN.requires
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> Any:
        module = BIGVGAN.module(BIGVGAN.build(device, checkpoint))
        self.sample_rate, self.hop = BIGVGAN.sample_rate, BIGVGAN.hop
        return BigVGANVocode(module)

    def cast(self, adapter: GraphAdapter, dtype: torch.dtype) -> Any:
        return BigVGANVocode(self.module(adapter).to(dtype))

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        return BIGVGAN.make_inputs(adapter, sizes, generator)

    def make_wrapper(self, adapter: GraphAdapter, device: torch.device) -> Any:
        from vllm_omni.model_executor.models.indextts2.bigvgan_cuda_graph import CUDAGraphBigVGANWrapper

        return CUDAGraphBigVGANWrapper(
            self.module(adapter), capture_sizes=[bucket["frames"] for bucket in self.buckets]
        )

    def warm(self, wrapper: Any, device: torch.device) -> None:
        wrapper.warmup(device, next(wrapper.model.parameters()).dtype)

    def answer(self, wrapper: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return wrapper(inputs["mel"])

    def wanted(self, config: GraphConfig, device: torch.device) -> bool:
        """The decoder reads `s2mel_vocoder_cuda_graph` of its own configuration, and none of vLLM's switches."""
        return config.enabled is not False

    def captured(self, adapter: GraphAdapter) -> tuple[Any, str]:
        return self.module(adapter), "forward"
