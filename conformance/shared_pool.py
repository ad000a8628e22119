"""The pool that vLLM's platform keeps for all graphs of a process, where vLLM is imported: many wrappers capture there.

Torch leaves a pool recording when a capture into it was refused, and no later capture can use it. The kit makes
captures fail on purpose, so it gives the process another pool afterwards, as a restart would.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

_FIELD = "_global_graph_pool"


def _owners() -> Iterator[Any]:
    """The platform classes that hold the pool: the base, and the one in use where it has made a pool of its own."""
    interface = sys.modules.get("vllm.platforms.interface")
    if interface is not None:
        used = type(getattr(sys.modules.get("vllm.platforms"), "_current_platform", None))
        yield from (owner for owner in dict.fromkeys((used, interface.Platform)) if vars(owner).get(_FIELD) is not None)


def shared_pool() -> Any | None:
    """The pool's handle, where there is one already."""
    return next((getattr(owner, _FIELD) for owner in _owners()), None)


def renew_shared_pool() -> None:
    pool = torch.cuda.graph_pool_handle()
    for owner in list(_owners()):
        setattr(owner, _FIELD, pool)
