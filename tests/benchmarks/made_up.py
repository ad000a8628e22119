"""Results of pytest-benchmark with times drawn from a seed: noise, spikes, and a host that is slower now and then."""

from __future__ import annotations

import json
import random
import statistics
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from conformance.bench.figures import blocks_of

NAME = "toy/CG801-speed[b1-f8]"
GRAPH = 50e-6  # seconds that the graph takes the device


@dataclass(frozen=True)
class Made:
    """Seconds of each round, and of the graph on the device."""

    eager: list[float]
    graphed: list[float]
    by_hand: list[float]
    graph: float

    @property
    def costs(self) -> list[float]:
        return [graphed / eager for graphed, eager in zip(self.graphed, self.eager, strict=True)]


def times(
    seed: int,
    *,
    slower: float = 1.0,
    graph: float = 1.0,
    rounds: int = 100,
    noise: float = 0.03,
    pace: float = 1.0,
    device: float = 60e-6,
) -> Made:
    """Each time varies by `noise`; one in twenty is disturbed. The host, `pace` times as slow, slows down by half.

    A graphed call takes `slower` times as long, its graph `graph` times; `device` seconds of it are not the host's.
    """
    draw = random.Random(seed)
    made: dict[str, list[float]] = {"eager": [], "graphed": [], "by_hand": []}
    for index in range(rounds):
        host = pace * (1.0 + 0.5 * index / rounds)
        own = device + GRAPH * (graph - 1)
        true = {"eager": 400e-6 * host, "graphed": (own + 40e-6 * host) * slower, "by_hand": own + 15e-6 * host}
        for kind, seconds in true.items():
            disturbed = 1 + (draw.random() < 0.05) * draw.expovariate(1)
            made[kind].append(seconds * draw.lognormvariate(0, noise) * disturbed)
    return Made(**made, graph=GRAPH * graph * draw.lognormvariate(0, 0.01))


def benchmark(name: str = NAME, made: Made | None = None, *, by_hand: bool = True, **extra: Any) -> dict[str, Any]:
    """A row of the result; without `by_hand`, of a case that cannot be captured so."""
    made = made or times(0)
    q1, median, q3 = statistics.quantiles(made.graphed, n=4)
    eager = dict(zip(("eager_q1", "eager_median", "eager_q3"), statistics.quantiles(made.eager, n=4), strict=True))
    blocks = [list(astuple(block)) for block in blocks_of(made.graphed, made.by_hand, made.eager)]
    return {
        "name": name.partition("/")[2],
        "fullname": name,
        "stats": {"q1": q1, "median": median, "q3": q3, "rounds": len(made.graphed)},
        "extra_info": {
            "subject": "toy",
            "case": "b1-f8",
            "path": "exact",
            "bucket": "b1-f8",
            "device": "cuda",
            "machine": "NVIDIA H200",
            "torch": "2.13.0",
            "costs": made.costs,
            **({"blocks": blocks, "graph_seconds": made.graph} if by_hand else {}),
            "capture_bytes": 512,
            **eager,
            "capture_seconds": 0.5,
            **extra,
        },
    }


def write_result(path: Path, *benchmarks: dict[str, Any], node: str = "host", date: str = "2026-01-01") -> Path:
    machine = {"node": node, "machine": "x86_64", "python_version": "3.11.7", "cpu": {"brand_raw": "Xeon"}}
    path.write_text(json.dumps({"machine_info": machine, "datetime": date, "benchmarks": list(benchmarks)}))
    return path
