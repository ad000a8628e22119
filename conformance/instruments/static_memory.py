"""The memory that a runner keeps between calls, and poison in it.

Reached from the runner object itself, since a scan of the whole process would also find tables that a model's package
keeps for good. Of what is reached, only memory that changes from call to call is poisoned: constants are the module's.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from conformance.subject import Inputs, Subject

_OPAQUE = (type, types.ModuleType, types.FunctionType, types.MethodType, str, bytes, int, float, torch.device)


def rewritten_memory(subject: Subject, first: Inputs, second: Inputs) -> list[torch.Tensor]:
    """Floating-point device tensors behind the subject's runner whose content differs after two calls.

    None for a subject that keeps state: what it keeps between calls is there to be read.
    """
    if subject.spec.capabilities.state.supported:
        return []
    module = subject.module
    kept = {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), *module.buffers())}
    subject(first)
    reached = [
        (tensor, tensor.clone())
        for tensor in tensors_behind(subject.runner)
        if tensor.is_cuda and tensor.is_floating_point() and tensor.untyped_storage().data_ptr() not in kept
    ]
    subject(second)
    return [tensor for tensor, before in reached if not torch.equal(tensor, before)]


@contextlib.contextmanager
def poisoned(tensors: list[torch.Tensor]) -> Iterator[None]:
    """NaN over the whole of each: whatever is read before it is written shows. What they held is put back on exit."""
    held = [tensor.clone() for tensor in tensors]
    for tensor in tensors:
        overwrite(tensor, torch.full_like(tensor, float("nan")))
    try:
        yield
    finally:
        for tensor, before in zip(tensors, held, strict=True):
            overwrite(tensor, before)


def overwrite(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Write in place, as any later kernel would: inference tensors take that in inference mode alone."""
    with torch.no_grad(), torch.inference_mode(tensor.is_inference()):
        tensor.copy_(values)


def tensors_behind(root: Any) -> Iterator[torch.Tensor]:
    """Tensors in the attributes, containers and objects that `root` holds; modules are not entered."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, (*_OPAQUE, nn.Module)):
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple, set, frozenset)):
            waiting += value
        else:
            waiting += vars(value).values() if hasattr(value, "__dict__") else ()
