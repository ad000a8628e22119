"""What wrappers and modules ask of vLLM's platform layer: the pool that all graphs of a process share, and attention.

Without a GPU, the platform of vLLM and vLLM-Omni is the unspecified one, which knows no graph pools and no attention.
Importing vLLM takes many seconds, so nothing happens here unless it is imported already.
"""

from __future__ import annotations

import sys
from typing import Any

from conformance.emulation.graph import graph_pool_handle

POOL = "_global_graph_pool"
ATTENTION = "conformance.emulation.vllm_attention.EmulatedAttentionBackend"


def attributes() -> list[tuple[Any, str, Any]]:
    """`(owner, name, value)` of every attribute to set."""
    return [*_pools(), *_attention()]


def _pools() -> list[tuple[Any, str, Any]]:
    pool = graph_pool_handle()
    return [(owner, POOL, pool) for owner in pool_owners()]


def pool_owners() -> list[Any]:
    """The platform classes from which `get_global_graph_pool` answers, where vLLM is imported: the nearest first."""
    interface = sys.modules.get("vllm.platforms.interface")
    if interface is None:
        return []
    used = type(getattr(sys.modules.get("vllm.platforms"), "_current_platform", None))
    # One that has made a pool of its own before hides the base's.
    return [owner for owner in dict.fromkeys((used, interface.Platform)) if POOL in vars(owner)]


def _attention() -> list[tuple[Any, str, Any]]:
    interface = sys.modules.get("vllm_omni.platforms.interface")
    if interface is None:
        return []

    def backend(cls: Any, *_: Any, **__: Any) -> str:
        return ATTENTION

    return [(interface.UnspecifiedOmniPlatform, "get_diffusion_attn_backend_cls", classmethod(backend))]
