"""IndexTTS2's DiT: its own mask makes padding safe, and what vllm-omni deploys gives the same."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from conformance.emulation import emulated_cuda
from conformance.registry import load_adapters
from runner import AdapterError, GraphRunner

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[None]:
    """Without a GPU the module is built on the emulated one alone: nowhere else has vllm-omni attention for it."""
    importlib.import_module("vllm_omni")
    with emulated_cuda(), torch.no_grad():
        yield


@pytest.fixture(scope="module")
def adapter() -> Any:
    torch.manual_seed(0)
    return spec().build(torch.device("cuda"), None)


def spec() -> Any:
    return load_adapters(["indextts2_dit"])[0].spec


def inputs(adapter: Any, frames: int, batch: int = 2) -> dict[str, torch.Tensor]:
    made = spec().make_inputs(adapter, {"batch": batch, "frames": frames}, torch.Generator().manual_seed(frames))
    return {name: tensor.to("cuda") for name, tensor in made.items()}


def padded(tensors: dict[str, torch.Tensor], frames: int) -> dict[str, torch.Tensor]:
    more = frames - tensors["x"].shape[-1]
    pads = {"x": (0, more), "prompt_x": (0, more), "cond": (0, 0, 0, more)}
    return {name: torch.nn.functional.pad(tensor, pads.get(name, ())) for name, tensor in tensors.items()}


@pytest.mark.parametrize("frames", [1, 2, 3, 8, 30])
def test_padding_behind_a_rows_length_changes_nothing(adapter: Any, frames: int) -> None:
    tensors = inputs(adapter, frames)
    alone = adapter.forward(**tensors)
    assert float(alone.abs().max()) > 0.3
    for more in (1, 9, 40):
        found = adapter.forward(**padded(tensors, frames + more))[..., :frames]
        assert torch.allclose(found, alone, rtol=0, atol=3e-6)


@pytest.mark.parametrize("frames", [3, 8, 30])
def test_masks_give_what_the_package_computes_without_them_and_alone_make_padding_safe(
    adapter: Any, frames: int
) -> None:
    """vllm-omni tells the module that nothing is masked (`_set_dit_full_mask_fast_path`) where every row is full."""
    from vllm_omni.model_executor.models.indextts2.indextts2_s2mel_decoder import IndexTTS2S2MelDecoder

    module, tensors = adapter.module, inputs(adapter, frames)
    masked = adapter.forward(**tensors)
    try:
        IndexTTS2S2MelDecoder._set_dit_full_mask_fast_path(module, enabled=True)
        deployed = module(*tensors.values())
        heard = module(*padded(tensors, frames + 9).values())[..., :frames]
    finally:
        IndexTTS2S2MelDecoder._set_dit_full_mask_fast_path(module, enabled=False)
    assert torch.allclose(masked, deployed, rtol=0, atol=3e-6)
    assert float((heard - deployed).abs().max()) > 0.01


def test_one_bucket_serves_every_step_of_requests_of_any_length(adapter: Any) -> None:
    runner = GraphRunner(adapter, [{"batch": 2, "frames": 32}], device="cuda")
    runner.warmup()
    for frames in (7, 20, 32):
        tensors = inputs(adapter, frames)
        for step in (0.0, 0.5):
            tensors["t"].fill_(step)
            assert torch.allclose(runner(**tensors), adapter.forward(**tensors), rtol=0, atol=3e-6)
    assert runner.statistics.snapshot()["hits_per_bucket"] == {"b2-f32": 6}
    runner.close()


def test_a_dit_with_graphs_of_its_own_is_refused(adapter: Any) -> None:
    adapter.module._cuda_graph_runner = object()
    try:
        with pytest.raises(AdapterError, match="leave `s2mel_dit_cuda_graph` off"):
            type(adapter)(adapter.module, style=12)
    finally:
        del adapter.module._cuda_graph_runner
