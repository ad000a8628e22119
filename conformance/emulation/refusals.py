"""Which operations make the host wait for the device, and so cannot be captured.

The line is drawn where a GPU draws it (observed on an H200 with torch 2.11), which is not always where one would guess:
`x[mask] = scalar` is captured, `x[mask]` is not, and `torch.equal(x, x)` is answered without looking.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

STATIC_SHAPE = "Its result's shape depends on data: keep the shape static with torch.where or a mask multiplied in."
READS_BACK = "It copies a value to the host: keep the value on the device, or take it from a shape or a host tensor."
PAGEABLE = (
    "It copies pageable host memory: build the tensor on the device (torch.full, torch.arange), before capture, "
    "or in pinned memory with non_blocking=True."
)

Rule = Callable[[Sequence[Any], Mapping[str, Any]], str | None]
"""Looks at an operation's arguments; returns the cure if it is refused, None if it is allowed."""


def _always(cure: str) -> Rule:
    return lambda args, kwargs: cure


def _equal(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    same = args[0] is args[1] or (
        args[0].data_ptr() == args[1].data_ptr()
        and args[0].shape == args[1].shape
        and args[0].stride() == args[1].stride()
        and args[0].dtype == args[1].dtype
    )
    return None if same else READS_BACK


def is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


def _index(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    return STATIC_SHAPE if any(map(is_mask, args[1])) else None


def _index_put(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    one_value = args[2].numel() == 1
    return STATIC_SHAPE if any(map(is_mask, args[1])) and not one_value else None


def _repeat_interleave(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    return None if kwargs.get("output_size") is not None else "Give output_size, so that the shape is known."


RULES: dict[str, Rule] = {
    "aten::_local_scalar_dense": _always(READS_BACK),
    "aten::is_nonzero": _always(READS_BACK),
    "aten::equal": _equal,
    "aten::allclose": _always(READS_BACK),
    "aten::nonzero": _always(STATIC_SHAPE),
    "aten::argwhere": _always(STATIC_SHAPE),
    "aten::masked_select": _always(STATIC_SHAPE),
    "aten::_unique": _always(STATIC_SHAPE),
    "aten::_unique2": _always(STATIC_SHAPE),
    "aten::unique_dim": _always(STATIC_SHAPE),
    "aten::unique_consecutive": _always(STATIC_SHAPE),
    "aten::unique_dim_consecutive": _always(STATIC_SHAPE),
    "aten::bincount": _always(STATIC_SHAPE),
    "aten::histc": _always(READS_BACK),
    "aten::repeat_interleave": _repeat_interleave,
    "aten::index": _index,
    "aten::_unsafe_index": _index,
    "aten::index_put_": _index_put,
    "aten::index_put": _index_put,
    "aten::_index_put_impl_": _index_put,
    "aten::_linalg_check_errors": _always("It reads an error code back: call the _ex variant."),
    "aten::linalg_inv": _always("It reads an error code back: call torch.linalg.inv_ex."),
    "aten::linalg_cholesky": _always("It reads an error code back: call torch.linalg.cholesky_ex."),
    "aten::_nested_tensor_from_mask": _always(STATIC_SHAPE),
}

DECLINED = frozenset({"aten::bincount"})
"""Torch notices a copy of pageable memory inside them: they raise, and the capture goes on."""

TRANSFERS = frozenset({"aten::_to_copy", "aten::copy_", "aten::copy"})
INDEXED = frozenset(
    {"aten::index", "aten::_unsafe_index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_"}
)
MAY_MIX_DEVICES = TRANSFERS | INDEXED | {"aten::set_", "aten::_pin_memory", "aten::is_pinned", "aten::lift_fresh"}
UNINITIALISED = frozenset(
    {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided"}
    | {"aten::empty_permuted"}
)
