"""What is kept of a call, and when two of them match."""

from __future__ import annotations

import math

import pytest
import torch

from conformance.snapshots.files import MAX_BYTES, decode, encode
from conformance.snapshots.judgement import Judgement, Tier, judge
from conformance.snapshots.record import Record
from tests.snapshots.records import noise, record_of

LONG = 48_000


def judged(found: Record, kept: Record) -> Judgement:
    """Through the bytes of the files, as in a run."""
    from pathlib import Path

    return judge(decode(encode(found), Path("found")), decode(encode(kept), Path("kept")))


def test_the_same_call_gives_the_same_bytes_and_matches() -> None:
    one, other = record_of({"wav": [noise(1, LONG)]}), record_of({"wav": [noise(1, LONG)]})
    assert encode(one) == encode(other)
    assert judged(one, other).matches


@pytest.mark.parametrize(
    "outputs",
    [
        {"wav": [noise(1, 400_000)]},
        {"wav": [noise(2, LONG) for _ in range(64)]},
        {"wav": [noise(1, LONG) for _ in range(600)]},
        {f"out{n}": [noise(1, 3000) for _ in range(16)] for n in range(12)},
        {"wav": [noise(1, LONG)], "codes": [torch.arange(100_000)] * 32, "latents": [noise(512, 300)]},
    ],
    ids=["one long row", "64 stereo rows", "600 rows", "12 outputs", "mixed"],
)
def test_a_file_stays_below_its_budget(outputs: dict[str, list[torch.Tensor]]) -> None:
    record = record_of(outputs, heard=tuple(outputs))
    assert 1000 < len(encode(record)) <= MAX_BYTES
    assert judged(record, record).matches


def test_rounding_within_the_limits_matches_and_more_does_not() -> None:
    wav = noise(1, LONG)
    kept = record_of({"wav": [wav]})
    assert judged(record_of({"wav": [wav * (1 + 5e-6)]}), kept).matches
    drifted = judged(record_of({"wav": [wav * 1.001]}), kept)
    assert not drifted.matches
    assert {one.metric for one in drifted.measures if not one.holds} >= {"max_abs", "l2", "level"}


@pytest.mark.parametrize("at", [0, 24_000, LONG - 1])
def test_a_click_anywhere_in_a_long_signal_is_seen(at: int) -> None:
    wav = noise(1, LONG)
    clicked = wav.clone()
    clicked[0, at] += 3 * float(wav.abs().max())
    assert not judged(record_of({"wav": [clicked]}), record_of({"wav": [wav]})).matches


def test_a_row_whose_samples_are_not_kept_is_still_held_to_its_level() -> None:
    rows = [noise(1, 400, seed=seed) for seed in range(50)]
    changed = [*rows[:1], rows[1] * 1.01, *rows[2:]]
    kept = record_of({"wav": rows})
    assert 1 not in kept.header.outputs["wav"].kept
    assert [(one.row, one.metric) for one in judged(record_of({"wav": changed}), kept).measures if not one.holds] == [
        (1, "level")
    ]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({"wav": [noise(1, 99)]}, "row 0 of 'wav' has shape (1, 99) where the snapshot has (1, 100): 1 samples fewer"),
        ({"wav": [noise(100)]}, "has shape (100,) where the snapshot has (1, 100)"),
        ({"wav": [noise(1, 100)] * 2}, "'wav' has 2 rows where the snapshot has 1"),
        ({"wav": [noise(1, 100).half()]}, "'wav' is float16 where the snapshot has float32"),
        ({"sound": [noise(1, 100)]}, "output 'sound' is new"),
    ],
)
def test_shape_dtype_and_length_are_exact(found: dict[str, list[torch.Tensor]], told: str) -> None:
    judgement = judged(record_of(found), record_of({"wav": [noise(1, 100)]}))
    assert not judgement.matches
    assert told in judgement.problems[0]
    assert told in "\n".join(judgement.table())


def test_integers_are_exact_however_many() -> None:
    codes = torch.arange(100_000)
    changed = codes.clone()
    changed[77_777] += 1
    kept = record_of({"codes": [codes]}, heard=())
    assert judged(record_of({"codes": [codes]}, heard=()), kept).matches
    assert judged(record_of({"codes": [changed]}, heard=()), kept).problems == (
        "rows [0] of 'codes' hold other integers than the snapshot",
    )


def test_nan_and_silence_never_match_not_even_themselves() -> None:
    broken = noise(1, 100)
    broken[0, 50] = math.nan
    for wav, word in ((broken, "not finite"), (torch.zeros(1, 100), "silent"), (noise(1, 100) * 1e-5, "silent")):
        record = record_of({"wav": [wav]})
        assert word in judged(record, record).problems[0]
    mask = record_of({"wav": [noise(1, 100)], "mask": [torch.zeros(100)]})
    assert judged(mask, mask).matches
    nothing = record_of({"wav": [torch.zeros(1, 0), noise(1, 100)]})
    assert judged(nothing, nothing).matches


def test_other_inputs_or_another_seed_are_told_as_such() -> None:
    kept = record_of({"wav": [noise(1, 100)]})
    other = {"codes": torch.arange(12).reshape(1, 4, 3) + 1}
    assert judged(record_of({"wav": [noise(1, 100)]}, inputs=other), kept).problems == (
        "input 'codes' has other values than the snapshot's",
    )
    assert "of seed 0, the call of seed 3" in judged(record_of({"wav": [noise(1, 100)]}, seed=3), kept).problems[0]
    latents = {"x": noise(4, 100)}
    rounded = {"x": noise(4, 100) * (1 + 1e-7)}
    outputs = {"wav": [noise(1, 100)]}
    assert judged(record_of(outputs, inputs=rounded), record_of(outputs, inputs=latents)).matches
    drawn_anew = {"x": noise(4, 100, seed=1)}
    assert not judged(record_of(outputs, inputs=drawn_anew), record_of(outputs, inputs=latents)).matches


def test_another_device_class_is_held_to_the_loose_limits_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    wav = noise(1, LONG)
    kept = record_of({"wav": [wav]})
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    near = judged(record_of({"wav": [wav * 1.0005]}, device="cuda"), kept)
    assert near.matches
    assert near.tier is Tier.LOOSE
    assert near.evidence()["against"] == "emulated"
    assert not judged(record_of({"wav": [wav * 1.01]}, device="cuda"), kept).matches
    assert not judged(record_of({"wav": [wav[:, :-1]]}, device="cuda"), kept).matches


@pytest.mark.parametrize("difference", [{"random": True}, {"weights": 1.2}])
def test_what_another_device_draws_otherwise_is_not_compared_there_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, difference: dict[str, float]
) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    kept = record_of({"wav": [noise(1, LONG)]}, random="random" in difference)
    found = record_of({"wav": [noise(1, LONG, seed=1)]}, device="cuda", **difference)  # type: ignore[arg-type]
    judgement = judged(found, kept)
    assert judgement.matches
    assert "draw" in judgement.uncompared
    assert judgement.evidence()["uncompared"] == judgement.uncompared
    here = judged(record_of({"wav": [noise(1, LONG, seed=1)]}, **difference), kept)  # type: ignore[arg-type]
    assert not here.matches


def test_low_precision_is_held_to_what_it_can_say() -> None:
    wav = noise(1, 2000).bfloat16()
    kept = record_of({"wav": [wav]})
    assert kept.header.outputs["wav"].strict.max_abs == pytest.approx(8 * 2**-7)
    assert judged(record_of({"wav": [(wav.float() * 1.003).bfloat16()]}), kept).matches
    assert not judged(record_of({"wav": [(wav.float() * 1.2).bfloat16()]}), kept).matches


def test_complex_outputs_and_scalars_are_kept() -> None:
    spectrum = torch.complex(noise(3, 20), noise(3, 20, seed=1))
    record = record_of({"wav": [spectrum], "gain": [torch.tensor(0.5)]}, heard=())
    assert judged(record, record).matches
    changed = record_of({"wav": [spectrum], "gain": [torch.tensor(0.6)]}, heard=())
    assert not judged(changed, record).matches


def test_the_table_is_small_and_puts_what_is_over_first() -> None:
    rows = [noise(1, 200, seed=seed) for seed in range(20)]
    judgement = judged(record_of({"wav": [row * 1.01 for row in rows]}), record_of({"wav": rows}))
    table = judgement.table()
    assert table[0].split() == ["output", "row", "metric", "found", "limit"]
    assert len(table) == 5
    assert table[1].endswith("over")
