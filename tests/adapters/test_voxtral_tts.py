"""The real Voxtral-TTS acoustic transformer of the installed vllm-omni: whose noise a padded batch decodes from."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from conformance.emulation import emulated_cuda
from conformance.outcome import Outcome
from conformance.registry import load_adapters
from runner import AdapterError, GraphRunner
from tests.inner_run import run_suite

pytestmark = pytest.mark.vllm
CPU = torch.device("cpu")
END_AUDIO = 1


@pytest.fixture(scope="module", autouse=True)
def imported_once() -> None:
    """vllm cannot be imported a second time, and pytester forgets what the inner run imported."""
    importlib.import_module("vllm_omni")


def build(device: torch.device = CPU) -> Any:
    torch.manual_seed(0)
    return load_adapters(["voxtral_tts"])[0].spec.build(device, None)


def call(adapter: Any, rows: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states and guidance strengths of `rows` requests."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, adapter.sizes["dim"], generator=generator)
    return hidden, torch.empty(rows).uniform_(1.0, 2.0, generator=generator)


def test_rows_of_every_padded_batch_are_compared_in_a_replay(pytester: pytest.Pytester) -> None:
    rows, exit_code = run_suite(pytester, "--adapter=voxtral_tts", "-k", "CG202")
    assert exit_code == 0
    assert {record.outcome for record in rows} == {Outcome.PASS}
    assert any("b3-in-b4" in record.case for record in rows)
    assert all(record.evidence["replays"] for record in rows)


def test_a_padded_replay_gives_the_codes_of_the_module_alone_under_one_seed() -> None:
    with emulated_cuda():
        device = torch.device("cuda", 0)
        adapter = build(device)
        runner = GraphRunner(adapter, [{"batch": 4}], device=device)
        runner.warmup()
        for seed in range(5):
            hidden, alpha = (tensor.to(device) for tensor in call(adapter, 3, seed))
            torch.manual_seed(seed)
            expected = adapter.module(llm_hidden=hidden, cfg_alpha=alpha)
            torch.manual_seed(seed)
            found = runner(hidden, alpha, adapter.draw_noise(3, device))
            assert torch.equal(found, expected)
        assert runner.statistics.snapshot()["hits_per_bucket"] == {"b4": 5}


def test_every_row_hears_its_own_noise_and_no_other() -> None:
    adapter = build()
    hidden, alpha = call(adapter, 4)
    with torch.no_grad():  # no row ends
        adapter.module.semantic_codebook_output.weight[END_AUDIO] = 0
    noise = adapter.draw_noise(4, CPU)
    before = adapter.forward(hidden, alpha, noise)
    for row in range(4):
        other = noise.clone()
        other[row] = -other[row]
        changed = (adapter.forward(hidden, alpha, other) != before).any(-1)
        assert changed.tolist() == [index == row for index in range(4)]


def test_the_end_of_audio_leaves_acoustic_codes_empty() -> None:
    adapter = build()
    hidden, alpha = call(adapter, 8)
    with torch.no_grad():  # row 0 scores the end highest
        adapter.module.semantic_codebook_output.weight[END_AUDIO] = hidden[0]
    codes = adapter.forward(hidden, alpha, adapter.draw_noise(8, CPU))
    ended = codes[:, 0] == END_AUDIO
    assert ended[0]
    assert not ended.all()
    assert (codes[ended, 1:] == 2).all()  # the empty code behind two special ones
    assert (codes[~ended, 1:] != 2).any()


def test_a_module_that_draws_other_noise_is_refused() -> None:
    class Drawn(torch.nn.Module):
        def __init__(self, module: Any, draws: int) -> None:
            super().__init__()
            self.real, self.draws = module, draws

        def forward(self, llm_hidden: torch.Tensor, cfg_alpha: torch.Tensor) -> torch.Tensor:
            for _ in range(self.draws):
                torch.randn(1)
            return torch.zeros(len(llm_hidden), 8, dtype=torch.long)

    adapter = build()
    hidden, alpha = call(adapter, 2)
    noise = adapter.draw_noise(2, CPU)
    for draws in (0, 2):
        adapter.module = Drawn(adapter.module, draws)
        with pytest.raises(AdapterError, match=f"found {draws} draws"):
            adapter.forward(hidden, alpha, noise)


def test_a_checkpoint_is_loaded_by_the_models_own_loader(pytester: pytest.Pytester, tmp_path: Path) -> None:
    spec: Any = load_adapters(["voxtral_tts"])[0].spec
    torch.manual_seed(1)
    saved = spec.build(CPU, None).module
    transformer = {"input_dim": 32, "dim": 32, "n_layers": 2, "head_dim": 16, "hidden_dim": 64, "n_heads": 2}
    arguments = {
        "semantic_codebook_size": 64,
        "acoustic_codebook_size": 21,
        "n_acoustic_codebook": 7,
        "acoustic_transformer_args": {**transformer, "n_kv_heads": 1, "n_decoding_steps": 3},
        "audio_encoding_args": {"sampling_rate": 24000, "frame_rate": 12.5},
    }
    params = {"model_type": "voxtral_tts", "dim": 32, "n_layers": 1, "multimodal": {"audio_model_args": arguments}}
    (tmp_path / "params.json").write_text(json.dumps(params), encoding="utf-8")
    weights = {f"acoustic_transformer.{name}": tensor for name, tensor in saved.state_dict().items()}
    save_file({**weights, "norm.weight": torch.zeros(1)}, tmp_path / "consolidated.safetensors")

    loaded = spec.build(CPU, tmp_path).module
    assert all(torch.equal(tensor, saved.state_dict()[name]) for name, tensor in loaded.state_dict().items())
    assert (spec.sample_rate, spec.hop) == (100, 8)
    records, exit_code = run_suite(
        pytester, "--adapter=voxtral_tts", f"--adapter-checkpoint={tmp_path}", "-k", "CG001 or CG201 or CG202"
    )
    assert exit_code == 0
    assert {record.outcome for record in records} == {Outcome.PASS}
