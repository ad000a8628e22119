"""The MiMo-Audio decoder wrapper that vllm-omni 0.30.0 ships, unmodified: `CUDAGraphMiMoDecoderWrapper`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.registry import spec_of
from conformance.wrapped import WrapperSpec
from runner import EXACT, PADDED, AxisMode, GraphAdapter, GraphConfig, InputSpec, Nominal, OutputSpec

MIMO = spec_of("mimo_audio")

DEFAULT_SIZES = (4, 6, 8, 12, 16, 24, 32, 64, 128, 256)  # what the wrapper picks: the worker gives it none


class MiMoDecode(GraphAdapter):
    """One request, as the tokenizer worker decodes it without a wrapper. The wrapper pads frames, not code rows."""

    inputs = (InputSpec("codes", torch.long, ("code_rows", "frames")),)
    outputs = (OutputSpec("wav", (1, 1, "samples"), length=Nominal(MIMO.hop)),)
    axes: ClassVar[dict[str, AxisMode]] = {"code_rows": EXACT, "frames": PADDED}

    def __init__(self, module: Any, samples_per_frame: int) -> None:
        self.module = module
        self.outputs = (OutputSpec("wav", (1, 1, "samples"), length=Nominal(samples_per_frame)),)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """`[code_rows, frames]` int64 to `[1, 1, frames · samples a frame]`."""
        return self.module.decode(codes)


class MiMoWrapper(WrapperSpec):
    """MiMo-Audio's decoder behind vllm-omni's own graphs: frames padded to a bucket, code rows as they are."""

    name = "mimo_audio@vllm_omni"
    adapter = MiMoDecode
    buckets = tuple({"code_rows": rows, "frames": frames} for rows in (8, 12) for frames in (4, 8, 16))
    limits: ClassVar = {"code_rows": 12}
    sample_rate = MIMO.sample_rate
    hop = MIMO.hop
    capabilities = Capabilities(
        variable_length=MIMO.capabilities.variable_length,
        streaming=MIMO.capabilities.streaming,
        randomness=MIMO.capabilities.randomness,
        state=MIMO.capabilities.state,
        low_precision=supported(),
        autocast=supported(),
        zero_length=MIMO.capabilities.zero_length,
        threads=unsupported("a worker of vllm-omni decodes in one thread"),
    )
    trace = MIMO.trace
    serving_buckets = tuple({"code_rows": rows, "frames": frames} for rows in (8, 12) for frames in DEFAULT_SIZES)
    requires = MIMO.requires
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> MiMoDecode:
        built = MIMO.build(device, checkpoint)
        self.sample_rate, self.hop = MIMO.sample_rate, MIMO.hop
        return MiMoDecode(MIMO.module(built), MIMO.hop)

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        return MIMO.make_inputs(MIMO.adapter(self.module(adapter)), sizes, generator)

    def make_wrapper(self, adapter: GraphAdapter, device: torch.device) -> Any:
        from vllm_omni.model_executor.models.mimo_audio.cuda_graph_decoder_wrapper import CUDAGraphMiMoDecoderWrapper

        return CUDAGraphMiMoDecoderWrapper(
            self.module(adapter),
            capture_sizes=sorted({bucket["frames"] for bucket in self.buckets}),
            code_rows=sorted({bucket["code_rows"] for bucket in self.buckets}),
        )

    def warm(self, wrapper: Any, device: torch.device) -> None:
        wrapper.warmup(device)

    def answer(self, wrapper: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return wrapper.decode(inputs["codes"])

    def wanted(self, config: GraphConfig, device: torch.device) -> bool:
        """The worker reads `MIMO_AUDIO_TOKENIZER_CUDA_GRAPH` alone, and none of vLLM's switches."""
        return config.enabled is not False

    def captured(self, adapter: GraphAdapter) -> tuple[Any, str]:
        return self.module(adapter), "decode_fixed"

    def captured_sizes(self, adapter: GraphAdapter, arguments: tuple[Any, ...]) -> dict[str, int]:
        rows, frames = arguments[0].shape
        return {"code_rows": rows, "frames": frames}
