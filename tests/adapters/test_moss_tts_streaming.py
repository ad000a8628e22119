"""The real streaming decoder of the MOSS-TTS codec: what its adapter and spec say of slots, padding and the past."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from conformance.outcome import Outcome
from conformance.registry import load_adapters
from conformance.spec import AdapterSpec
from tests.inner_run import run_suite

pytestmark = pytest.mark.vllm
HOST = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def imported_once() -> None:
    """vllm cannot be imported a second time, and pytester forgets what the inner run imported."""
    importlib.import_module("vllm_omni")


@pytest.fixture
def spec() -> AdapterSpec:
    return load_adapters(["moss_tts_streaming"])[0].spec


@pytest.fixture
def adapter(spec: AdapterSpec) -> Any:
    torch.manual_seed(0)
    return spec.build(HOST, None)


def codes(rows: int, frames: int) -> torch.Tensor:
    return torch.randint(0, 32, (rows, 4, frames), generator=torch.Generator().manual_seed(frames))


def slots(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers)


@pytest.fixture
def no_grad() -> Any:
    with torch.no_grad():
        yield


@pytest.mark.usefixtures("no_grad")
def test_a_reset_slot_streams_what_the_codec_decodes_at_once(adapter: Any) -> None:
    """The offline decoder knows no slots: it is the past that every slot once had."""
    whole = codes(1, 23)
    expected = adapter.module._decode(whole.transpose(0, 1), torch.tensor([23])).audio
    assert expected.abs().max() > 0.1
    adapter.reset(slots(4))
    chunks = [adapter.forward(chunk, slots(4)) for chunk in whole.split([1, 5, 5, 5, 5, 2], dim=-1)]
    assert torch.allclose(torch.cat(chunks, dim=-1), expected, atol=1e-5)


@pytest.mark.usefixtures("no_grad")
def test_frames_of_padding_would_be_remembered(adapter: Any) -> None:
    """Why frames are exact: the chunk itself is right, and the next one is not."""
    first, then = codes(1, 3), codes(1, 5)
    padded = torch.nn.functional.pad(first, (0, 2))
    for slot in (1, 2):
        adapter.reset(slots(slot))
    right, wrong = adapter.forward(first, slots(1)), adapter.forward(padded, slots(2))[..., : 3 * 8]
    assert torch.allclose(wrong, right, atol=1e-5)
    difference = adapter.forward(then, slots(1)) - adapter.forward(then, slots(2))
    assert difference.abs().max() > 0.05


@pytest.mark.usefixtures("no_grad")
def test_rows_that_pad_the_batch_move_scratch_memory_alone(spec: AdapterSpec, adapter: Any) -> None:
    def live() -> Mapping[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in spec.state_tensors(adapter).items()}

    before, scratch = live(), adapter.module._decoder_slot_offsets[:, adapter.streams :].clone()
    audio = adapter.forward(codes(4, 5), slots(-1, -1, -1, -1))
    assert audio.isfinite().all()
    assert all(torch.equal(tensor, before[name]) for name, tensor in live().items())
    assert torch.equal(adapter.module._decoder_slot_offsets[:, adapter.streams :], scratch)


def test_a_call_needs_a_slot_for_each_row(adapter: Any) -> None:
    with pytest.raises(ValueError, match="one slot for each of 2 rows"):
        adapter.forward(codes(2, 5), slots(1))


PADS_WITH_SLOT_ONE = """
import torch

from conformance.registry import load_adapters

Spec = type(load_adapters(["moss_tts_streaming"])[0].spec)


class PadsWithSlotOne(Spec):
    name = "pads_with_slot_one"

    def build(self, device, checkpoint):
        adapter = super().build(device, checkpoint)
        forward = adapter.forward
        adapter.forward = lambda codes, slots: forward(codes, torch.where(slots < 0, 1, slots))
        return adapter
"""


def test_padding_with_a_live_slot_is_found(pytester: pytest.Pytester, tmp_path: Path) -> None:
    path = tmp_path / "spec.py"
    path.write_text(PADS_WITH_SLOT_ONE)
    records, exit_code = run_suite(pytester, f"--adapter={path}", "-k", "CG309 and b3-f5")
    assert exit_code == 1
    assert [record.outcome for record in records] == [Outcome.FAIL]
    assert "of slots [1] as well" in records[0].message


def test_a_checkpoint_is_loaded_by_the_models_own_loader(
    pytester: pytest.Pytester, spec: AdapterSpec, adapter: Any, tmp_path: Path
) -> None:
    adapter.module.save_pretrained(tmp_path / "checkpoint")
    loaded = spec.build(HOST, tmp_path / "checkpoint").module  # type: ignore[attr-defined]
    weights = adapter.module.state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in loaded.state_dict().items())
    records, exit_code = run_suite(
        pytester,
        "--adapter=moss_tts_streaming",
        f"--adapter-checkpoint={tmp_path / 'checkpoint'}",
        *("-k", "CG201 or CG214 or CG306 or CG309 or CG310"),
    )
    assert exit_code == 0
    assert {record.outcome for record in records} == {Outcome.PASS}
