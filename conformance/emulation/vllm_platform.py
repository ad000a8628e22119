"""The one thing of vLLM's platform layer that graph wrappers call: the pool that all graphs of a process share.

Without a GPU, vLLM's platform is the unspecified one, which knows no graph pools. Importing vLLM takes many seconds, so
nothing happens here unless it is imported already.
"""

from __future__ import annotations

import sys
from typing import Any

from conformance.emulation.graph import graph_pool_handle


def attributes() -> list[tuple[Any, str, Any]]:
    """`(owner, name, value)` of every attribute to set: classes whose `get_global_graph_pool` answers from them."""
    interface = sys.modules.get("vllm.platforms.interface")
    if interface is None:
        return []
    pool = graph_pool_handle()
    owners = [interface.Platform]
    resolved = type(getattr(sys.modules.get("vllm.platforms"), "_current_platform", None))
    if "_global_graph_pool" in vars(resolved):  # it has made a pool of its own before, which hides the base's
        owners.append(resolved)
    return [(owner, "_global_graph_pool", pool) for owner in owners]
