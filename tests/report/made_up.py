"""Runs that nobody made: reports with every outcome, pictures and figures, to try the writers on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from conformance.catalogue import load_catalogue
from conformance.outcome import CaseRecord, Outcome
from conformance.registry import bundled_folder, load_file
from conformance.report.document import RunReport, make_report
from conformance.report.speed import Benchmark, HistoryPoint
from conformance.waveform import waveform

RATE, HOP = 24_000, 480
KNOWN = {
    "reason": "The tail is known since 0.29: the trim counts frames, and the module gives fewer samples.",
    "issue": "https://github.com/vllm-project/vllm-omni/issues/4571",
    "until": "2027-06-30",
}
SPEC = load_file(bundled_folder() / "reference" / "spec.py")


def sound(samples: int, seed: int = 0) -> torch.Tensor:
    """`[1, samples]`: something like a vowel."""
    time = torch.arange(samples, dtype=torch.float64) / RATE
    pitch = 110.0 + 7 * seed
    harmonics = sum(torch.sin(2 * math.pi * pitch * n * time + n * seed) / n for n in range(1, 6))
    return (0.25 * harmonics * (0.6 + 0.4 * torch.sin(2 * math.pi * 3 * time)))[None].float()


def clicks(samples: int = 24_000, at: int = 13_777, seed: int = 0) -> dict[str, Any]:
    """Evidence of a replay with one click in a second of sound."""
    expected = sound(samples, seed)
    found = expected.clone()
    found[..., at : at + 9] += 0.4
    edges = {"actual": samples, "bucket": samples + 4 * HOP}
    picture = waveform(found, expected, (at, at + 8), sample_rate=RATE, edges=edges)
    return {"max_error": 0.4, "allowed": 1e-6, "first_wrong_sample": at, "samples": samples, **picture}


def surplus(samples: int = 1900, extra: int = 555, seed: int = 0) -> dict[str, Any]:
    """Evidence of a replay that goes on past eager's end."""
    found = sound(samples + extra, seed)
    edges = {"actual": samples, "bucket": samples + 2 * HOP}
    wrong = (samples, samples + extra - 1)
    picture = waveform(found, found[..., :samples], wrong, sample_rate=RATE, edges=edges)
    return {"found_samples": samples + extra, "expected_samples": samples, **picture}


def drifts(samples: int = 9_600, at: int = 6_000, seed: int = 0) -> dict[str, Any]:
    """Evidence of a replay in which the padding is heard towards the end."""
    expected = sound(samples, seed)
    rise = torch.clamp(torch.arange(samples) - at, min=0) / (samples - at)
    found = expected * (1 - 0.7 * rise) + 0.2 * rise * sound(samples, seed + 5)
    edges = {"actual": samples, "bucket": samples + 12 * HOP}
    picture = waveform(found, expected, (at, samples - 1), sample_rate=RATE, edges=edges)
    return {"max_error": 0.31, "allowed": 1e-6, "first_wrong_sample": at, "samples": samples, **picture}


FAULTS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "CG203-padded-bucket": (
        "row 0 of 'wav' kept 555 samples (23.1 ms) past eager's end: 2455 samples where eager gives 1900",
        "the trim's formula is not the module's output length  (class A)",
        "declare the contract that matches: a·T − c is `CapturedMinusPadding(scale=a)`, a·T is `Nominal(scale=a)`",
        surplus(),
    ),
    "CG301-output-aliasing": (
        "row 0 of 'wav' is wrong from sample 13777 (574.0 ms) of 24000: max error 0.4 on a peak of 0.5",
        "a later replay wrote over a result that was handed out  (class D)",
        "clone what the caller gets",
        clicks(),
    ),
    "CG206-poisoned-buffers": (
        "row 1 of 'wav' is wrong from sample 6000 (250.0 ms) of 9600: max error 0.31 on a peak of 0.5",
        "padded frames reach real ones: something normalises or attends over time  (class B)",
        "declare the axis exact, or mask the padding before it is normalised",
        drifts(),
    ),
}


def _evidence(record: CaseRecord) -> dict[str, Any]:
    if record.code == "CG407":
        return {"calls": 120, "hit_rate": 0.992, "padded_share": 0.143, "sizes": 31}
    if record.code == "CG501" and record.case == "bytes":
        sizes = {"b1-f4": 8_192, "b1-f8": 16_384, "b4-f8": 65_536}
        return {
            "largest_alone": {"live": 41_943_040, "taken": 62_914_560, "captures": 1},
            "all_buckets": {"live": 48_234_496, "taken": 71_303_168, "captures": 3},
            "static_bytes": sum(sizes.values()),
            "static_bytes_by_bucket": sizes,
        }
    if record.code == "CG205" and record.case == "frames":
        return {"by_size": {f"b1-f{n}": ["b1-f4" if n < 5 else "b1-f8", n * 1e-8] for n in range(1, 9)}}
    return {"max_error": (len(record.case) % 4) * 3e-8, "replays": 1}


def _cases(name: str) -> Iterator[CaseRecord]:
    listed = [(check, case) for check in load_catalogue() for case in check.cases(SPEC)]
    for check, case in listed:
        made = CaseRecord(
            name,
            check.name,
            check.title,
            case.id,
            Outcome.PASS,
            machine="emulated CUDA",
            torch="2.13.0",
            planned=len(listed),
            seconds=0.04,
        )
        command = (
            f'pytest --adapter={name} --graph-device=emulated -k "{made.id.partition("/")[2]}" --conformance-seed=0'
        )
        yield replace(made, repeat=command, evidence=_evidence(made))


def _failing(record: CaseRecord, outcome: Outcome = Outcome.FAIL) -> CaseRecord:
    found, likely, cure, evidence = FAULTS[record.check]
    known = KNOWN if outcome is Outcome.XFAIL else {}
    return replace(record, outcome=outcome, message=found, likely=likely, cure=cure, evidence=evidence, known=known)


def subject(name: str, number: int = 0) -> list[CaseRecord]:
    """A subject's records: one of five subjects fails in three checks, and one of seven is odd in other ways."""
    records = list(_cases(name))
    if number % 5 == 1:
        first = {check: next(record for record in records if record.check == check) for check in FAULTS}
        records = [_failing(record) if record is first.get(record.check) else record for record in records]
    if number % 7 == 2:
        for check, outcome, why in (
            ("CG103-host-sync", Outcome.BLOCKED, "no CUDA device on this machine"),
            ("CG214-streaming", Outcome.NOT_APPLICABLE, "streaming is unsupported: chunks are decoded whole"),
            ("CG302-survive", Outcome.ERROR, "RuntimeError: the pool is gone\n  in close\n  <script>alert(1)</script>"),
            ("CG304-inputs-unchanged", Outcome.XPASS, "it passes, and is declared a known failure: delete that entry"),
        ):
            records = [replace(r, outcome=outcome, message=why) if r.check == check else r for r in records]
        known = next(record for record in records if record.check == "CG203-padded-bucket")
        records = [_failing(record, Outcome.XFAIL) if record is known else record for record in records]
    return records


def report(subjects: int = 20, *, speed: bool = True) -> RunReport:
    """A whole run of so many subjects, of which the second fails and the third shows every other outcome."""
    names = [f"codec_{number:02d}" for number in range(subjects)]
    records = [record for number, name in enumerate(names) for record in subject(name, number)]
    packages = {name: {"vllm-omni": "0.30.0"} for name in names}
    made = make_report(names, records, seed=0, device="emulated", packages=packages)
    return replace(made, benchmarks=tuple(_benchmarks(names[:3])), history=tuple(_history())) if speed else made


def _benchmarks(names: list[str]) -> Iterator[Benchmark]:
    for name in names:
        for case, bucket, eager, replay in (("b1-f4", "b1-f4", 812.0, 143.0), ("b1-f7", "b1-f8", 905.0, 171.5)):
            path = "replay exact" if case == bucket else "replay padded"
            yield Benchmark(name, case, "eager", eager, eager - 20, eager + 31, 40, bucket)
            yield Benchmark(name, case, path, replay, replay - 3, replay + 9, 40, bucket, 3_145_728, 0.21)
        yield Benchmark(name, "b5-f8", "fallback", 1_420.0, 1_395.0, 1_467.0, 40)


def _history() -> Iterator[HistoryPoint]:
    for number in range(24):
        wobble = 143.0 + 3 * math.sin(number * 1.7) + (14 if number > 19 else 0)
        yield HistoryPoint(f"{number:07x}", f"2026-10-{number + 1:02d}", "NVIDIA H200", "moss_tts replay b1-f4", wobble)
