"""What is going on right now, said by whoever does it and read by whoever shows it. Saying it costs an assignment."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Activity:
    """One thing that takes its time. `graphs` counts the captures meanwhile."""

    words: str
    since: float = field(default_factory=time.monotonic)
    graphs: int = 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since

    def __str__(self) -> str:
        captured = f" · {self.graphs} {'graph' if self.graphs == 1 else 'graphs'} captured" if self.graphs else ""
        return f"{self.words}{captured} · {self.seconds:.0f} s"


_going_on: list[Activity] = []


@contextlib.contextmanager
def doing(words: str) -> Iterator[None]:
    """Say that `words` go on until the block ends; within another activity, this one is what is shown."""
    _going_on.append(Activity(words))
    try:
        yield
    finally:
        _going_on.pop()


def captured() -> None:
    """Count a captured graph."""
    if _going_on:
        _going_on[-1].graphs += 1


def going_on() -> Activity | None:
    try:
        return _going_on[-1]
    except IndexError:
        return None
