"""The emulated device in other threads.

A dispatch mode belongs to one thread. So that a thread started under the emulation has its device too, as on CUDA, each
enters the mode for its life, and so does each task that is handed to a pool whose threads are older. A thread that
outlives the emulation may go on with host tensors; one that touches the device gets an error that names it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MethodType
from typing import Any

from conformance.emulation.device import EmulatedDevice
from conformance.emulation.errors import EmulationError
from conformance.emulation.tape import tensors_in

_inside = threading.local()


def attributes(device: EmulatedDevice) -> list[tuple[Any, str, Any]]:
    """`(owner, name, value)` of every attribute to set."""
    bootstrap = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]
    submit = ThreadPoolExecutor.submit

    def run_thread(self: threading.Thread) -> None:
        _in_device(device, bootstrap, self)

    def submit_task(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return submit(self, _in_device, device, fn, *args, **kwargs)

    return [(threading.Thread, "_bootstrap_inner", run_thread), (ThreadPoolExecutor, "submit", submit_task)]


def enter(device: EmulatedDevice) -> None:
    """Note that this thread is in the device's mode."""
    _inside.device = device


def leave() -> None:
    _inside.device = None


def _in_device(device: EmulatedDevice, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call in the device's mode, unless this thread is in it already or the emulation has ended meanwhile."""
    before = getattr(_inside, "device", None)
    if before is device or device.ended:
        return call(*args, **kwargs)
    enter(device)
    try:
        with device:
            return call(*args, **kwargs)
    finally:
        _inside.device = before


def end(device: EmulatedDevice) -> None:
    """Turn `device` into one that is gone, for threads that are still in its mode."""

    def gone(
        device: EmulatedDevice, op: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if any(tensor in device.marks for tensor in (*tensors_in(args), *tensors_in(kwargs.values()))):
            raise EmulationError(
                f"thread {threading.current_thread().name!r} called {op.name()} on a tensor of emulated CUDA after the "
                "emulation had ended. Join the thread before leaving `with emulated_cuda()`."
            )
        return op(*args, **kwargs)

    device.ended = True
    vars(device)["__torch_dispatch__"] = MethodType(gone, device)
