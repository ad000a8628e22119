"""How the kit builds, feeds and judges MiniCPM-o's HiFT vocoder, by the class that vllm-omni itself has of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.spec import AdapterSpec, Requirement
from conformance.traces import load_trace
from runner import GraphAdapter

from .adapter import MiniCPMOHiftAdapter

VLLM_OMNI = Requirement("vllm_omni", "uv pip install 'audiograph[vllm]'")
HOP = 32


def tiny_model() -> Any:
    """The real module, small: 32 samples a frame, 3 harmonics.

    The fundamental is some 1 to 400 Hz, voiced from 10 Hz on; a new predictor gives less than 1 Hz, and so noise alone.
    """
    from vllm_omni.model_executor.models.cosyvoice3.code2wav_core.hifigan import HiFTGenerator
    from vllm_omni.model_executor.models.glm_tts.vocoder import ConvRNNF0Predictor

    model = HiFTGenerator(
        in_channels=8,
        base_channels=32,
        nb_harmonics=2,
        sampling_rate=24000,
        upsample_rates=[4, 2],
        upsample_kernel_sizes=[8, 4],
        istft_params={"n_fft": 16, "hop_len": 4},
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
        source_resblock_kernel_sizes=[3, 3],
        source_resblock_dilation_sizes=[[1], [1]],
        f0_predictor=ConvRNNF0Predictor(num_class=1, in_channels=8, cond_channels=16),
    ).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("original0"):  # the gains of weight norm
                parameter.fill_(0.7)
            elif parameter.ndim >= 2:
                parameter.normal_(0, 0.15)
        model.f0_predictor.classifier.weight.normal_(0, 200)
    return model


class MiniCPMOHiftSpec(AdapterSpec):
    """HiFT of MiniCPM-o: a vocoder that draws its source's noise inside, one row a call."""

    name = "minicpmo_hift"
    adapter = MiniCPMOHiftAdapter
    buckets = (
        {"batch": 1, "frames": 4, "cached": 0},
        {"batch": 1, "frames": 7, "cached": HOP},
        {"batch": 2, "frames": 7, "cached": HOP},
    )
    serving_buckets = (
        {"batch": 1, "frames": 50, "cached": 0},
        {"batch": 1, "frames": 58, "cached": 8 * HOP},
    )
    min_hit_rate = 0.85  # the last chunk of a request has any length, and runs eagerly
    sample_rate = 24_000
    hop = HOP
    capabilities = Capabilities(
        variable_length=unsupported("rows of a batch have one length: the convolutions are centred"),
        streaming=unsupported("each chunk draws its own noise, and the caller fades from one to the next"),
        randomness=supported(),
        state=unsupported("the source of the last chunk is an input, and the next one's an output"),
        low_precision=unsupported("the spectrum is complex, for which there is no bfloat16"),
        autocast=unsupported("vllm-omni calls it with autocast off, since the spectrum is complex"),
        zero_length=unsupported("a chunk has at least one frame"),
        threads=unsupported("threads draw from one generator in turn"),
    )
    trace = load_trace(__file__)
    requires = (VLLM_OMNI,)
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> MiniCPMOHiftAdapter:
        if checkpoint is None:
            return MiniCPMOHiftAdapter(tiny_model().to(device))
        from vllm_omni.model_executor.models.glm_tts.vocoder import load_hift

        self.hop = 480
        return MiniCPMOHiftAdapter(load_hift(str(checkpoint / "hift.pt"), device).model)

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        mel = torch.randn(sizes["batch"], adapter.sizes["n_mels"], sizes["frames"], generator=generator)
        source = torch.randn(sizes["batch"], 1, sizes["cached"], generator=generator) * 0.1
        return {"mel": mel, "cache_source": source}
