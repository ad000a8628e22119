"""The pool that vLLM's platform keeps for all graphs of a process, where vLLM is imported: many wrappers capture there.

Torch leaves a pool recording when a capture into it was refused, and no later capture can use it. The kit makes
captures fail on purpose, so it gives the process another pool afterwards, as a restart would.
"""

from __future__ import annotations

from typing import Any

import torch

from conformance.emulation.vllm_platform import POOL, pool_owners


def shared_pool() -> Any | None:
    """The pool's handle, where there is one already."""
    return next((pool for owner in pool_owners() if (pool := vars(owner)[POOL]) is not None), None)


def renew_shared_pool() -> None:
    pool = torch.cuda.graph_pool_handle()
    for owner in pool_owners():
        if vars(owner)[POOL] is not None:
            setattr(owner, POOL, pool)
