"""The real MOSS-TTS codec of the installed vllm-omni, with tiny weights and with a checkpoint saved here."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

from conformance.outcome import CaseRecord, Outcome, record_among
from conformance.registry import load_adapters

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module", autouse=True)
def imported_once() -> None:
    """vllm cannot be imported a second time, and pytester forgets what the inner run imported."""
    importlib.import_module("vllm_omni")


def run_suite(pytester: pytest.Pytester, *arguments: str) -> tuple[list[CaseRecord], int]:
    run = pytester.inline_run("--adapter=moss_tts", "-p", "no:cacheprovider", *arguments)
    reports = [report for report in run.getreports("pytest_runtest_logreport") if report.when == "call"]
    records = [record_among(report.user_properties) for report in reports]
    return [record for record in records if record is not None], int(run.ret)


def test_the_real_module_passes_every_check(pytester: pytest.Pytester) -> None:
    records, exit_code = run_suite(pytester)
    assert exit_code == 0
    assert {record.outcome for record in records} == {Outcome.PASS}
    replays = [record.evidence["replays"] for record in records if "replays" in record.evidence]
    assert replays
    assert all(replays)


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

    records, exit_code = run_suite(pytester, f"--adapter-checkpoint={tmp_path / 'checkpoint'}", "-k", "CG201 or CG204")
    assert exit_code == 0
    assert {record.outcome for record in records} == {Outcome.PASS}
