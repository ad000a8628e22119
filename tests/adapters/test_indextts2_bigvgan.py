"""IndexTTS2's BigVGAN: why its frames are exact, and the loader of its checkpoints."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from conformance.registry import load_adapters

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module", autouse=True)
def imported_once() -> None:
    importlib.import_module("vllm_omni")


def build(checkpoint: Path | None = None) -> Any:
    torch.manual_seed(0)
    return load_adapters(["indextts2_bigvgan"])[0].spec.build(torch.device("cpu"), checkpoint)


@torch.no_grad()
def test_padding_is_heard_frames_before_it() -> None:
    adapter = build()
    mel = torch.randn(1, 8, 40)
    alone = adapter.forward(mel)
    padded = adapter.forward(torch.nn.functional.pad(mel, (0, 8)))[..., : alone.shape[-1]]
    wrong = ((padded - alone).abs() > 1e-4)[0, 0].nonzero().flatten()
    assert 40 * 8 - int(wrong[0]) > 4 * 8, "padding reaches back more than 4 frames"
    assert float((padded - alone).abs().max()) > 0.05


def test_a_checkpoint_is_loaded_by_the_packages_own_loader(tmp_path: Path) -> None:
    """Checkpoints hold weight norm; the loader lets names that it does not know pass, so values are compared."""
    from vllm_omni.model_executor.models.indextts2.s2mel.modules.bigvgan import BigVGAN

    saved = BigVGAN(build().module.h).eval()
    with torch.no_grad():
        for parameter in saved.parameters():
            parameter.normal_(0, 0.2)
    (tmp_path / "config.json").write_text(json.dumps({**saved.h, "sampling_rate": 22050}))
    torch.save({"generator": saved.state_dict()}, tmp_path / "bigvgan_generator.pt")
    spec: Any = load_adapters(["indextts2_bigvgan"])[0].spec
    loaded = spec.build(torch.device("cpu"), tmp_path)
    saved.remove_weight_norm()
    mel = torch.randn(1, 8, 9)
    with torch.no_grad():
        assert torch.equal(loaded.forward(mel), saved(mel))
    assert (spec.sample_rate, spec.hop) == (22050, 8)
