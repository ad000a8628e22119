"""Results of pytest-benchmark (`--benchmark-json=FILE`), as far as they are audiograph's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.bench.figures import Block
from conformance.report.files import ReportError
from conformance.report.speed import Benchmark

PATHS = {"exact": "replay exact", "padded": "replay padded", "fallback": "fallback"}


@dataclass(frozen=True)
class Timed:
    """One benchmark. `costs` is graphed ÷ eager of each round; times are in seconds.

    `blocks` are there where the graph was made by hand too; `graph_seconds`, its time on the device, on a GPU alone.
    """

    name: str
    subject: str
    case: str
    path: str
    bucket: str
    costs: tuple[float, ...]
    graphed: tuple[float, float, float]  # lower quartile, median, upper quartile
    eager: tuple[float, float, float]
    rounds: int
    device: str
    gpu: str
    torch: str
    blocks: tuple[Block, ...] = ()
    graph_seconds: float | None = None
    capture_bytes: int | None = None
    capture_seconds: float | None = None


@dataclass(frozen=True)
class Result:
    """One run. `host` is what of the machine must be alike for times to be compared."""

    path: Path
    date: str
    host: Mapping[str, str]
    benchmarks: Mapping[str, Timed]

    def alike(self) -> dict[str, str]:
        """Everything that must not differ between two results that are compared."""
        found = dict(self.host)
        for field, words in (("gpu", "GPU"), ("device", "device class"), ("torch", "torch")):
            found[words] = " and ".join(sorted({getattr(timed, field) for timed in self.benchmarks.values()}))
        return found


def read_result(path: Path) -> Result:
    """The result in the file. Raises :class:`ReportError` naming the file and what is wrong with it.

    Benchmarks that are not audiograph's are left out.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ReportError(
            f"{path}: no such file; pytest-benchmark writes none where no benchmark ran, as under xdist (-n)"
        ) from error
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error
    except (RecursionError, ValueError) as error:
        raise ReportError(f"{path}: not a whole JSON document: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("benchmarks"), list):
        raise ReportError(f"{path}: expected a file of `pytest --adapter=NAME --benchmark-only --benchmark-json`")
    try:
        machine = found["machine_info"]
        host = {
            "machine": str(machine["node"]),
            "processor": f"{machine['machine']} {machine.get('cpu', {}).get('brand_raw', '')}".strip(),
            "Python": str(machine["python_version"]),
        }
        own = [row for row in found["benchmarks"] if "costs" in row["extra_info"]]
        timed = {row["fullname"]: timed_of(row) for row in own}
        if len(timed) != len(own):
            raise ValueError("two benchmarks of one name")
        return Result(path, str(found["datetime"]), host, timed)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ReportError(f"{path}: damaged: {type(error).__name__}: {error}") from error


def timed_of(row: Mapping[str, Any]) -> Timed:
    """The benchmark of one row. Raises the error of whatever is wrong with it."""
    extra, stats = row["extra_info"], row["stats"]
    costs = _times(extra["costs"])
    if not isinstance(made := extra.get("blocks", []), list):
        raise TypeError(f"expected a list of blocks, found {str(made)[:60]!r}")
    blocks = tuple(Block(*_times(block)) for block in made)
    alone = _times([extra["graph_seconds"]]) if blocks and "graph_seconds" in extra else ()
    graphed = _times([stats[name] for name in ("q1", "median", "q3")])
    eager = _times([extra[name] for name in ("eager_q1", "eager_median", "eager_q3")])
    for name in ("subject", "case", "path", "bucket", "device", "machine", "torch"):
        if not isinstance(extra[name], str):
            raise TypeError(f"{name} of {row['fullname']} is {extra[name]!r}")
    if not isinstance(row["fullname"], str) or not row["fullname"].isprintable():
        raise ValueError(f"{row['fullname']!r} is no name of a benchmark")
    return Timed(
        name=row["fullname"],
        subject=extra["subject"],
        case=extra["case"],
        path=PATHS[extra["path"]],
        bucket=extra["bucket"],
        costs=costs,
        graphed=(graphed[0], graphed[1], graphed[2]),
        eager=(eager[0], eager[1], eager[2]),
        rounds=int(stats["rounds"]),
        device=extra["device"],
        gpu=extra["machine"],
        torch=extra["torch"],
        blocks=blocks,
        graph_seconds=alone[0] if alone else None,
        capture_bytes=extra.get("capture_bytes"),
        capture_seconds=extra.get("capture_seconds"),
    )


def _times(values: Any) -> tuple[float, ...]:
    """Seconds, or ratios of them. Raises TypeError or ValueError for what none could be."""
    if not isinstance(values, list) or not values:
        raise TypeError(f"expected a list of times, found {str(values)[:60]!r}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-12 < value < 1e9:
            raise ValueError(f"{str(value)[:60]!r} is no time")
    return tuple(map(float, values))


def report_rows(result: Result) -> Iterator[Benchmark]:
    """What a report shows of the result: eager and the graphed call of each case."""
    for timed in result.benchmarks.values():
        for path, times in (("eager", timed.eager), (timed.path, timed.graphed)):
            graphed = path != "eager"
            q1, median, q3 = (round(1e6 * seconds, 3) for seconds in times)
            yield Benchmark(
                timed.subject,
                timed.case,
                path,
                median,
                q1,
                q3,
                rounds=timed.rounds,
                bucket=(timed.bucket or None) if graphed else None,
                capture_bytes=timed.capture_bytes if graphed else None,
                capture_seconds=timed.capture_seconds if graphed else None,
            )
