"""The MOSS-TTS codec wrapper that vllm-omni 0.30.0 ships, unmodified: `MossTTSCUDAGraphCodecWrapper`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.registry import spec_of
from conformance.traces import Trace
from conformance.wrapped import WrapperSpec
from runner import PADDED, AxisMode, GraphAdapter, GraphConfig, InputSpec, Nominal, OutputSpec

MOSS = spec_of("moss_tts")


class MossDecode(GraphAdapter):
    """One request, as `MossTTSCodecDecoder` decodes it: codes to the waveform and its length in samples."""

    inputs = (InputSpec("codes", torch.long, ("n_vq", "frames")),)
    outputs = (
        OutputSpec("audio", (1, 1, "samples"), length=Nominal(MOSS.hop)),
        OutputSpec("audio_lengths", (1,)),
    )
    axes: ClassVar[dict[str, AxisMode]] = {"frames": PADDED}

    def __init__(self, module: Any) -> None:
        self.module = module
        self.sizes = {"n_vq": module.config.num_quantizers}
        self.outputs = (
            OutputSpec("audio", (1, 1, "samples"), length=Nominal(module.downsample_rate)),
            OutputSpec("audio_lengths", (1,)),
        )

    def forward(self, codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`[n_vq, frames]` to `[1, 1, frames · downsample_rate]` and `[1]`: what the model does without a wrapper."""
        decoded = self.module.batch_decode(codes_list=[codes], num_quantizers=self.sizes["n_vq"])
        return decoded.audio, decoded.audio_lengths


class MossWrapper(WrapperSpec):
    """MOSS-TTS's codec behind vllm-omni's own graphs: one request a call, frames padded to a bucket."""

    name = "moss_tts@vllm_omni"
    adapter = MossDecode
    buckets = ({"frames": 4}, {"frames": 8}, {"frames": 16})
    sample_rate = MOSS.sample_rate
    hop = MOSS.hop
    capabilities = Capabilities(
        variable_length=unsupported("the wrapper decodes one request a call"),
        streaming=MOSS.capabilities.streaming,
        randomness=MOSS.capabilities.randomness,
        state=MOSS.capabilities.state,
        low_precision=MOSS.capabilities.low_precision,
        autocast=supported(),
        zero_length=MOSS.capabilities.zero_length,
        threads=unsupported("a worker of vllm-omni decodes in one thread"),
    )
    trace = Trace.of({"frames": 4}, {"frames": 7}, {"frames": 16})
    requires = MOSS.requires
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> MossDecode:
        return MossDecode(MOSS.module(MOSS.build(device, checkpoint)))

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        assert isinstance(adapter, MossDecode)
        shape = (adapter.sizes["n_vq"], sizes["frames"])
        return {"codes": torch.randint(0, adapter.module.config.codebook_size, shape, generator=generator)}

    def make_wrapper(self, adapter: GraphAdapter, device: torch.device) -> Any:
        from vllm_omni.model_executor.models.moss_tts.moss_codec_cudagraph import MossTTSCUDAGraphCodecWrapper

        assert isinstance(adapter, MossDecode)
        sizes = [bucket["frames"] for bucket in self.buckets]
        return MossTTSCUDAGraphCodecWrapper(adapter.module, sizes, adapter.sizes["n_vq"])

    def warm(self, wrapper: Any, device: torch.device) -> None:
        wrapper.warmup(device)

    def answer(self, wrapper: Any, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        decoded = wrapper.decode(inputs["codes"])
        return decoded.audio, decoded.audio_lengths

    def wanted(self, config: GraphConfig, device: torch.device) -> bool:
        """`MossTTSCodecDecoder` reads `enforce_eager` alone; the wrapper has a switch that nobody passes on."""
        return not config.enforce_eager and config.enabled is not False

    def captured(self, adapter: GraphAdapter) -> tuple[Any, str]:
        assert isinstance(adapter, MossDecode)
        return adapter.module, "_decode"

    def captured_sizes(self, adapter: GraphAdapter, arguments: tuple[Any, ...]) -> dict[str, int]:
        return {"frames": arguments[0].shape[-1]}
