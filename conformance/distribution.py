"""How pytest-xdist shares out a run of several adapters: an adapter is one worker's, from its first case to its last.

Split over workers, a subject would be built once in each, and one that captures in the middle of calls would fail in
other cases from run to run. A single adapter is still spread over all workers. Imports pytest-xdist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest


class ByAdapter(LoadScopeScheduling):  # type: ignore[misc]
    """Cases in the order of one process, adapter by adapter."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("/")[0]


def scheduler_for(config: pytest.Config, log: Any, adapters: int) -> ByAdapter | None:
    """None where xdist's own choice stands: one adapter alone, or a way of distributing that was asked for by name."""
    return ByAdapter(config, log) if adapters > 1 and config.getoption("dist") == "load" else None
