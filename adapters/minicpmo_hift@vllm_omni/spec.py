"""MiniCPM-o's HiFT wrapper that vllm-omni 0.30.0 ships, unmodified: `HiFTGraphWrapper`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from conformance.registry import spec_of
from conformance.wrapped import WrapperSpec
from runner import EXACT, PADDED, AxisMode, GraphAdapter, GraphConfig

HIFT = spec_of("minicpmo_hift")
Adapter: Any = HIFT.adapter
LOOKAHEAD = 3  # frames that the wrapper takes off a chunk where the flow's encoder names none


class HiftInference(Adapter):
    """The vocoder's own `inference`. The wrapper pads rows, and captures whatever other size it is asked for."""

    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED, "frames": EXACT, "cached": EXACT}

    def forward(self, mel: torch.Tensor, cache_source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`[batch, n_mels, frames]` and `[batch, 1, cached]` to `[batch, samples]` and `[batch, 1, samples]`."""
        speech, source = self.module.inference(mel, cache_source)
        return speech, source


class HiftWrapper(WrapperSpec):
    """MiniCPM-o's HiFT behind vllm-omni's own graphs: the first chunk and the steady one, rows padded."""

    name = "minicpmo_hift@vllm_omni"
    adapter = HiftInference
    buckets = tuple(
        {"batch": rows, "frames": frames, "cached": cached}
        for rows in (1, 3)
        for frames, cached in ((4, 0), (7, HIFT.hop))
    )
    sample_rate = HIFT.sample_rate
    hop = HIFT.hop
    capabilities = HIFT.capabilities
    trace = HIFT.trace
    serving_buckets = HIFT.serving_buckets
    min_hit_rate = HIFT.min_hit_rate
    requires = HIFT.requires
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> Any:
        module = HIFT.module(HIFT.build(device, checkpoint))
        self.hop = HIFT.hop
        return HiftInference(module)

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        return HIFT.make_inputs(adapter, sizes, generator)

    def make_wrapper(self, adapter: GraphAdapter, device: torch.device) -> Any:
        """The wrapper derives its two sizes from the connector's chunks and from what MiniCPM-o's token2wav keeps.

        Token2wav is a package of its own; this is all that the wrapper reads of it.
        """
        from vllm_omni.model_executor.models.minicpmo_4_5.cuda_graph_wrapper import HiFTGraphWrapper

        first = min(self.buckets, key=lambda bucket: bucket["frames"])
        steady = max(self.buckets, key=lambda bucket: bucket["frames"])
        token2wav = SimpleNamespace(
            hift=self.module(adapter),
            flow=SimpleNamespace(encoder=SimpleNamespace(), token_mel_ratio=1),
            mel_cache_len=steady["frames"] - first["frames"],
            source_cache_len=steady["cached"],
        )
        connector = {"codec_chunk_frames": first["frames"] + LOOKAHEAD, "codec_left_context_frames": 0}
        rows = sorted({bucket["batch"] for bucket in self.buckets})
        return HiFTGraphWrapper(token2wav, connector, capture_batch_sizes=rows)

    def warm(self, wrapper: Any, device: torch.device) -> None:
        wrapper.capture()

    def answer(self, wrapper: Any, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        speech, source = wrapper.replay(inputs["mel"], inputs["cache_source"])
        return speech, source

    def wanted(self, config: GraphConfig, device: torch.device) -> bool:
        """Code2Wav reads `enable_hift_graph` of its connector, and none of vLLM's switches."""
        return config.enabled is not False

    def captured(self, adapter: GraphAdapter) -> tuple[Any, str]:
        return self.module(adapter), "_inference_pre_istft"

    def captured_sizes(self, adapter: GraphAdapter, arguments: tuple[Any, ...]) -> dict[str, int]:
        mel, source = arguments[:2]
        return {"batch": mel.shape[0], "frames": mel.shape[2], "cached": source.shape[2]}
