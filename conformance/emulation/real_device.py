"""What needs a real GPU and cannot be emulated: operators without a host kernel, and Triton kernels."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from conformance.emulation.callsite import user_call_site
from conformance.emulation.errors import EmulationError


def explain_failure(op: str, error: Exception) -> None:
    """Raise :class:`EmulationError` if `op` failed for want of a GPU, and return if it failed for another reason."""
    if isinstance(error, NotImplementedError):
        why = "has no host kernel for these arguments"
    elif not op.startswith("aten::") and ("CUDA" in str(error) or "NVIDIA" in str(error)):
        why = "asks for a real CUDA device"
    else:
        return
    raise EmulationError(f"{op} at {user_call_site()} {why}, so emulated CUDA cannot run it: {error}") from error


def attributes() -> list[tuple[Any, str, Any]]:
    """`(owner, name, value)` of every attribute to set: Triton's, where it is imported already."""
    jit = sys.modules.get("triton.runtime.jit")
    if jit is None:
        return []

    def run(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        name = getattr(self.fn, "__name__", "?")
        raise EmulationError(f"the Triton kernel {name} needs a real GPU; emulated CUDA runs host kernels alone")

    return [(jit.JITFunction, "run", run)]
