"""MiniCPM-o's HiFT: the inverse transform in the graph is the module's own, and why every axis is exact."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from conformance.emulation import emulated_cuda
from conformance.registry import load_adapters

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module", autouse=True)
def imported_once() -> None:
    importlib.import_module("vllm_omni")


def build(device: str = "cpu") -> Any:
    torch.manual_seed(0)
    return load_adapters(["minicpmo_hift"])[0].spec.build(torch.device(device), None)


def inputs(batch: int, frames: int, cached: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, 8, frames), torch.randn(batch, 1, cached) * 0.1


def seeded(function: Any, *tensors: torch.Tensor) -> Any:
    torch.manual_seed(1)
    return function(*tensors)


@pytest.mark.parametrize(("batch", "frames", "cached"), [(1, 4, 0), (1, 1, 32), (3, 7, 32), (1, 58, 256)])
@torch.no_grad()
def test_forward_is_the_modules_inference_bit_for_bit(batch: int, frames: int, cached: int) -> None:
    adapter, tensors = build(), inputs(batch, frames, cached)
    found, expected = seeded(adapter.forward, *tensors), seeded(adapter.module.inference, *tensors)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert 0.01 < float(expected[0].abs().max()) < 0.99, "the limiter would hide differences"
    assert not any(tensor.is_inference() for tensor in found)


@torch.no_grad()
def test_the_modules_own_inverse_transform_cannot_be_captured() -> None:
    with emulated_cuda():
        adapter = build("cuda")
        magnitude, phase = torch.rand(1, 9, 33, device="cuda"), torch.rand(1, 9, 33, device="cuda")
        side = torch.cuda.Stream()
        with (
            pytest.raises(RuntimeError, match="not permitted when stream is capturing"),
            torch.cuda.stream(side),
            torch.cuda.graph(torch.cuda.CUDAGraph(), stream=side),
        ):
            adapter.module._istft(magnitude, phase)


@torch.no_grad()
def test_padded_rows_and_frames_would_draw_other_numbers() -> None:
    adapter = build()
    mel, source = inputs(1, 7, 32)
    speech, _ = seeded(adapter.forward, mel, source)
    rows, _ = seeded(adapter.forward, mel.expand(2, -1, -1), source.expand(2, -1, -1))
    assert float((rows[0] - speech[0]).abs().max()) > 1e-3
    frames, _ = seeded(adapter.forward, torch.nn.functional.pad(mel, (0, 3)), source)
    assert float((frames[0, : 3 * 32] - speech[0, : 3 * 32]).abs().max()) > 1e-3, "far from the padding"


def test_a_checkpoint_is_loaded_by_the_packages_own_loader(tmp_path: Path) -> None:
    """The size of the released vocoder is fixed in that loader."""
    from vllm_omni.model_executor.models.cosyvoice3.code2wav_core.hifigan import HiFTGenerator
    from vllm_omni.model_executor.models.glm_tts.vocoder import ConvRNNF0Predictor

    dilations = [[1, 3, 5]] * 3
    saved = HiFTGenerator(
        sampling_rate=24000,
        upsample_rates=[8, 5, 3],
        upsample_kernel_sizes=[16, 11, 7],
        source_resblock_kernel_sizes=[7, 7, 11],
        source_resblock_dilation_sizes=dilations,
        f0_predictor=ConvRNNF0Predictor(),
    ).eval()
    torch.save(saved.state_dict(), tmp_path / "hift.pt")
    spec: Any = load_adapters(["minicpmo_hift"])[0].spec
    loaded = spec.build(torch.device("cpu"), tmp_path)
    mel, source = torch.randn(1, 80, 2), torch.zeros(1, 1, 0)
    with torch.no_grad():
        found, expected = seeded(loaded.forward, mel, source), seeded(saved.inference, mel, source)
    assert torch.equal(found[0], expected[0])
    assert found[0].shape[-1] == 2 * spec.hop
