"""The same-job gate on runs of its own on two H200s, each in a fresh process, whose host was busy with others' work.

`plain` are runs of the reference adapter as it is; in `slower` each graphed call began with a wait of a tenth of its
time. They were made in turn, at the default time a case.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise, permutations, product
from pathlib import Path
from typing import Any

import pytest

from conformance.bench.compare import DEFAULT_LIMIT, Change, compare_results
from conformance.bench.results import Result, read_result
from tests.benchmarks.made_up import benchmark, write_result

RECORDED = json.loads((Path(__file__).parent / "data" / "h200.json").read_text())["gpus"]
Runs = dict[str, dict[str, list[Result]]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """By GPU, and by `plain` and `slower`, in the order that they were made in."""
    folder = tmp_path_factory.mktemp("runs")

    def result(run: dict[str, Any], name: str) -> Result:
        rows = [benchmark(f"reference/CG801-speed[{case}]", None, **made) for case, made in run.items()]
        return read_result(write_result(folder / f"{name}.json", *rows))

    return {
        gpu: {kind: [result(run, f"{gpu}-{kind}-{at}") for at, run in enumerate(made)] for kind, made in kinds.items()}
        for gpu, kinds in RECORDED.items()
    }


def exit_codes(pairs: Iterable[tuple[Result, Result]]) -> Counter[int]:
    return Counter(compare_results(base, head, DEFAULT_LIMIT).exit_code for base, head in pairs)


def test_no_change_is_reported_as_one_in_at_most_1_of_20(runs: Runs) -> None:
    found = exit_codes(pair for kinds in runs.values() for pair in pairwise(kinds["plain"]))
    assert found.total() == 20
    assert found[1] <= 1


def test_a_slowdown_of_a_tenth_is_reported_in_19_of_20(runs: Runs) -> None:
    pairs = [pair for kinds in runs.values() for pair in zip(kinds["plain"], kinds["slower"], strict=False)]
    found = exit_codes(pairs)
    assert found.total() == 20
    assert found[1] >= 19


def test_no_change_is_seldom_reported_as_one_between_any_two_runs_of_one_gpu(runs: Runs) -> None:
    found = exit_codes(pair for kinds in runs.values() for pair in permutations(kinds["plain"], 2))
    assert found[1] <= found.total() / 20


def test_a_slowdown_of_a_tenth_is_seen_in_each_benchmark_of_any_two_runs(runs: Runs) -> None:
    found = Counter[tuple[str, Change]]()
    for kinds in runs.values():
        for base, head in product(kinds["plain"], kinds["slower"]):
            compared = compare_results(base, head, DEFAULT_LIMIT).compared
            found.update((one.name, one.change) for one in compared if base.benchmarks[one.name].blocks)
    for name in {name for name, _ in found}:
        assert found[name, Change.REGRESSED] >= 19 / 20 * sum(found[name, change] for change in Change)


def test_replay_over_eager_alone_would_cry_wolf_and_miss_the_wolf(runs: Runs) -> None:
    def alone(result: Result) -> Result:
        made = {name: replace(t, blocks=(), graph_seconds=None) for name, t in result.benchmarks.items()}
        return replace(result, benchmarks=made)

    found = Counter[Change]()
    for kinds in runs.values():
        for base, head in permutations(kinds["plain"], 2):
            compared = compare_results(alone(base), alone(head), DEFAULT_LIMIT).compared
            found.update(one.change for one in compared)
    assert found[Change.OK] < found.total() * 3 / 4
