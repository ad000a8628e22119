"""How the kit builds, feeds and judges the Higgs Audio v3 codec of the installed vllm-omni."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.spec import AdapterSpec, Requirement
from conformance.traces import load_trace
from runner import GraphAdapter

from .adapter import HiggsAudioV3Adapter

VLLM_OMNI = Requirement("vllm_omni", "uv pip install 'audiograph[vllm]'")
N_VQ, REAL_CODES = 3, 32
STRIDES = [5, 2]  # an odd one, whose output padding is what makes the length frames × hop


def tiny_model() -> Any:
    """The real module, small: 3 quantizers and 10 samples a frame."""
    from vllm_omni.model_executor.models.higgs_audio_v2.higgs_audio_decoder import (
        HiggsAudioRVQ,
        build_higgs_audio_acoustic_decoder,
    )
    from vllm_omni.model_executor.models.higgs_audio_v3.higgs_audio_v3_code2wav import HiggsAudioV3Code2Wav
    from vllm_omni.transformers_utils.configs.higgs_audio_v3 import HiggsAudioV3Config

    marks = {"audio_stream_bos_id": REAL_CODES, "audio_stream_eos_id": REAL_CODES + 1}
    config = HiggsAudioV3Config(num_codebooks=N_VQ, codebook_size=REAL_CODES + 2, sample_rate=250, **marks)
    widths = {"encoder_hidden_size": 4, "decoder_hidden_size": 32, "hidden_size": 16, "codebook_dim": 8}
    rates = {"upsampling_ratios": STRIDES, "downsampling_ratios": STRIDES[::-1], "sampling_rate": 250}
    codec = {**widths, **rates, "n_codebooks": N_VQ, "codebook_size": REAL_CODES}
    module = HiggsAudioV3Code2Wav(config)
    module.quantizer = HiggsAudioRVQ(N_VQ, REAL_CODES, codebook_dim=8, hidden_size=24)
    module.fc2 = torch.nn.Linear(24, 16)
    module.acoustic_decoder = build_higgs_audio_acoustic_decoder({"acoustic_model_config": codec}, torch.device("cpu"))
    module._loaded = True
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.15)
    return module.eval()


def load_model(folder: Path, device: torch.device) -> Any:
    """The codec in a checkpoint of the whole model, by the module's own loader."""
    from safetensors import safe_open
    from vllm_omni.model_executor.models.higgs_audio_v3.higgs_audio_v3_code2wav import HiggsAudioV3Code2Wav
    from vllm_omni.transformers_utils.configs.higgs_audio_v3 import HiggsAudioV3Config

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - it is no mapping
                    yield name, tensors.get_tensor(name)

    fields, _ = HiggsAudioV3Config.get_config_dict(folder)
    module = HiggsAudioV3Code2Wav(HiggsAudioV3Config.from_dict(fields))
    module.load_weights(weights(), device)
    return module.eval()


class HiggsAudioV3Spec(AdapterSpec):
    """Higgs Audio v3 codec, with an exact number of frames, and special codes among the codes."""

    name = "higgs_audio_v3"
    adapter = HiggsAudioV3Adapter
    buckets = (
        {"batch": 1, "frames": 3},
        {"batch": 1, "frames": 8},
        {"batch": 2, "frames": 8},
        {"batch": 4, "frames": 8},
        {"batch": 4, "frames": 12},
    )
    sample_rate = 250
    hop = 10
    capabilities = Capabilities(
        variable_length=unsupported("the decoder is not causal: a shorter row would hear its padding"),
        streaming=unsupported("a chunk's end needs 4 frames that follow it, which serving holds back"),
        randomness=unsupported("the decoder draws nothing"),
        state=unsupported("the decoder keeps nothing between calls"),
        low_precision=supported(),
        autocast=supported(),
        zero_length=unsupported("a request has at least one frame"),
        threads=supported(),
    )
    trace = load_trace(__file__)
    # The first chunk, the second, and the steady one. A last chunk has any of 28 lengths and runs eagerly.
    serving_buckets = ({"batch": 1, "frames": 5}, {"batch": 1, "frames": 30}, {"batch": 1, "frames": 54})
    min_hit_rate = 0.9
    requires = (VLLM_OMNI,)
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> HiggsAudioV3Adapter:
        if checkpoint is None:
            return HiggsAudioV3Adapter(tiny_model().to(device))
        module = load_model(checkpoint, device)
        self.sample_rate, self.hop = module.sample_rate, module.hop_length
        return HiggsAudioV3Adapter(module)

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        """Real codes, and in one place of ten -1 or a mark of the delay pattern."""
        assert isinstance(adapter, HiggsAudioV3Adapter)
        shape, real = (sizes["batch"], adapter.sizes["n_vq"], sizes["frames"]), adapter.module.num_real_codes
        codes = torch.randint(0, real, shape, generator=generator)
        special = torch.tensor([-1, real, real + 1])[torch.randint(0, 3, shape, generator=generator)]
        return {"codes": torch.where(torch.rand(shape, generator=generator) < 0.1, special, codes)}
