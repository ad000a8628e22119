"""Is what was found what eager gives, and if not: where, how far, and what that pattern usually means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from conformance.catalogue import CheckFailed
from conformance.waveform import waveform

if TYPE_CHECKING:
    from conformance.subject import Outputs, Subject

QUIETEST = 1e-3  # a peak below this hides every fault: default-initialised codecs give 1e-7


@dataclass(frozen=True)
class Advice:
    """What a check says when its comparison fails: the cause that it was made to find, and its cure."""

    likely: str
    cure: str


@dataclass(frozen=True)
class Agreement:
    """How well found and expected agreed."""

    rows: int
    samples: int
    bit_equal: bool
    max_error: float

    def evidence(self) -> Mapping[str, Any]:
        return {
            "rows": self.rows,
            "samples": self.samples,
            "bit_equal": self.bit_equal,
            "max_error": self.max_error,
        }


@dataclass(frozen=True)
class _Row:
    """One row of one output under comparison: what a failure of it names and shows."""

    code: str
    subject: Subject
    output: str
    number: int
    padded_frames: int | None

    def __str__(self) -> str:
        return f"row {self.number} of {self.output!r}"

    def milliseconds(self, samples: int) -> str:
        return f"{samples / self.subject.spec.sample_rate * 1e3:.1f} ms"

    def picture(self, found: torch.Tensor, expected: torch.Tensor, wrong: tuple[int, int]) -> Mapping[str, Any]:
        """Evidence for a report's picture. The bucket ends as many hops after eager as frames were padded."""
        edges = {"actual": expected.shape[-1]}
        if self.padded_frames is not None and self.output in self.subject.lasting_outputs():
            edges["bucket"] = edges["actual"] + self.padded_frames * self.subject.spec.hop
        return waveform(found, expected, wrong, sample_rate=self.subject.spec.sample_rate, edges=edges)


def require_equal(
    code: str,
    subject: Subject,
    found: Outputs,
    expected: Outputs,
    advice: Advice,
    *,
    prefix: bool = False,
    same_shape: bool = False,
    padded_frames: int | None = None,
) -> Agreement:
    """Raise :class:`CheckFailed` unless every row of `found` is what eager gave.

    With `prefix`, a found row may go on after the expected one ends: the caller knows how much of it is theirs.
    `same_shape` says that nothing was padded, so that eager computed the very same and only its own repeats may differ.
    `padded_frames` says by how much a bucket padded the call: a failure's picture then marks where the bucket ends.
    """
    samples, worst, bit_equal, rows = 0, 0.0, True, 0
    for name, expected_rows in expected.items():
        found_rows = found[name]
        if len(found_rows) != len(expected_rows):
            raise CheckFailed(
                code,
                f"{len(found_rows)} rows of {name!r} where eager gives {len(expected_rows)}",
                likely="rows that only pad the batch were not trimmed, or real ones were dropped  (class A)",
                cure="slice the output's batch axis to the caller's batch",
            )
        for number, (one, truth) in enumerate(zip(found_rows, expected_rows, strict=True)):
            rows += 1
            samples += truth.numel()
            error = _require_row(
                _Row(code, subject, name, number, padded_frames), one, truth, advice, prefix, same_shape
            )
            worst = max(worst, error)
            bit_equal = bit_equal and error == 0.0
    return Agreement(rows, samples, bit_equal, worst)


def _require_row(
    row: _Row, found: torch.Tensor, expected: torch.Tensor, advice: Advice, prefix: bool, same_shape: bool
) -> float:
    if not expected.dim():
        found, expected = found.reshape(-1), expected.reshape(-1)
    if found.dtype != expected.dtype:
        raise CheckFailed(
            row.code,
            f"{row} is {found.dtype} where eager gives {expected.dtype}",
            likely="a static buffer was made in another dtype than the module returns  (class I)",
            cure="clone the module's own output; never copy it into a buffer of a fixed dtype",
        )
    if prefix and found.shape[-1] > expected.shape[-1]:
        found = found[..., : expected.shape[-1]]
    if found.shape != expected.shape:
        raise _wrong_length(row, found, expected)
    if not torch.isfinite(found).all():
        wrong = _span(~torch.isfinite(found))
        raise CheckFailed(
            row.code,
            f"{row} is not finite from sample {wrong[0]} ({row.milliseconds(wrong[0])}) on",
            likely="memory that no replay wrote was returned, or NaN in the padding reaches real samples  (class B, D)",
            cure="replay before reading the outputs, and reset every pad of the static buffers before each replay",
            evidence=row.picture(found, expected, wrong),
        )
    if torch.equal(found, expected):
        return 0.0
    difference = (found.double() - expected.double()).abs()
    error = float(difference.max())
    allowed = row.subject.noise.allowance(expected, same_shape=same_shape)
    if error <= allowed:
        return error
    beyond = difference > allowed
    wrong, length, hop = _span(beyond), expected.shape[-1], row.subject.spec.hop
    frames = beyond.reshape(-1, length).any(0).nonzero().flatten() // hop
    total_frames = -(-length // hop)
    raise CheckFailed(
        row.code,
        f"{row} is wrong from sample {wrong[0]} ({row.milliseconds(wrong[0])}) of {length}: max error "
        f"{error:.2g} on a peak of {float(expected.double().abs().max()):.2g} (allowed {allowed:.1g}); "
        f"{len(frames.unique())} of {total_frames} frames differ",
        likely=advice.likely,
        cure=advice.cure,
        evidence={
            "max_error": error,
            "allowed": allowed,
            "first_wrong_sample": wrong[0],
            "samples": length,
            **row.picture(found, expected, wrong),
        },
    )


def _wrong_length(row: _Row, found: torch.Tensor, expected: torch.Tensor) -> CheckFailed:
    surplus = found.shape[-1] - expected.shape[-1] if found.dim() == expected.dim() else 0
    if not surplus or found.shape[:-1] != expected.shape[:-1]:
        where = f"{row} has shape {tuple(found.shape)} where eager gives {tuple(expected.shape)}"
        return CheckFailed(row.code, where, likely="the output was reshaped or trimmed on a wrong axis  (class A)")
    told = "kept" if surplus > 0 else "lost"
    shorter, longer = sorted((found.shape[-1], expected.shape[-1]))
    return CheckFailed(
        row.code,
        f"{row} {told} {abs(surplus)} samples ({row.milliseconds(abs(surplus))}) "
        f"{'past' if surplus > 0 else 'before'} eager's end: {found.shape[-1]} samples where eager gives "
        f"{expected.shape[-1]}",
        likely="the trim's formula is not the module's output length  (class A)",
        cure="declare the contract that matches: a·T − c is CapturedMinusPadding(scale=a), a·T is Nominal(scale=a)",
        evidence={
            "found_samples": found.shape[-1],
            "expected_samples": expected.shape[-1],
            **row.picture(found, expected, (shorter, longer - 1)),
        },
    )


def _span(wrong: torch.Tensor) -> tuple[int, int]:
    """The first and the last sample, over all channels, where `wrong` `[..., samples]` is true."""
    places = wrong.reshape(-1, wrong.shape[-1]).any(0).nonzero().flatten()
    return int(places[0]), int(places[-1])
