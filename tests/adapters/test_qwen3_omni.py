"""The real Qwen3-Omni Code2Wav of the installed vllm-omni: what its adapter and spec say of it is so."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from conformance.outcome import Outcome
from conformance.registry import load_adapters
from conformance.spec import AdapterSpec
from tests.inner_run import run_suite

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module", autouse=True)
def imported_once() -> None:
    """vllm cannot be imported a second time, and pytester forgets what the inner run imported."""
    importlib.import_module("vllm_omni")


@pytest.fixture
def spec() -> AdapterSpec:
    return load_adapters(["qwen3_omni"])[0].spec


@pytest.fixture
def adapter(spec: AdapterSpec) -> Any:
    torch.manual_seed(0)
    return spec.build(torch.device("cpu"), None)


def codes(rows: int, frames: int) -> torch.Tensor:
    return torch.randint(0, 32, (rows, 4, frames), generator=torch.Generator().manual_seed(frames))


@torch.no_grad()
def test_the_small_build_is_loud_hardly_clipped_and_as_long_as_the_released_model(adapter: Any) -> None:
    for frames in (1, 4, 18):
        assert adapter.forward(codes(2, frames)).shape == (2, 1, 1920 * frames - 555)
    wav = adapter.forward(codes(4, 18))
    assert 0.1 < wav.std() < 0.6
    assert (wav.abs() == 1).float().mean() < 0.02


@torch.no_grad()
def test_the_left_context_is_what_the_module_hears_and_no_less(spec: AdapterSpec, adapter: Any) -> None:
    """A chunk also gives the 555 samples that the chunk before it could not."""
    one = codes(1, 40)
    start = 39 * 1920 - 555
    truth = adapter.forward(one)[..., start:]

    def from_last_frame_when_changed(before: int) -> torch.Tensor:
        other = one.clone()
        other[..., -1 - before] = (other[..., -1 - before] + 7) % 32
        return adapter.forward(other)[..., start:]

    assert not torch.equal(from_last_frame_when_changed(spec.left_context), truth)
    assert torch.equal(from_last_frame_when_changed(spec.left_context + 1), truth)


TRIMS_NOMINALLY = """
from conformance.registry import load_adapters
from runner import Custom, OutputSpec

Spec = type(load_adapters(["qwen3_omni"])[0].spec)


class TrimsNominally(Spec):
    name = "trims_nominally"

    def build(self, device, checkpoint):
        adapter = super().build(device, checkpoint)
        slices = Custom(lambda captured, frames, bucket_frames: min(captured, 1920 * frames))
        adapter.outputs = (OutputSpec("wav", ("batch", 1, "samples"), length=slices),)
        return adapter
"""


def test_a_trim_by_1920_samples_a_frame_keeps_what_issue_4466_kept(pytester: pytest.Pytester, tmp_path: Path) -> None:
    path = tmp_path / "spec.py"
    path.write_text(TRIMS_NOMINALLY)
    records, exit_code = run_suite(pytester, f"--adapter={path}", "-k", "CG203-padded-bucket[b1-f7-in-b1-f8]")
    assert exit_code == 1
    assert [record.outcome for record in records] == [Outcome.FAIL]
    assert "kept 555 samples (23.1 ms) past eager's end" in records[0].message


def test_a_checkpoint_is_loaded_by_the_models_own_loader(
    pytester: pytest.Pytester, spec: AdapterSpec, adapter: Any, tmp_path: Path
) -> None:
    configuration = importlib.import_module("transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe")
    save = importlib.import_module("safetensors.torch").save_file
    configuration.Qwen3OmniMoeConfig(code2wav_config=adapter.module.config.to_dict()).save_pretrained(tmp_path)
    weights = {f"code2wav.{name}": tensor for name, tensor in adapter.module.named_parameters()}
    save({name: tensor.detach() for name, tensor in weights.items()}, tmp_path / "model-2.safetensors")
    (tmp_path / "model-1.safetensors").write_text("not to be opened: it holds the thinker")
    places = {"thinker.weight": "model-1.safetensors", **dict.fromkeys(weights, "model-2.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    loaded = spec.build(torch.device("cpu"), tmp_path)
    assert (spec.hop, spec.left_context) == (1920, 14)
    with torch.no_grad():
        assert torch.equal(loaded.forward(codes(1, 9)), adapter.forward(codes(1, 9)))

    records, exit_code = run_suite(
        pytester, "--adapter=qwen3_omni", f"--adapter-checkpoint={tmp_path}", "-k", "CG201 or CG214"
    )
    assert exit_code == 0
    assert {record.outcome for record in records} == {Outcome.PASS}
