"""The real MiMo-Audio tokenizer's decoder of the installed vllm-omni: what is declared exact, and why."""

from __future__ import annotations

import importlib
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from conformance.outcome import Outcome
from conformance.registry import load_adapters
from tests.inner_run import run_suite

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module", autouse=True)
def imported_once() -> None:
    """vllm cannot be imported a second time, and pytester forgets what the inner run imported."""
    importlib.import_module("vllm_omni")


@pytest.fixture
def adapter() -> Any:
    torch.manual_seed(0)
    return load_adapters(["mimo_audio"])[0].spec.build(torch.device("cpu"), None)


def codes(rows: int, frames: int) -> torch.Tensor:
    return torch.randint(0, 32, (rows, frames), generator=torch.Generator().manual_seed(rows))


def test_serving_is_mostly_replayed(pytester: pytest.Pytester) -> None:
    records, exit_code = run_suite(pytester, "--adapter=mimo_audio", "-k", "CG407")
    assert exit_code == 0
    [served] = [record.evidence for record in records if record.check == "CG407-hit-rate"]
    assert 0.75 <= served["hit_rate"] < 1.0  # last chunks of a request are of any length


@pytest.mark.parametrize("rows", [8, 12])
def test_forward_is_what_the_package_decodes_without_flash_attention(adapter: Any, rows: int) -> None:
    for frames in (1, 7, 40):
        drawn = codes(rows, frames)
        torch.testing.assert_close(adapter.forward(drawn), adapter.module.decode(drawn), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("frames", "bucket"), [(5, 8), (7, 8), (13, 16)])
def test_padded_frames_are_heard_even_behind_a_mask(adapter: Any, frames: int, bucket: int) -> None:
    """As upstream's wrapper pads: zeros behind the codes, and a mask that hides them from the vocoder's attention."""
    module, drawn = adapter.module, codes(8, frames)
    truth = adapter.forward(drawn)
    length, padded_length = module._compute_vocoder_seq_len(frames), module._compute_vocoder_seq_len(bucket)
    window = tuple(module.config.vocoder_attn_window_size)
    build = module.decoder.vocoder.build_vocoder_attn_mask
    mask = build(padded_length, length, window, torch.device("cpu"), torch.float32)
    padded = module.decode_fixed(torch.nn.functional.pad(drawn, (0, bucket - frames)), bucket, vocoder_attn_mask=mask)
    error = (padded[..., : truth.shape[-1]] - truth).abs()
    assert error.max() > 0.1 * truth.abs().max()
    assert (error.reshape(frames, -1).amax(-1) > 0.01 * truth.abs().max()).all()  # every frame, and not the tail alone


def test_a_row_of_zeros_is_heard(adapter: Any) -> None:
    drawn = codes(8, 7)
    padded = torch.nn.functional.pad(drawn, (0, 0, 0, 4))
    assert (adapter.forward(padded) - adapter.forward(drawn)).abs().max() > 0.1


def test_the_mask_is_heard(adapter: Any) -> None:
    drawn = codes(8, 7)
    unmasked = adapter.module.decode_fixed(drawn, 7)
    assert (adapter.forward(drawn) - unmasked).abs().max() > 0.1


def test_the_trace_is_what_the_packages_processor_cuts() -> None:
    processor: Any = importlib.import_module("vllm_omni.model_executor.stage_input_processors.mimo_audio")
    extra = {"codec_chunk_frames": 30, "codec_left_context_frames": 40}  # in talker steps of 4 frames
    sizes = Counter[int]()
    for frames in (76, 200, 500, 1124):
        request, connector = SimpleNamespace(external_req_id="one"), SimpleNamespace(config={"extra": extra})
        manager = SimpleNamespace(connector=connector, code_prompt_token_ids=defaultdict(list))
        for step in range(frames // 4):
            output = {"codes": {"audio": torch.ones(1, 1, 8, 4, dtype=torch.long)}}
            chunk = processor.llm2code2wav_async_chunk(manager, output, request, is_finished=step == frames // 4 - 1)
            if chunk is not None:
                sizes[chunk.codes.audio.numel() // 9] += 1  # 8 code rows and one of padding
    trace: Any = load_adapters(["mimo_audio"])[0].spec.trace
    assert sizes == Counter({call.sizes["frames"]: call.count for call in trace.calls})
    assert {call.sizes["code_rows"] for call in trace.calls} == {8}


def test_a_checkpoint_is_loaded_by_the_models_own_loader(pytester: pytest.Pytester, tmp_path: Path) -> None:
    spec: Any = load_adapters(["mimo_audio"])[0].spec
    torch.manual_seed(1)
    saved = spec.build(torch.device("cpu"), None).module
    saved.save_pretrained(tmp_path / "checkpoint")
    loaded = spec.build(torch.device("cpu"), tmp_path / "checkpoint").module
    drawn = codes(8, 7)
    assert torch.equal(loaded.decode(drawn), saved.decode(drawn))  # codebooks too, which are buffers
    assert (spec.sample_rate, spec.hop) == (1600, 64)

    records, exit_code = run_suite(
        pytester, "--adapter=mimo_audio", f"--adapter-checkpoint={tmp_path / 'checkpoint'}", "-k", "CG001 or CG201"
    )
    assert exit_code == 0
    assert {record.outcome for record in records} == {Outcome.PASS}
