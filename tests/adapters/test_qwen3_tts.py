"""The real Qwen3-TTS 12 Hz decoder of the installed vllm-omni: what its adapter and spec say of it is so."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from conformance.outcome import Outcome
from conformance.registry import load_adapters
from conformance.spec import AdapterSpec
from tests.inner_run import run_suite

pytestmark = pytest.mark.vllm

# Of the checkpoint's encoder nothing is used; it must only be there.
ENCODER = {"hidden_size": 16, "num_filters": 4, "num_residual_layers": 1, "upsampling_ratios": [2, 2]}
ENCODER |= {"codebook_size": 32, "codebook_dim": 8, "vector_quantization_hidden_dimension": 8, "num_quantizers": 4}
ENCODER |= {"num_semantic_quantizers": 1, "num_hidden_layers": 1, "intermediate_size": 16, "num_attention_heads": 2}
ENCODER |= {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4, "upsample_groups": 16}


@pytest.fixture(scope="module", autouse=True)
def imported_once() -> None:
    """vllm cannot be imported a second time, and pytester forgets what the inner run imported."""
    importlib.import_module("vllm_omni")


@pytest.fixture
def spec() -> AdapterSpec:
    return load_adapters(["qwen3_tts"])[0].spec


@pytest.fixture
def adapter(spec: AdapterSpec) -> Any:
    torch.manual_seed(0)
    return spec.build(torch.device("cpu"), None)


def codes(rows: int, frames: int) -> torch.Tensor:
    return torch.randint(0, 32, (rows, 4, frames), generator=torch.Generator().manual_seed(frames))


@torch.no_grad()
def test_the_small_build_is_loud_and_hardly_clipped(adapter: Any) -> None:
    wav = adapter.forward(codes(4, 20))
    assert 0.1 < wav.std() < 0.6
    assert (wav.abs() == 1).float().mean() < 0.02


@torch.no_grad()
def test_the_left_context_is_what_the_module_hears_and_no_less(spec: AdapterSpec, adapter: Any) -> None:
    one = codes(1, 40)
    truth = adapter.forward(one)[..., -spec.hop :]

    def last_frame_when_changed(before: int) -> torch.Tensor:
        other = one.clone()
        other[..., -1 - before] = (other[..., -1 - before] + 7) % 32
        return adapter.forward(other)[..., -spec.hop :]

    assert not torch.equal(last_frame_when_changed(spec.left_context), truth)
    assert torch.equal(last_frame_when_changed(spec.left_context + 1), truth)


@torch.no_grad()
def test_a_call_without_rows_leaves_the_module_as_it_was(adapter: Any) -> None:
    """The module itself keeps an attention mask of no rows, and then refuses that many frames for good."""
    with pytest.raises(ValueError, match="at least one row"):
        adapter.forward(codes(1, 9)[:0])
    assert adapter.forward(codes(1, 9)).shape == (1, 1, 9 * 160)
    with pytest.raises(RuntimeError):
        adapter.module(codes(1, 9)[:0])
    assert adapter.module(codes(1, 9)).shape == (1, 1, 9 * 160)  # a mask for nine frames was there already
    with pytest.raises(RuntimeError):
        adapter.module(codes(1, 11)[:0])
    with pytest.raises(RuntimeError):
        adapter.module(codes(1, 11))


def test_a_checkpoint_is_loaded_by_the_packages_own_loader(
    pytester: pytest.Pytester, spec: AdapterSpec, adapter: Any, tmp_path: Path
) -> None:
    c = importlib.import_module(
        "vllm_omni.model_executor.models.qwen3_tts.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2"
    )
    m = importlib.import_module(
        "vllm_omni.model_executor.models.qwen3_tts.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2"
    )
    config = c.Qwen3TTSTokenizerV2Config(
        encoder_config=ENCODER, decoder_config=adapter.module.config.to_dict(), output_sample_rate=2000
    )
    saved = m.Qwen3TTSTokenizerV2Model(config)
    saved.decoder.load_state_dict(adapter.module.state_dict())
    saved.save_pretrained(tmp_path / "speech_tokenizer")
    loaded = spec.build(torch.device("cpu"), tmp_path)
    assert (spec.sample_rate, spec.hop, spec.left_context) == (2000, 160, 16)
    with torch.no_grad():
        assert torch.equal(loaded.forward(codes(1, 9)), adapter.forward(codes(1, 9)))  # type: ignore[arg-type]

    records, exit_code = run_suite(
        pytester, "--adapter=qwen3_tts", f"--adapter-checkpoint={tmp_path}", "-k", "CG201 or CG214"
    )
    assert exit_code == 0
    assert {record.outcome for record in records} == {Outcome.PASS}
