"""Poison: what memory holds when nothing has written it.

NaN for floating point and complex, a large value that no code, index or token has for integers, and the opposite of
what was there for bool, whose every value looks plausible.
"""

from __future__ import annotations

import torch


def poison_value(dtype: torch.dtype) -> float | int:
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    limits = torch.iinfo(dtype)
    return limits.max - 89 if limits.bits > 8 else limits.max - 1


def poison_(tensor: torch.Tensor) -> None:
    """Overwrite `tensor` in place, whatever its dtype and layout. Meant to be called with dispatch modes off."""
    if tensor.numel() == 0:
        return
    if tensor.dtype == torch.bool:
        tensor.logical_not_()
    elif tensor.dtype.is_floating_point or tensor.dtype.is_complex or not _is_exotic(tensor.dtype):
        tensor.fill_(poison_value(tensor.dtype))


def _is_exotic(dtype: torch.dtype) -> bool:
    """Quantized and bit dtypes have no fill and no limits."""
    try:
        torch.iinfo(dtype)
    except TypeError:
        return True
    return False
