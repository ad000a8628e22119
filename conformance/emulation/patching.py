"""Putting stand-ins in place of torch's objects, everywhere they are reached from, and taking them out again.

An attribute is set on its owner. Where the owner's original is an object of its own (a class, a function), every module
that took it by name (`from torch.cuda import CUDAGraph`) is given the stand-in too; modules imported meanwhile take the
stand-in, and are given the original when the emulation ends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

_ABSENT = object()


class Patches:
    """A set of replaced attributes that can be undone once."""

    def __init__(self) -> None:
        self._attributes: list[tuple[Any, str, Any]] = []
        self._swapped: dict[int, tuple[Any, Any]] = {}

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name`, and remember what stood there in `owner` itself, not in its bases."""
        original = vars(owner).get(name, _ABSENT)
        self._attributes.append((owner, name, original))
        setattr(owner, name, value)
        if isinstance(owner, ModuleType) and original is not _ABSENT and _has_identity(original):
            self._swapped[id(original)] = (original, value)

    def swap_references(self) -> None:
        """Give every loaded module the stand-ins for what it took by name."""
        _replace_in_modules(self._swapped)

    def undo(self) -> None:
        for owner, name, original in reversed(self._attributes):
            if original is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        _replace_in_modules({id(value): (value, original) for original, value in self._swapped.values()})
        self._attributes.clear()
        self._swapped.clear()


def _has_identity(value: Any) -> bool:
    """Functions and classes are one object each; `None`, numbers and tuples stand in many places for many reasons."""
    return callable(value)


def _replace_in_modules(table: dict[int, tuple[Any, Any]]) -> None:
    for module in _modules():
        namespace = vars(module)
        for name in [name for name, value in namespace.items() if id(value) in table]:
            namespace[name] = table[id(namespace[name])][1]


def _modules() -> Iterable[ModuleType]:
    own = __package__
    return [
        module
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType) and not name.startswith(own)
    ]
