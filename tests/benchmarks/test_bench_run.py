"""Benchmarks run where asked for, count what they promise, and leave an ordinary run as it is. Nothing is timed."""

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.bench.measure import Rounds, Times
from conformance.bench.timer import PlainTimer
from conformance.catalogue import CheckFailed, Level, Machine, load_catalogue
from conformance.checks.speed import judge_times
from conformance.cli import main
from conformance.emulation import emulated_cuda
from conformance.outcome import Outcome
from conformance.report.document import read_report

ADAPTER = "--adapter=tests.mutants.base:ReferenceSpec"
SHORT = ("--benchmark-only", "--benchmark-max-time=0.001", "--benchmark-min-rounds=1")
PATHS = {"b1-f4": "exact", "b1-f7": "padded", "b3-f8": "padded", "b5-f8": "fallback"}


def collected(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    run = pytester.runpytest_subprocess("-p", "conformance.plugin", "--collect-only", "-q", ADAPTER, *arguments)
    return [line for line in run.outlines if "/CG" in line]


def test_an_ordinary_run_has_no_case_of_speed(pytester: pytest.Pytester) -> None:
    ordinary = collected(pytester)
    alone = collected(pytester, "--benchmark-only")
    assert alone == [f"correct_reference/CG801-speed[{case}]" for case in PATHS]
    assert collected(pytester, "--benchmark-enable") == ordinary + alone
    assert not any("CG8" in nodeid for nodeid in ordinary)


def test_a_benchmark_run_counts_what_replays_save_and_ends_with_the_sentence(pytester: pytest.Pytester) -> None:
    result = pytester.path / "result.json"
    report = pytester.path / "run.json"
    run = pytester.runpytest_subprocess(
        *("-p", "conformance.plugin", ADAPTER, *SHORT, f"--benchmark-json={result}", f"--conformance-json={report}")
    )
    (subject,) = read_report(report).subjects
    assert [record.check for record in subject.cases] == ["CG801-speed"] * len(PATHS)
    assert {record.outcome for record in subject.cases} <= {Outcome.PASS, Outcome.FAIL}  # the clock is not tested here
    assert run.ret in (0, 1)
    assert run.outlines[-1].startswith("correct_reference: ")
    assert f" in the {len(PATHS)} of " in run.outlines[-1]
    found = {row["param"]: row for row in json.loads(result.read_text())["benchmarks"]}
    assert {case: row["extra_info"]["path"] for case, row in found.items()} == PATHS
    for case, row in found.items():
        figures = row["extra_info"]
        replays = PATHS[case] != "fallback"
        assert (figures["module_calls_saved"] > 0) == replays
        assert (figures["operator_calls_saved"] > 0) == replays
        assert (figures["captures_after_warmup"], figures["bytes_grown"]) == (0, 0)
        assert len(figures["costs"]) >= row["stats"]["rounds"] >= 20
        assert ("blocks" in figures, "graph_seconds" in figures) == (replays, False)
        assert all(min(block) > 0 and len(block) == 3 for block in figures.get("blocks", ()))
        assert figures["device"] == "emulated"
        for least, middle, most in (("ratio_q1", "ratio", "ratio_q3"), ("eager_q1", "eager_median", "eager_q3")):
            assert 0 < figures[least] <= figures[middle] <= figures[most]
        assert ("capture_seconds" in figures) == ("capture_bytes" in figures) == replays
    assert found["b3-f8"]["extra_info"]["padded_share"] == 0.25
    assert found["b3-f8"]["extra_info"]["bucket"] == "b4-f8"
    assert found["b3-f8"]["extra_info"]["capture_bytes"] > 0
    assert main(["bench-compare", str(result), str(result)]) in (0, 6)


@pytest.mark.parametrize("asked", ["--benchmark-only", "--benchmark-enable"])
def test_a_distributed_benchmark_run_is_refused_in_one_line(pytester: pytest.Pytester, asked: str) -> None:
    run = pytester.runpytest_subprocess("-p", "conformance.plugin", ADAPTER, asked, "-n", "2")
    assert run.ret == 4
    assert "benchmarks run in one process" in run.stderr.str() + run.stdout.str()


def test_rounds_are_even_and_within_their_bounds() -> None:
    timer = PlainTimer(seconds=1.0, fewest=5, most=99)
    assert [timer.rounds(each) for each in (10.0, 0.1, 1e-9)] == [6, 10, 100]


@pytest.mark.parametrize("order", ["eggeegge", "eghhgeeghhge"])
def test_eager_and_graphed_calls_take_turns_at_going_first(order: str) -> None:
    said: list[str] = []
    hand: Any = (lambda: said.append("h")) if "h" in order else None
    subject: Any = SimpleNamespace(
        fresh_start=lambda: None, raw=lambda _: said.append("g"), eager_as_served=lambda _: said.append("e")
    )
    with emulated_cuda():
        rounds = Rounds(subject, {}, None, hand)
        for _ in range(4):
            rounds.before()
            rounds.graphed()
            rounds.after()
    assert "".join(said) == order
    assert len(rounds.times.eager) == len(rounds.times.graphed) == 4
    assert len(rounds.times.hand) == order.count("h")


def test_ratios_are_taken_round_by_round() -> None:
    times = Times(eager=[2.0, 4.0], graphed=[1.0, 1.0], full=[4.0, 8.0])
    assert (times.speedups, times.costs, times.costs_at_bucket) == ([2.0, 4.0], [0.5, 0.25], [0.25, 0.125])


@pytest.mark.parametrize(
    ("device", "eager", "wanted", "passes"),
    [("cuda", 1.9, 1.0, True), ("cuda", 1.9, 2.0, False), ("cuda", 0.9, 1.0, False), ("emulated", 0.9, 1.0, False)],
)
def test_the_gate_is_the_declared_speedup_on_a_gpu_and_1_on_the_emulation(
    device: str, eager: float, wanted: float, passes: bool
) -> None:
    subject: Any = SimpleNamespace(machine=Machine(device, "", ""), spec=SimpleNamespace(min_speedup=wanted))
    times = Times(eager=[eager] * 20, graphed=[1.0] * 20)
    with contextlib.nullcontext() if passes else pytest.raises(CheckFailed):
        judge_times(subject, times, "exact")


def test_the_checks_of_speed_are_of_level_performance() -> None:
    assert {check.code for check in load_catalogue() if check.level is Level.PERFORMANCE} == {"CG801"}
