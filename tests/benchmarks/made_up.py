"""Results of pytest-benchmark with times drawn from a seed: noise, spikes, and a drift that eager and replay share."""

from __future__ import annotations

import json
import random
import statistics
from pathlib import Path
from typing import Any

NAME = "toy/CG801-speed[b1-f8]"


def costs(seed: int, *, slower: float = 1.0, rounds: int = 100, noise: float = 0.03) -> list[float]:
    """Replay ÷ eager of each round. Each time varies by `noise`; one in twenty is disturbed."""
    draw = random.Random(seed)
    made = []
    for index in range(rounds):
        machine = 1.0 + 0.5 * index / rounds  # the machine slows down by half, under both alike
        eager, replay = (
            machine * cost * draw.lognormvariate(0, noise) * (1 + (draw.random() < 0.05) * draw.expovariate(1))
            for cost in (1e-3, 0.4e-3 * slower)
        )
        made.append(replay / eager)
    return made


def benchmark(name: str = NAME, made: list[float] | None = None, **extra: Any) -> dict[str, Any]:
    made = costs(0) if made is None else made
    median = 1e-3 * statistics.median(made or [1.0])
    return {
        "name": name.partition("/")[2],
        "fullname": name,
        "stats": {"q1": median * 0.9, "median": median, "q3": median * 1.1, "rounds": len(made)},
        "extra_info": {
            "subject": "toy",
            "case": "b1-f8",
            "path": "exact",
            "bucket": "b1-f8",
            "device": "cuda",
            "machine": "NVIDIA H200",
            "torch": "2.13.0",
            "costs": made,
            "capture_bytes": 512,
            "eager_q1": 0.9e-3,
            "eager_median": 1e-3,
            "eager_q3": 1.1e-3,
            "capture_seconds": 0.5,
            **extra,
        },
    }


def write_result(path: Path, *benchmarks: dict[str, Any], node: str = "host", date: str = "2026-01-01") -> Path:
    machine = {"node": node, "machine": "x86_64", "python_version": "3.11.7", "cpu": {"brand_raw": "Xeon"}}
    path.write_text(json.dumps({"machine_info": machine, "datetime": date, "benchmarks": list(benchmarks)}))
    return path
