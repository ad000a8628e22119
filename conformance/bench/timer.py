"""Who counts the rounds: a plain loop, or pytest-benchmark, which keeps their statistics as well."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

Step = Callable[[], None]


class PlainTimer:
    """A loop. Used without pytest, and for rounds beyond the first ones."""

    def __init__(self, seconds: float = 0.2, fewest: int = 20, most: int = 400) -> None:
        self.seconds, self.fewest, self.most = seconds, fewest, most
        self.figures: dict[str, Any] = {}

    def rounds(self, seconds_each: float) -> int:
        """An even number of rounds that takes about the time given: eager goes first in every other one."""
        wanted = int(self.seconds / max(seconds_each, 1e-7))
        return 2 * ((min(max(wanted, self.fewest), self.most) + 1) // 2)

    def run(self, before: Step, timed: Step, after: Step, rounds: int) -> None:
        for _ in range(rounds):
            before()
            timed()
            after()

    def tell(self, figures: Mapping[str, Any]) -> None:
        """Keep what is to be known about the rounds beside their times."""
        self.figures.update(figures)


class PytestTimer(PlainTimer):
    """The fixture `benchmark` of pytest-benchmark, with `--benchmark-max-time` and `--benchmark-min-rounds`."""

    def __init__(self, benchmark: Any, seconds: float, fewest: int, most: int = 1000) -> None:
        super().__init__(seconds, max(fewest, 20), most)
        self._benchmark = benchmark
        self._used = False

    def run(self, before: Step, timed: Step, after: Step, rounds: int) -> None:
        if self._used:
            super().run(before, timed, after, rounds)
        else:
            self._used = True
            self._benchmark.pedantic(timed, setup=before, teardown=after, rounds=rounds)

    def tell(self, figures: Mapping[str, Any]) -> None:
        super().tell(figures)
        self._benchmark.extra_info.update(json.loads(json.dumps(figures)))
