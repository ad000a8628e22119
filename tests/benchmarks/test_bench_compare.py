"""The same-job gate finds what got slower, keeps quiet where nothing did, and compares like with like only."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.bench.compare import DEFAULT_LIMIT, Change, expected, graph_growth, judge_ratio, paces_agree, ratio_of
from conformance.bench.figures import Block, Quartiles
from conformance.bench.results import Timed, timed_of
from conformance.cli import main
from tests.benchmarks.made_up import NAME, Made, benchmark, times, write_result

RUNS = range(20)


def verdicts(noise: float, rounds: int, *, by_hand: bool = True, **made: float) -> Counter[Change]:
    """Of base and head whose hosts are up to twice as slow as each other; `made` says how the head is."""
    found = Counter[Change]()
    device = {} if by_hand else {"device": 0.0}  # eager and graphed calls are both the host's alone
    for seed in RUNS:
        pace = 2 ** random.Random(seed).uniform(-1, 1)
        base = times(2 * seed, rounds=rounds, noise=noise, **device)
        head = times(2 * seed + 1, rounds=rounds, noise=noise, pace=pace, **device, **made)
        found[judge_ratio(ratio_of(timed(base, by_hand), timed(head, by_hand)), DEFAULT_LIMIT)] += 1
    return found


def timed(made: Made, by_hand: bool = True) -> Timed:
    return timed_of(benchmark(made=made, by_hand=by_hand))


@pytest.mark.parametrize("changed", [{"slower": 1.1}, {"graph": 1.3}])
@pytest.mark.parametrize(("noise", "rounds"), [(0.01, 40), (0.03, 100), (0.05, 400)])
def test_a_slowdown_of_a_tenth_is_found_in_19_of_20_runs(noise: float, rounds: int, changed: dict[str, float]) -> None:
    """A tenth of the call, or three tenths of its graph, which is about as much."""
    assert verdicts(noise, rounds, **changed)[Change.REGRESSED] >= 19


@pytest.mark.parametrize(("noise", "rounds"), [(0.01, 40), (0.03, 100), (0.05, 400)])
def test_no_change_is_ok_in_19_of_20_runs(noise: float, rounds: int) -> None:
    assert verdicts(noise, rounds)[Change.OK] >= 19


@pytest.mark.parametrize("rounds", [20, 40, 100])
def test_a_noisy_machine_gives_no_alarm(rounds: int) -> None:
    assert verdicts(0.2, rounds)[Change.REGRESSED] <= 1


def test_what_cannot_be_captured_by_hand_is_compared_with_eager() -> None:
    assert verdicts(0.03, 400, by_hand=False, slower=1.1)[Change.REGRESSED] >= 19
    assert verdicts(0.03, 400, by_hand=False)[Change.OK] >= 19
    assert verdicts(0.2, 40, by_hand=False)[Change.UNDECIDED] >= 10


@pytest.mark.parametrize(
    ("base", "head", "slower", "seconds"),
    [
        (Block(100, 80, 400), Block(0, 80, 400), 0, 100),  # the same
        (Block(100, 80, 400), Block(0, 90, 800), 0, 130),  # a host half as fast
        (Block(100, 80, 400), Block(0, 85, 400), 5, 100),  # a slower graph is no excuse
        (Block(60, 80, 400), Block(0, 88, 800), 0, 66),  # a runner that does less than what is done by hand
    ],
)
def test_what_is_expected_of_a_call(base: Block, head: Block, slower: float, seconds: float) -> None:
    assert expected(base, head, slower) == pytest.approx(seconds)


def test_times_that_contradict_each_other_are_no_reason_to_say_ok() -> None:
    assert 0 < expected(Block(60, 80, 400), Block(0, 88, 400), 100) < 1


BLOCK = [1e-4, 8e-5, 4e-4]


@pytest.mark.parametrize(
    "extra",
    [
        *({"blocks": made} for made in ([BLOCK[:2]], [[*BLOCK, 1.0]], [[0.0, *BLOCK[1:]]], [[10**400, *BLOCK[1:]]], 3)),
        *(
            {"blocks": made}
            for made in ([[1e-320, *BLOCK[1:]]], [[1e308, *BLOCK[1:]]], ["123"], [["1", "2", "3"]], {}, "")
        ),
        *({"graph_seconds": made} for made in (0.0, float("nan"), "5e-5", True, None)),
    ],
)
def test_damaged_times_by_hand_are_refused(tmp_path: Path, extra: dict[str, Any]) -> None:
    assert gate(tmp_path, [benchmark()], [benchmark(**extra)]) == 4


@pytest.mark.parametrize("other", [benchmark(by_hand=False), benchmark(blocks=[]), benchmark(graph_seconds=0.0)])
def test_what_was_timed_by_hand_in_one_of_the_two_alone_is_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: dict[str, Any]
) -> None:
    if not other["extra_info"].get("graph_seconds", True):
        del other["extra_info"]["graph_seconds"]
    for base, head in ((benchmark(), other), (other, benchmark())):
        assert gate(tmp_path, [base], [head]) == 1
        assert f"not comparable: {NAME}: timed by hand in one of the two alone" in capsys.readouterr().out


def test_a_comparison_with_eager_alone_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = benchmark(made=times(0, device=0.0), by_hand=False)
    assert gate(tmp_path, [made], [made]) == 0
    assert "; eager +0.0 %, by replay ÷ eager\n" in capsys.readouterr().out


@pytest.mark.parametrize(("eager", "exit_code"), [(2.0, 6), (1.2, 0), (0.5, 6)])
def test_eager_that_changed_by_itself_is_no_pace_of_the_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], eager: float, exit_code: int
) -> None:
    head = times(1, noise=0.01)
    changed = replace(head, eager=[eager * seconds for seconds in head.eager])
    assert gate(tmp_path, [benchmark(made=times(0, noise=0.01))], [benchmark(made=changed)]) == exit_code
    assert ("was eager itself changed?" in capsys.readouterr().out) == (exit_code == 6)


def test_a_long_graph_says_nothing_of_the_hosts_pace() -> None:
    base = replace(timed(times(0)), blocks=(Block(5.1e-3, 5e-3, 12e-3),), graph_seconds=4.98e-3)
    assert paces_agree(base, replace(base, graph_seconds=4.99e-3))


def test_a_graph_varies_between_processes_of_the_same_code() -> None:
    base, other = timed(times(0)), timed(times(1))
    assert graph_growth(replace(base, graph_seconds=49.6e-6), replace(other, graph_seconds=53.2e-6)) == 0.0
    found = graph_growth(replace(base, graph_seconds=49.6e-6), replace(other, graph_seconds=55.0e-6))
    assert found == pytest.approx(5.4e-6)


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
    assert gate(tmp_path, [benchmark()], [benchmark(made=times(1))]) == 0
    assert gate(tmp_path, [benchmark()], [benchmark(made=times(1, slower=1.1))]) == 1
    assert gate(tmp_path, [benchmark(made=times(0, noise=0.3))], [benchmark(made=times(1, noise=0.3, slower=1.2))]) == 6
    told = capsys.readouterr().out
    assert f"regressed  {NAME}  +" in told
    assert "quartiles" in told
    assert "limit +7.5 %: 0 regressed" not in told


@pytest.mark.parametrize(("limit", "exit_code"), [("12.5%", 0), ("2.5", 1), ("0%", 4), ("much", 4), ("nan%", 4)])
def test_the_limit_is_a_percentage_with_a_fraction(tmp_path: Path, limit: str, exit_code: int) -> None:
    head = [benchmark(made=times(1, slower=1.07, noise=0.01))]
    assert gate(tmp_path, [benchmark(made=times(0, noise=0.01))], head, f"--fail-above={limit}") == exit_code


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


@pytest.mark.parametrize("name", ["\ud800", "a\nok  b", None, 3])
def test_a_name_that_would_break_the_output_is_refused(tmp_path: Path, name: Any) -> None:
    assert gate(tmp_path, [benchmark()], [{**benchmark(), "fullname": name}]) == 4


@pytest.mark.parametrize("costs", [[], [0.0], [-1.0], [float("nan")], ["much"], None, "123", {"1": 2}, [True]])
def test_times_that_are_no_times_are_refused(tmp_path: Path, costs: Any) -> None:
    found = benchmark()
    found["extra_info"]["costs"] = costs
    assert gate(tmp_path, [benchmark()], [found]) == 4


def test_a_file_that_is_missing_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench-compare", str(tmp_path / "none.json"), str(tmp_path / "none.json")]) == 4
    assert "xdist" in capsys.readouterr().err
