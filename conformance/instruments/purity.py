"""Everything that a warm-up must leave as it was, copied so that it can be compared bit for bit."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from conformance.subject import Subject

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_TORCHS_OWN = frozenset({"_parameters", "_buffers", "_modules"})


@contextlib.contextmanager
def states_in_use() -> Iterator[None]:
    """Every generator has drawn inside, so that setting its seed again shows; on exit each is as it was."""
    host, device, python = torch.get_rng_state(), torch.cuda.get_rng_state(), random.getstate()
    torch.rand(3)
    torch.rand(3, device="cuda")
    random.random()
    try:
        yield
    finally:
        torch.set_rng_state(host)
        torch.cuda.set_rng_state(device)
        random.setstate(python)


def photograph(subject: Subject) -> Mapping[str, Any]:
    """Parameters, buffers and plain attributes of every submodule, and the random states, by name."""
    found: dict[str, Any] = {
        "torch's random state": torch.get_rng_state(),
        "CUDA's random state": torch.cuda.get_rng_state(),
        "Python's random state": random.getstate(),
    }
    module = subject.module
    for name, tensor in [*module.named_parameters(), *module.named_buffers(), *subject.state.items()]:
        found[name] = tensor.detach().clone()
    for path, part in module.named_modules():
        for attribute, value in vars(part).items():
            if attribute not in _TORCHS_OWN and _is_plain(value):
                found[f"{path}.{attribute}".lstrip(".")] = _copied(value)
    return found


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The names whose value differs, or is there only once."""
    return sorted(
        name
        for name in before.keys() | after.keys()
        if name not in before or name not in after or not _same(before[name], after[name])
    )


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple, set)):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    return isinstance(value, (*_PLAIN, torch.Tensor))


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, (list, tuple)):
        return [_copied(item) for item in value]
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return set(value) if isinstance(value, set) else value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and _bits_equal(one, other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return type(one) is type(other) and bool(one == other or (one != one and other != other))


def _bits_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dtype.is_floating_point or one.dtype.is_complex:
        return bool(((one == other) | ((one != one) & (other != other))).all())
    return torch.equal(one, other)
