"""A real VllmConfig, with a real ModelConfig, becomes the runner's configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from runner import GraphConfig, decide_enabled

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 128,
    "max_position_embeddings": 128,
}
pytestmark = pytest.mark.vllm


@pytest.fixture
def vllm_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes one for the device at hand, from the file of a tiny model."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "config.json").write_text(json.dumps(MODEL))

    def made(*, enforce_eager: bool = False, mode: str | None = None, **fields: Any) -> Any:
        from vllm.config import CompilationConfig, DeviceConfig, ModelConfig, VllmConfig

        model = ModelConfig(model=str(tmp_path), skip_tokenizer_init=True, dtype="float32", enforce_eager=enforce_eager)
        device = DeviceConfig(device="auto" if torch.cuda.is_available() else "cpu")
        compilation = CompilationConfig(cudagraph_mode=mode) if mode else CompilationConfig()
        return VllmConfig(model_config=model, device_config=device, compilation_config=compilation, **fields)

    return made


def test_enforce_eager_turns_graphs_off_and_a_components_section_turns_them_on(vllm_config: Any) -> None:
    section = {"audiograph": {"code2wav": {"enabled": True, "lazy": True, "max_lazy_graphs": 2}}}
    made = vllm_config(enforce_eager=True, additional_config=section)
    other = GraphConfig.from_vllm_config(made, "dit")
    assert decide_enabled("cuda", other) == (False, "enforce_eager=True")
    config = GraphConfig.from_vllm_config(made, "code2wav")
    assert (config.lazy, config.max_lazy_graphs) == (True, 2)
    assert decide_enabled("cuda", config) == (True, "enabled=True overrides enforce_eager=True")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_vllm_turns_graphs_off_itself(vllm_config: Any) -> None:
    config = GraphConfig.from_vllm_config(vllm_config(mode="FULL"), "code2wav")
    assert decide_enabled("cuda", config) == (False, "cudagraph_mode=NONE")


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE", None])
def test_on_a_gpu_mode_and_capture_sizes_are_those_that_vllm_settled_on(vllm_config: Any, mode: str | None) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    made = vllm_config(mode=mode)
    settled, config = made.compilation_config, GraphConfig.from_vllm_config(made, "code2wav")
    assert config.cudagraph_mode is settled.cudagraph_mode
    assert list(config.cudagraph_capture_sizes or []) == list(settled.cudagraph_capture_sizes or [])
    none = settled.cudagraph_mode.name == "NONE"
    assert decide_enabled("cuda", config) == (not none, "cudagraph_mode=NONE" if none else "")
    if mode is not None:
        assert none == (mode == "NONE")
