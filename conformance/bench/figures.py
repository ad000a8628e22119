"""Medians and quartiles."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

BLOCKS = 12


@dataclass(frozen=True)
class Quartiles:
    q1: float
    median: float
    q3: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Quartiles:
        if len(values) < 2:
            return cls(values[0], values[0], values[0])
        return cls(*statistics.quantiles(values, n=4, method="inclusive"))

    @property
    def spread(self) -> float:
        """The distance of the quartiles, as a part of the median."""
        return (self.q3 - self.q1) / self.median if self.median else 0.0


def floor(values: Sequence[float]) -> float:
    """The mean of the fastest tenth, of at least three: what the machine gives while nobody disturbs it."""
    fastest = sorted(values)[: max(3, len(values) // 10)]
    return sum(fastest) / len(fastest)


@dataclass(frozen=True)
class Block:
    """The floors of some rounds that followed one another, in seconds: they had the machine in one state."""

    graphed: float
    by_hand: float
    eager: float


def cut(many: int, fewest: int) -> list[slice]:
    """Up to BLOCKS parts of `many` rounds that follow one another, of `fewest` at least."""
    parts = min(BLOCKS, many // fewest)
    return [slice(*edges) for edges in pairwise(many * index // parts for index in range(parts + 1) if parts)]


def blocks_of(graphed: Sequence[float], by_hand: Sequence[float], eager: Sequence[float]) -> list[Block]:
    """One of each five rounds at least. None without calls by hand."""
    parts = cut(min(len(graphed), len(by_hand), len(eager)), fewest=5)
    return [Block(*(floor(times[part]) for times in (graphed, by_hand, eager))) for part in parts]
