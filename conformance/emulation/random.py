"""The emulated device's random numbers: generators of its own, as CUDA has, for eager calls and replays alike."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from conformance.emulation.callsite import user_call_site
from conformance.emulation.capture import Capture, current_capture

CUDA0 = torch.device("cuda", 0)

_on_device: weakref.WeakValueDictionary[int, Generator] = weakref.WeakValueDictionary()
"""Generators of the device by address: the dispatcher hands a new Python object for the same generator to a mode."""


class Generator(torch.Generator):
    """Stands in for `torch.Generator`: one made for `cuda` says so, and draws from a host generator underneath.

    `capturing` is up from the beginning to the successful end of a capture that the generator is registered with. As in
    torch, a failed capture leaves it up until the next one ends.
    """

    _cdata: int
    _emulated_device: torch.device
    capturing: bool

    def __new__(cls, device: Any = "cpu") -> Generator:
        asked = torch.device(device)
        self: Generator = super().__new__(cls, "cpu" if asked.type == "cuda" else asked)  # type: ignore[call-arg]
        self._emulated_device = CUDA0 if asked.type == "cuda" else asked
        self.capturing = False
        if asked.type == "cuda":
            _on_device[self._cdata] = self
        return self

    def __init__(self, device: Any = "cpu") -> None:
        super().__init__()

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._emulated_device

    def manual_seed(self, seed: int) -> Generator:
        if self.device.type == "cuda" and current_capture() is not None and seed != self.initial_seed():
            raise RuntimeError(
                "CUDAGeneratorImpl::set_current_seed can be called during stream capture only if new seed is the same "
                f"as the original seed. ({user_call_site()}) Seed before each replay instead."
            )
        super().manual_seed(seed)
        return self


def _address(generator: torch.Generator) -> int:
    return int(generator._cdata)  # type: ignore[attr-defined]


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

    def bind(self, op: Callable[..., Any], generator: torch.Generator | None, capture: Capture | None) -> Any:
        """What draws for `op`, called on the device with `generator`, in `capture` if that is open here.

        Raises RuntimeError, in torch's words, for a generator that cannot draw now.
        """
        drawn_from = self.default if generator is None else _on_device.get(_address(generator))
        if drawn_from is None:
            raise RuntimeError(f"Expected a 'cuda' device type for generator but found 'cpu' ({user_call_site()})")
        if capture is not None and drawn_from not in capture.generators:
            raise RuntimeError(
                "Attempt to increase offset for a CUDA generator not in capture mode. "
                f"({user_call_site()}) Call graph.register_generator_state(generator) before the capture."
            )
        if capture is None and drawn_from.capturing:
            raise RuntimeError(
                "Offset increment outside graph capture encountered unexpectedly. "
                f"({user_call_site()}) A failed capture left the generator in capture mode: capture once more."
            )
        return op if generator is not None else lambda *args, **kwargs: self.run(op, args, kwargs)


def check_host_generator(generator: torch.Generator | None) -> None:
    """Raise for a device's generator given to a host operation."""
    if generator is not None and _address(generator) in _on_device:
        raise RuntimeError(f"Expected a 'cpu' device type for generator but found 'cuda' ({user_call_site()})")
