"""A result without its samples, in words that are the same on every device and under every version of torch."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

import torch

_LINES = 12


def describe(value: Any) -> Any:
    """Containers by their kind and names, tensors by dtype and shape, anything else by its type."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, Mapping):
        return {"kind": type(value).__name__, "items": {str(key): describe(item) for key, item in value.items()}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: describe(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"kind": type(value).__name__, "items": fields}
    if isinstance(value, list | tuple):
        return {"kind": type(value).__name__, "items": [describe(item) for item in value]}
    return type(value).__name__


def to_amber(described: Mapping[str, Any]) -> str:
    """What syrupy writes for `described`."""
    from syrupy.extensions.amber import AmberDataSerializer

    return AmberDataSerializer.serialize(described)


def changed_lines(found: str, kept: str) -> list[str]:
    """The lines that differ, `-` for the snapshot's and `+` for the call's."""
    lines = difflib.unified_diff(kept.splitlines(), found.splitlines(), lineterm="", n=0)
    changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    return [f"{line[0]} {line[1:].strip()}" for line in changed[:_LINES]]
