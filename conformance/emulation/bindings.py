"""Torch's own Python function for an operator, where there is one: several times faster to call than `torch.ops`.

`torch.convolution(...)` and `torch.ops.aten.convolution.default(...)` reach the same kernel, but the second boxes its
arguments, which costs more than many small kernels do. Whether a function of the same name really reaches the same
overload with the same arguments is not guessed: it is called once, on empty stand-ins, under a mode that notes what it
dispatched to and runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from conformance.emulation.tape import tensors_in

_found: dict[Any, Callable[..., Any] | None] = {}


def python_binding(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
    """A function that does exactly what the operator called `name` (`aten::add.Tensor`) does with such arguments.

    Which overload a function takes depends on the kinds of its arguments alone, so answers are kept by kind. Tensors
    among the arguments may be stand-ins. Factories have none: their functions look at modes and defaults of the caller.
    """
    kinds = (name, *map(_kind, args), *((keyword, _kind(value)) for keyword, value in kwargs.items()))
    if kinds not in _found:
        known = name.startswith("aten::") and bool(tensors_in(args))
        _found[kinds] = _search(name.removeprefix("aten::"), args, kwargs) if known else None
    return _found[kinds]


def _kind(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dim() == 0, value.dtype
    return tuple(map(_kind, value)) if isinstance(value, (list, tuple)) else type(value)


def _search(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
    packet, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, packet), overload or "default")
    for owner in (torch._C._VariableFunctions, torch._C._nn, torch._C.TensorBase):
        function: Callable[..., Any] | None = getattr(owner, packet, None)
        if function is not None and _reaches(op, function, args, kwargs):
            return function
    return None


class _Reached(Exception):
    """Ends a call before anything runs."""


class _Note(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: tuple[Any, Sequence[Any], Mapping[str, Any]] | None = None

    def note(self, op: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        self.seen = (op, args, kwargs or {})
        raise _Reached


# Assigned after the class is made, for the reason given at EmulatedDevice.
_Note.__torch_dispatch__ = _Note.note  # type: ignore[method-assign,assignment]


def _reaches(op: Any, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    modes = torch._C.DispatchKeySet(torch._C.DispatchKey.Python).add(torch._C.DispatchKey.PythonTLSSnapshot)
    included = torch._C._dispatch_tls_local_include_set()
    excluded = torch._C._dispatch_tls_local_exclude_set()
    mode = _Note()
    try:
        with torch._C._ForceDispatchKeyGuard(included, excluded - modes), mode:
            function(*args, **kwargs)
    except _Reached:
        assert mode.seen is not None
        seen_op, seen_args, seen_kwargs = mode.seen
        return seen_op is op and _same(list(seen_args), list(args)) and _same(dict(seen_kwargs), dict(kwargs))
    except (TypeError, RuntimeError, ValueError):  # another signature, or a check of its own
        return False
    return False


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return left is right
    if isinstance(left, (list, tuple)):
        return isinstance(right, (list, tuple)) and len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    return type(left) is type(right) and bool(left == right)
