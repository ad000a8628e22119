"""The same-job gate finds what got slower, keeps quiet where nothing did, and compares like with like only."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conformance.bench.compare import DEFAULT_LIMIT, Change, judge_ratio, ratio_of
from conformance.bench.figures import Quartiles
from conformance.cli import main
from tests.benchmarks.made_up import NAME, benchmark, costs, write_result

RUNS = range(20)


def verdicts(slower: float, noise: float, rounds: int) -> Counter[Change]:
    return Counter(
        judge_ratio(
            ratio_of(
                costs(2 * seed, rounds=rounds, noise=noise),
                costs(2 * seed + 1, slower=slower, rounds=rounds, noise=noise),
            ),
            DEFAULT_LIMIT,
        )
        for seed in RUNS
    )


@pytest.mark.parametrize(("noise", "rounds"), [(0.01, 40), (0.03, 100), (0.05, 400)])
def test_a_slowdown_of_a_tenth_is_found_in_19_of_20_runs(noise: float, rounds: int) -> None:
    assert verdicts(1.1, noise, rounds)[Change.REGRESSED] >= 19


@pytest.mark.parametrize(("noise", "rounds"), [(0.01, 40), (0.03, 100), (0.05, 400)])
def test_no_change_is_ok_in_19_of_20_runs(noise: float, rounds: int) -> None:
    assert verdicts(1.0, noise, rounds)[Change.OK] >= 19


@pytest.mark.parametrize("rounds", [20, 40, 100])
def test_a_noisy_machine_gives_undecided_and_no_alarm(rounds: int) -> None:
    found = verdicts(1.0, 0.2, rounds)
    assert found[Change.REGRESSED] <= 1
    assert found[Change.UNDECIDED] >= 10


def test_a_machine_that_is_slower_in_one_run_changes_nothing() -> None:
    assert ratio_of([0.5] * 20, [0.5] * 30) == Quartiles(1.0, 1.0, 1.0)


def floors(graphed: float, by_hand: float) -> dict[str, float]:
    return {"graphed_floor": graphed, "by_hand_floor": by_hand}


@pytest.mark.parametrize(
    ("slower", "graphed", "by_hand", "exit_code"),
    [
        (1.0, 1.0, 1.0, 0),
        (1.1, 1.1, 1.0, 1),  # the replay is slower
        (0.8, 1.3, 1.1, 6),  # the host is slower, which eager suffers from most: no regression is ruled out
        (1.3, 0.9, 0.95, 6),  # most calls are slower, and the fastest are not
        (1.1, 1.1, 1.1, 6),  # and so is everything else, but eager
    ],
)
def test_the_fastest_calls_and_the_medians_must_agree(
    tmp_path: Path, slower: float, graphed: float, by_hand: float, exit_code: int
) -> None:
    base = [benchmark(made=costs(0), **floors(1e-4, 8e-5))]
    head = [benchmark(made=costs(1, slower=slower), **floors(1e-4 * graphed, 8e-5 * by_hand))]
    assert gate(tmp_path, base, head) == exit_code


@pytest.mark.parametrize("median", [3e-4, 4e-4])
def test_eager_that_got_faster_is_no_regression(tmp_path: Path, median: float) -> None:
    base = [benchmark(made=costs(0), **floors(1e-4, 8e-5))]
    head = [benchmark(made=costs(1, slower=1.3), **floors(1e-4, 8e-5))]
    for one in (base[0], head[0]):
        one["stats"] |= {"q1": 0.9 * median, "median": median, "q3": 1.1 * median}
    assert gate(tmp_path, base, head) == 0


@pytest.mark.parametrize("extra", [{"graphed_floor": 1e-4}, floors(10**400, 1e-4), floors(0.0, 1e-4)])
def test_damaged_floors_are_refused(tmp_path: Path, extra: dict[str, float]) -> None:
    head = [benchmark(made=costs(1), **extra)]
    assert gate(tmp_path, [benchmark(made=costs(0))], head) == 4


def test_results_without_the_fastest_by_hand_are_compared_with_eager_alone(tmp_path: Path) -> None:
    head = [benchmark(made=costs(1, slower=1.1), **floors(1e-4, 8e-5))]
    assert gate(tmp_path, [benchmark(made=costs(0))], head) == 1


@pytest.mark.parametrize(
    ("quartiles", "change"),
    [
        ((1.06, 1.08, 1.30), Change.REGRESSED),
        ((0.80, 1.00, 1.05), Change.OK),
        ((1.00, 1.04, 1.08), Change.UNDECIDED),
        ((1.04, 1.06, 1.07), Change.REGRESSED),
        ((1.03, 1.04, 1.06), Change.OK),
    ],
)
def test_the_quartiles_decide(quartiles: tuple[float, float, float], change: Change) -> None:
    assert judge_ratio(Quartiles(*quartiles), 0.055) is change


def gate(tmp_path: Path, base: list[Any], head: list[Any], *options: str, node: str = "host") -> int:
    one = write_result(tmp_path / "base.json", *base)
    return main(["bench-compare", str(one), str(write_result(tmp_path / "head.json", *head, node=node)), *options])


def test_ok_regressed_and_undecided_have_their_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate(tmp_path, [benchmark()], [benchmark(made=costs(1))]) == 0
    assert gate(tmp_path, [benchmark()], [benchmark(made=costs(1, slower=1.1))]) == 1
    assert gate(tmp_path, [benchmark(made=costs(0, noise=0.3))], [benchmark(made=costs(1, noise=0.3))]) == 6
    told = capsys.readouterr().out
    assert f"regressed  {NAME}  +" in told
    assert "quartiles" in told
    assert "limit +5.5 %: 0 regressed" not in told


@pytest.mark.parametrize(("limit", "exit_code"), [("12.5%", 0), ("2.5", 1), ("0%", 4), ("much", 4), ("nan%", 4)])
def test_the_limit_is_a_percentage_with_a_fraction(tmp_path: Path, limit: str, exit_code: int) -> None:
    head = [benchmark(made=costs(1, slower=1.07, noise=0.01))]
    assert gate(tmp_path, [benchmark(made=costs(0, noise=0.01))], head, f"--fail-above={limit}") == exit_code


def test_vanished_and_new_benchmarks_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = benchmark("toy/CG801-speed[b1-f9]")
    assert gate(tmp_path, [benchmark(), other], [benchmark()]) == 1
    assert "vanished   toy/CG801-speed[b1-f9]" in capsys.readouterr().out
    assert gate(tmp_path, [benchmark()], [benchmark(), other]) == 1
    assert gate(tmp_path, [benchmark()], [benchmark(), other], "--allow-new") == 0


def test_a_result_without_a_benchmark_fails_and_names_xdist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = {"fullname": "test_mine.py::test_it", "extra_info": {}, "stats": {}}
    assert gate(tmp_path, [benchmark()], [foreign]) == 1
    assert "no benchmark ran" in (told := capsys.readouterr().out)
    assert "xdist" in told


@pytest.mark.parametrize(
    ("extra", "what"),
    [({"machine": "NVIDIA H100"}, "GPU"), ({"torch": "2.14.0"}, "torch"), ({"device": "emulated"}, "device class")],
)
def test_results_of_two_machines_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: dict[str, str], what: str
) -> None:
    assert gate(tmp_path, [benchmark()], [benchmark(**extra)]) == 1
    assert f"the {what} differs" in capsys.readouterr().out


def test_results_of_two_hosts_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate(tmp_path, [benchmark()], [benchmark()], node="another") == 1
    assert "the machine differs: host → another" in capsys.readouterr().out


def test_another_path_is_not_the_same_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate(tmp_path, [benchmark()], [benchmark(path="fallback")]) == 1
    assert "was served by replay exact, and now by fallback" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"benchmarks": 3}',
        '{"benchmarks": [{}]}',
        '{"benchmarks": [], "machine_info": 3}',
        '{"benchmarks": [{"fullname": "a", "extra_info": {"costs": [0]}, "stats": {}}], "machine_info": {}}',
        "\udcff",
    ],
)
def test_a_file_that_is_no_result_is_one_line_and_exit_4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_bytes(text.encode(errors="surrogateescape"))
    assert main(["bench-compare", str(broken), str(broken)]) == 4
    told = capsys.readouterr().err
    assert told.startswith(f"ERROR: {broken}: ")
    assert told.count("\n") == 1


@pytest.mark.parametrize("costs", [[], [0.0], [-1.0], [float("nan")], ["much"], None])
def test_times_that_are_no_times_are_refused(tmp_path: Path, costs: Any) -> None:
    found = benchmark()
    found["extra_info"]["costs"] = costs
    assert gate(tmp_path, [benchmark()], [found]) == 4


def test_a_file_that_is_missing_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench-compare", str(tmp_path / "none.json"), str(tmp_path / "none.json")]) == 4
    assert "xdist" in capsys.readouterr().err
