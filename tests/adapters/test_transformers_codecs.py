"""The decoders of transformers: what their adapters promise beyond the catalogue, and why they are as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from conformance.emulation import emulated_cuda
from conformance.registry import load_adapters

NAMES = ("mimi", "encodec", "dac")


def build(name: str, device: str = "cpu", checkpoint: Path | None = None) -> Any:
    torch.manual_seed(0)
    return load_adapters([name])[0].spec.build(torch.device(device), checkpoint)


def codes_for(adapter: Any, frames: int, batch: int = 2) -> torch.Tensor:
    return torch.randint(0, 32, (batch, adapter.sizes["n_vq"], frames), device=next(adapter.module.parameters()).device)


def decode(name: str, module: Any, codes: torch.Tensor) -> torch.Tensor:
    """The package's own way: `[batch, n_vq, frames]` to `[batch, 1, samples]`."""
    if name == "encodec":
        return module.decode(codes[None], [None]).audio_values
    if name == "dac":
        return module.decode(audio_codes=codes).audio_values.unsqueeze(1)
    return module.decode(codes).audio_values


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_forward_is_the_packages_own_decode_bit_for_bit(name: str) -> None:
    adapter = build(name)
    for frames in (1, 3, 6, 7, 20):
        codes = codes_for(adapter, frames)
        assert torch.equal(adapter.forward(codes), decode(name, adapter.module, codes))


@pytest.mark.parametrize("name", ["mimi", "encodec"])
@torch.no_grad()
def test_fewer_codebooks_are_the_first_ones(name: str) -> None:
    module = build(name).module
    adapter = type(build(name))(module, n_vq=2)
    codes = codes_for(adapter, 9)
    assert codes.shape[1] == 2
    assert torch.equal(adapter.forward(codes), decode(name, module, codes))


@pytest.mark.parametrize("name", ["mimi", "encodec"])
@torch.no_grad()
def test_decode_itself_cannot_be_captured(name: str) -> None:
    """Padding lengths read back from the device, and a zero copied to it."""
    with emulated_cuda():
        spec: Any = load_adapters([name])[0].spec
        adapter = spec.build(torch.device("cuda"), None)
        codes = codes_for(adapter, 9)
        side = torch.cuda.Stream()
        with (
            pytest.raises(RuntimeError, match="Cannot copy between CPU and CUDA tensors"),
            torch.cuda.stream(side),
            torch.cuda.graph(torch.cuda.CUDAGraph(), stream=side),
        ):
            decode(name, adapter.module, codes)

        convolution = next(part for part in adapter.module.decoder.modules() if hasattr(part, "padding_total"))
        hidden = torch.zeros(1, convolution.conv.in_channels, 9, device="cuda")
        for length in ("stride", "kernel_size", "padding_total"):  # as `module.to("cuda")` has them
            setattr(convolution, length, getattr(convolution, length).to("cuda"))
        with (
            pytest.raises(RuntimeError, match=r"not permitted when stream is capturing|Cannot copy"),
            torch.cuda.stream(side),
            torch.cuda.graph(torch.cuda.CUDAGraph(), stream=side),
        ):
            convolution(hidden)


@torch.no_grad()
def test_encodec_hears_a_pad_of_code_0_in_short_calls_and_never_one_of_no_frame() -> None:
    adapter = build("encodec")
    for frames in range(1, 12):
        codes = codes_for(adapter, frames)
        alone = adapter.forward(codes)
        zeros = adapter.forward(torch.nn.functional.pad(codes, (0, 5)))[..., : alone.shape[-1]]
        nothing = adapter.forward(torch.nn.functional.pad(codes, (0, 5), value=-1))[..., : alone.shape[-1]]
        assert torch.allclose(nothing, alone, rtol=0, atol=1e-6)
        heard = (zeros - alone).abs()
        assert float(heard.max()) > 1e-3 if frames < 7 else float(heard.max()) < 1e-6


def test_encodec_refuses_the_kind_that_normalises_over_time() -> None:
    from transformers import EncodecConfig, EncodecModel

    from runner import AdapterError

    config = EncodecConfig(
        num_filters=2,
        hidden_size=8,
        codebook_dim=8,
        codebook_size=8,
        upsampling_ratios=[2],
        norm_type="time_group_norm",
    )
    with pytest.raises(AdapterError, match="causal, mono EnCodec that normalises nothing"):
        type(build("encodec"))(EncodecModel(config))


@torch.no_grad()
def test_a_dac_hears_padding_frames_before_it() -> None:
    adapter = build("dac")
    codes = codes_for(adapter, 40, batch=1)
    alone = adapter.forward(codes)
    padded = adapter.forward(torch.nn.functional.pad(codes, (0, 8)))[..., : alone.shape[-1]]
    wrong = ((padded - alone).abs() > 1e-4)[0, 0].nonzero().flatten()
    assert (40 * 8 - int(wrong[0])) // 8 > 8, "padding reaches back more than 8 frames"
    assert float((padded - alone).abs().max()) > 0.1


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_is_loaded_by_the_packages_own_loader(name: str, tmp_path: Path) -> None:
    spec: Any = load_adapters([name])[0].spec
    saved = build(name)
    saved.module.save_pretrained(tmp_path)
    loaded = spec.build(torch.device("cpu"), tmp_path)
    codes = codes_for(saved, 9)
    with torch.no_grad():
        assert torch.equal(loaded.forward(codes), saved.forward(codes))
    assert (spec.sample_rate, spec.hop) == ((1600, 16) if name == "mimi" else (800, 8))


@pytest.mark.parametrize("name", NAMES)
def test_vllm_is_not_imported(name: str) -> None:
    program = (
        "import sys, torch; from conformance.registry import load_adapters; "
        f"load_adapters([{name!r}])[0].spec.build(torch.device('cpu'), None); "
        "assert not {'vllm', 'vllm_omni'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
