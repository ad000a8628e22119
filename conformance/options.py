"""What the command line asks of a run."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

from conformance.catalogue import Check, Level


class Speed(enum.Enum):
    """Whether a run has the checks of speed: not unless asked for, together with the others, or alone."""

    WITHOUT = "without"
    TOO = "too"
    ALONE = "alone"

    def takes(self, check: Check) -> bool:
        return self is Speed.TOO or (check.level is Level.PERFORMANCE) == (self is Speed.ALONE)


@dataclass(frozen=True)
class Options:
    """The kit's options, as the command line gave them."""

    graph_device: str = "auto"
    seed: int = 0
    checkpoint: Path | None = None
    allow_known: bool = False
    update_snapshots: bool = False
    speed: Speed = Speed.WITHOUT
    graph_config: tuple[str, ...] = ()  # KEY=VALUE
