"""The real MOSS-TTS codec of the installed vllm-omni, with tiny weights and with a checkpoint saved here."""

from __future__ import annotations

import importlib
from pathlib import Path

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


def test_every_parity_of_the_real_module_is_of_a_replay(pytester: pytest.Pytester) -> None:
    parity = "CG201 or CG202 or CG203 or CG204"
    records, exit_code = run_suite(pytester, "--adapter=moss_tts", "-k", f"{parity} or CG214 or CG309 or CG310")
    assert exit_code == 0
    left_out = [record.code for record in records if record.outcome is Outcome.NOT_APPLICABLE]
    assert left_out == ["CG214", "CG309", "CG310"]  # it claims neither streaming nor state in slots
    compared = [record for record in records if record.code in parity]
    assert len(compared) > 20
    assert all(record.outcome is Outcome.PASS and record.evidence["replays"] for record in compared)


def test_a_checkpoint_is_loaded_by_the_models_own_loader(pytester: pytest.Pytester, tmp_path: Path) -> None:
    spec = load_adapters(["moss_tts"])[0].spec
    torch.manual_seed(1)
    saved = spec.build(torch.device("cpu"), None).module  # type: ignore[attr-defined]
    saved.save_pretrained(tmp_path / "checkpoint")
    loaded = spec.build(torch.device("cpu"), tmp_path / "checkpoint").module  # type: ignore[attr-defined]
    weights = saved.state_dict()
    assert weights.keys() == loaded.state_dict().keys()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in loaded.state_dict().items())
    assert (spec.sample_rate, spec.hop) == (800, 8)

    records, exit_code = run_suite(
        pytester, "--adapter=moss_tts", f"--adapter-checkpoint={tmp_path / 'checkpoint'}", "-k", "CG201 or CG204"
    )
    assert exit_code == 0
    assert {record.outcome for record in records} == {Outcome.PASS}
