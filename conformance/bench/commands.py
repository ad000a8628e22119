"""The commands of speed: `audiograph bench-compare` and `audiograph bench-history`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

Add = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]


def add_commands(add: Add) -> None:
    told = "whether HEAD is slower than BASE: two results of --benchmark-json; exits 1 where it is, 6 where undecided"
    gate = add("bench-compare", _compare, told)
    gate.add_argument("base", type=Path, metavar="BASE.json")
    gate.add_argument("head", type=Path, metavar="HEAD.json")
    gate.add_argument("--fail-above", default="7.5%", metavar="PERCENT", help="slower than this fails (default: 7.5%%)")
    gate.add_argument("--allow-new", action="store_true", help="a benchmark that BASE lacks does not fail")
    history = add("bench-history", _history, "append a result to a history of medians, or report what got worse")
    history.add_argument("action", choices=("append", "report"))
    history.add_argument("result", type=Path, nargs="?", metavar="RESULT.json")
    history.add_argument("--history", type=Path, required=True, metavar="FILE.jsonl")
    history.add_argument("--commit", metavar="SHA")


def _compare(options: argparse.Namespace) -> int:
    from conformance.bench.compare import compare_results, comparison_lines, percent
    from conformance.bench.results import read_result

    limit = percent(options.fail_above)
    found = compare_results(read_result(options.base), read_result(options.head), limit, allow_new=options.allow_new)
    for line in comparison_lines(found, limit):
        print(line)
    return found.exit_code


def _history(options: argparse.Namespace) -> int:
    from conformance.bench.history import append_history, history_lines, points_of, read_history
    from conformance.bench.results import read_result
    from conformance.errors import ConformanceError

    if options.action == "report":
        if options.result or options.commit:
            raise ConformanceError("bench-history report reads the history alone: leave RESULT.json and --commit out")
        for line in history_lines(read_history(options.history)):
            print(line)
        return 0
    if not options.result or not options.commit:
        raise ConformanceError("bench-history append needs RESULT.json and --commit SHA")
    points = points_of(read_result(options.result), options.commit)
    append_history(options.history, points)
    print(f"{len(points)} medians of {options.commit} appended to {options.history}")
    return 0
