"""The real flow-matching head of Ming-TTS of the installed vllm-omni: its own sampler, with the noise as an input."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

from conformance.emulation import emulated_cuda
from conformance.registry import spec_of
from runner import AdapterError, GraphRunner

pytestmark = pytest.mark.vllm
CPU = torch.device("cpu")
GUIDANCE, SIGMA, TEMPERATURE = 2.0, 0.25, 0.5


@pytest.fixture(scope="module", autouse=True)
def imported_once() -> None:
    importlib.import_module("vllm_omni")


def build(device: torch.device = CPU) -> Any:
    torch.manual_seed(0)
    return spec_of("ming_cfm").build(device, None)


def call(adapter: Any, rows: int) -> dict[str, torch.Tensor]:
    """Requests of `rows` rows, with the noise that the package's sampler draws after seed 0."""
    sizes, generator = adapter.sizes, torch.Generator().manual_seed(1)
    hidden = torch.randn(rows, 1, sizes["dim"], generator=generator)
    history = torch.randn(rows, sizes["past"], sizes["latent"], generator=generator)
    torch.manual_seed(0)
    start = torch.randn(rows, sizes["latent"], sizes["patch"]).transpose(1, 2)
    noise = torch.stack([torch.randn_like(start) for _ in range(sizes["steps"])], dim=1)
    controls = torch.tensor([GUIDANCE, SIGMA, TEMPERATURE])
    return {"hidden": hidden, "history": history, "start": start, "noise": noise, "controls": controls}


@torch.no_grad()
def test_forward_is_the_packages_own_sampler_after_the_same_seed() -> None:
    adapter = build()
    given = call(adapter, 3)
    torch.manual_seed(0)
    expected = adapter.module.flowloss.sample(
        given["hidden"],
        given["history"],
        cfg=GUIDANCE,
        patch_size=adapter.sizes["patch"],
        sigma=SIGMA,
        temperature=TEMPERATURE,
    )
    patch, embedding, stop = adapter.forward(**given)
    torch.testing.assert_close(patch, expected, rtol=0, atol=2e-6 * float(expected.abs().max()))
    assert expected.abs().max() > 0.1
    assert torch.equal(embedding, adapter.module.linear_proj_audio(patch))
    assert torch.equal(stop, adapter.module.stop_head(given["hidden"][:, -1]).softmax(-1))


@torch.no_grad()
def test_every_row_hears_its_own_noise_and_no_other() -> None:
    adapter = build()
    given = call(adapter, 3)
    before = adapter.forward(**given)[0]
    for kind in ("start", "noise"):
        for row in range(3):
            other = given[kind].clone()
            other[row] = -other[row]
            changed = (adapter.forward(**{**given, kind: other})[0] != before).flatten(1).any(-1)
            assert changed.tolist() == [index == row for index in range(3)]


def test_a_padded_batch_gives_the_rows_that_eager_gives() -> None:
    with emulated_cuda(), torch.no_grad():
        device = torch.device("cuda", 0)
        adapter = build(device)
        runner = GraphRunner(adapter, [{"batch": 4}], device=device)
        runner.warmup()
        given = {name: tensor.to(device) for name, tensor in call(adapter, 3).items()}
        found, expected = runner(**given), adapter.forward(**given)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.shape == theirs.shape
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
        assert runner.statistics.snapshot()["hits_per_bucket"] == {"b4": 1}


@pytest.mark.parametrize("times", [torch.zeros(1), torch.zeros(2, 2)])
def test_a_solver_without_a_step_is_refused(times: torch.Tensor) -> None:
    adapter = build()
    with pytest.raises(AdapterError, match="at least one step"):
        type(adapter)(adapter.module, times, past=8, patch=4)
