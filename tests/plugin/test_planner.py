"""The bucket planner against brute force, and what it says to bad input."""

from __future__ import annotations

import itertools
import random

import pytest

from conformance import cli
from conformance.planner import PlanError, coverage, plan_buckets, powers_of_two
from conformance.traces import Trace, TracedCall
from runner import EXACT, PADDED

AXES = {"batch": PADDED, "frames": PADDED}


def trace(*calls: tuple[int, int, int]) -> Trace:
    return Trace(tuple(TracedCall({"batch": rows, "frames": frames}, count) for rows, frames, count in calls))


def padded_work(made: Trace, buckets: tuple) -> int:
    found = coverage(made, buckets, AXES)
    assert found.hits == found.calls
    return found.computed - found.asked


@pytest.mark.parametrize("seed", range(20))
def test_one_axis_is_exact(seed: int) -> None:
    draw = random.Random(seed)
    sizes = draw.sample(range(1, 60), 7)
    made = trace(*[(1, size, draw.randint(1, 9)) for size in sizes])
    for graphs in range(1, 6):
        planned = plan_buckets(made, graphs, AXES, "frames")
        options = itertools.combinations(sorted(sizes)[:-1], graphs - 1)
        brute = min(
            padded_work(made, tuple({"batch": 1, "frames": size} for size in (*option, max(sizes))))
            for option in options
        )
        assert len(planned) == graphs
        assert padded_work(made, planned) == brute


@pytest.mark.parametrize("seed", range(5))
def test_graphs_are_divided_among_groups_exactly(seed: int) -> None:
    draw = random.Random(seed)
    made = trace(*[(rows, size, draw.randint(1, 9)) for rows in (1, 4) for size in draw.sample(range(1, 40), 4)])
    planned = plan_buckets(made, 4, AXES, "frames")
    groups = {rows: sorted({c.sizes["frames"] for c in made.calls if c.sizes["batch"] == rows}) for rows in (1, 4)}
    best = None
    for ones in range(1, 4):
        for first in itertools.combinations(groups[1][:-1], ones - 1):
            for second in itertools.combinations(groups[4][:-1], 4 - ones - 1):
                chosen = [{"batch": 1, "frames": f} for f in (*first, groups[1][-1])]
                chosen += [{"batch": 4, "frames": f} for f in (*second, groups[4][-1])]
                if len(chosen) == 4:
                    cost = sum(
                        count * rows * (min(b["frames"] for b in chosen if b["batch"] == rows and b["frames"] >= f) - f)
                        for rows, f, count in ((c.sizes["batch"], c.sizes["frames"], c.count) for c in made.calls)
                    )
                    best = cost if best is None else min(best, cost)
    found = sum(
        c.count
        * c.sizes["batch"]
        * (
            min(b["frames"] for b in planned if b["batch"] == c.sizes["batch"] and b["frames"] >= c.sizes["frames"])
            - c.sizes["frames"]
        )
        for c in made.calls
    )
    assert found == best


def test_more_groups_than_graphs_serve_the_heaviest() -> None:
    made = trace((1, 10, 1), (2, 10, 1), (4, 10, 50))
    planned = plan_buckets(made, 1, AXES, "frames")
    assert planned == ({"batch": 4, "frames": 10},)


def test_an_exact_axis_takes_the_sizes_with_the_most_work() -> None:
    made = trace((1, 10, 1), (1, 20, 5), (1, 30, 1))
    planned = plan_buckets(made, 2, {"batch": PADDED, "frames": EXACT}, "frames")
    assert [bucket["frames"] for bucket in planned] == [20, 30]


def test_memory_leaves_large_calls_to_eager() -> None:
    made = trace((1, 10, 1), (1, 100, 1))
    assert plan_buckets(made, 2, AXES, "frames", most_work=50) == ({"batch": 1, "frames": 10},)
    with pytest.raises(PlanError, match="allow more memory"):
        plan_buckets(made, 2, AXES, "frames", most_work=5)


def test_powers_of_two_begin_at_the_top() -> None:
    made = trace((1, 100, 1), (4, 30, 1))
    found = powers_of_two(made, 3, AXES, "frames")
    assert found == ({"batch": 1, "frames": 128}, {"batch": 4, "frames": 32}, {"batch": 1, "frames": 64})


def test_bad_requests_are_one_line() -> None:
    with pytest.raises(PlanError, match="--graphs must be at least 1, found 0"):
        plan_buckets(trace((1, 4, 1)), 0, AXES, "frames")
    with pytest.raises(PlanError, match="no axis 'samples'; the axes are batch, frames"):
        plan_buckets(trace((1, 4, 1)), 1, AXES, "samples")


def test_the_command_sets_the_plan_beside_powers_of_two_and_what_is_served(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["buckets", "reference", "--graphs", "3"]) == 0
    said = capsys.readouterr().out
    assert "planned" in said
    assert "powers of two" in said
    assert "hit rate 100.0%" in said.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reference", "--graphs", "0"], "--graphs must be at least 1"),
        (["reference", "--graphs", "2", "--axis", "time"], "no axis 'time'"),
        (["reference", "--graphs", "2", "--memory", "8"], "--memory goes with --mib-per-element"),
        (["referense", "--graphs", "2"], "did you mean reference"),
    ],
)
def test_a_wrong_request_is_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["buckets", *arguments]) == cli.USAGE_ERROR
    assert words in capsys.readouterr().err
