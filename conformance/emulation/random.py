"""The emulated device's random numbers: a generator of its own, as CUDA has, for eager calls and replays alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

CUDA0 = torch.device("cuda", 0)


class Generator(torch.Generator):
    """Stands in for `torch.Generator`: one made for `cuda` says so, and draws from a host generator underneath."""

    _emulated_device: torch.device

    def __new__(cls, device: Any = "cpu") -> Generator:
        asked = torch.device(device)
        self: Generator = super().__new__(cls, "cpu" if asked.type == "cuda" else asked)  # type: ignore[call-arg]
        self._emulated_device = CUDA0 if asked.type == "cuda" else asked
        return self

    def __init__(self, device: Any = "cpu") -> None:
        super().__init__()

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._emulated_device


class DeviceRandom:
    """Runs random operations of the device on its default generator, which `torch.cuda.manual_seed` reaches."""

    def __init__(self) -> None:
        self.default = Generator("cuda")
        self.default.manual_seed(torch.initial_seed())

    def run(self, op: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run `op`, which takes no generator or was given none, drawing from the device's default generator."""
        host_state = torch.default_generator.get_state()
        torch.default_generator.set_state(self.default.get_state())
        try:
            return op(*args, **kwargs)
        finally:
            self.default.set_state(torch.default_generator.get_state())
            torch.default_generator.set_state(host_state)

    def bind(self, op: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(op, args, kwargs)
