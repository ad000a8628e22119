"""Autocast of the emulated device: `torch.autocast("cuda")` carried out by that of the host, where the kernels run.

Both cast matrix products and convolutions down. CUDA casts more functions up to float32 than a host does; those are
added for as long as the emulation is on, from the first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.amp.autocast_mode import autocast as torch_autocast

_HOST = "AutocastCPU"
_HOST_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_IN_FLOAT32 = [
    "acos",
    "asin",
    "cosh",
    "erfinv",
    "exp",
    "expm1",
    "log",
    "log10",
    "log2",
    "log1p",
    "reciprocal",
    "rsqrt",
    "sinh",
    "tan",
    "pow",
    "softplus",
    "layer_norm",
    "group_norm",
    "norm",
    "cosine_similarity",
    "cosine_embedding_loss",
    "nll_loss",
    "kl_div",
    "l1_loss",
    "smooth_l1_loss",
    "mse_loss",
    "cdist",
    "renorm",
    "logsumexp",
    "softmax",
    "log_softmax",
    "cumsum",
    "cumprod",
    "prod",
    "sum",
]
"""Functions that CUDA's autocast runs in float32 (torch's documentation, "Autocast Op Reference")."""

_casting_up: list[torch.library.Library] = []


class Autocast(torch_autocast):
    """Stands in for `torch.autocast`. For `cuda` it takes CUDA's dtype, float16 unless another is given."""

    def __init__(
        self,
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        self._for_cuda = device_type == "cuda"
        if device_type == "cuda":
            device_type = "cpu"
            dtype = dtype if dtype is not None else torch.get_autocast_dtype("cuda")
            if not _casting_up:
                _casting_up.append(_cast_up_as_cuda_does())
        super().__init__(device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

    def __enter__(self) -> Any:
        if self._for_cuda:  # what `torch.is_autocast_enabled("cuda")` answers; no kernel looks at it here
            self._before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
            torch.set_autocast_enabled("cuda", self._enabled)
            torch.set_autocast_dtype("cuda", self.fast_dtype)
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *exception: Any) -> Any:
        if self._for_cuda:
            torch.set_autocast_enabled("cuda", self._before[0])
            torch.set_autocast_dtype("cuda", self._before[1])
        return super().__exit__(*exception)


class CudaAutocast(Autocast):
    """Stands in for `torch.cuda.amp.autocast`, the older spelling."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


def forget() -> None:
    """Give the host its own rules back, when the emulation ends."""
    for library in _casting_up:
        library._destroy()
    _casting_up.clear()


def _cast_up_as_cuda_does() -> torch.library.Library:
    library = torch.library.Library("aten", "IMPL", _HOST)
    for name in _IN_FLOAT32:
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads():
            op = getattr(packet, overload)
            if _takes_a_tensor(op) and not torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), _HOST):
                library.impl(op, _in_float32(op))
    return library


def _takes_a_tensor(op: Any) -> bool:
    """Whether autocast is about `op`: neither TorchScript's overloads for numbers nor those that write into `out`."""
    return str(op._schema.arguments[0].type) == "Tensor" and not op._schema.is_mutable


def _in_float32(op: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_HOST_KEYS):
            if kwargs.get("dtype") is not None:
                return op(*args, **kwargs)
            return op(*map(_up, args), **{name: _up(value) for name, value in kwargs.items()})

    return run


def _up(value: Any) -> Any:
    half = isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if half else value
