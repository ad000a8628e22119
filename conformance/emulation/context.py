"""`emulated_cuda`: the emulation, on for the duration of a `with` block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.utils._device import _device_constructors

from conformance.emulation import (
    autocast,
    capture,
    composites,
    cuda_api,
    graph,
    real_device,
    storage_methods,
    streams,
    tensor_methods,
    threads,
    vllm_platform,
)
from conformance.emulation.device import EmulatedDevice
from conformance.emulation.errors import EmulationError
from conformance.emulation.patching import Patches

_active: EmulatedDevice | None = None


def active_device() -> EmulatedDevice | None:
    """The device that is emulated now, if any."""
    return _active


@contextlib.contextmanager
def emulated_cuda() -> Iterator[EmulatedDevice]:
    """Emulate one CUDA device, `cuda:0`, on a machine without a GPU.

    Inside, tensors made for or moved to `cuda` say so, and `torch.cuda.graph` captures and replays with CUDA's
    semantics. On exit everything is as it was before, also after an exception::

        with emulated_cuda():
            wrapper = MyGraphWrapper(module.to("cuda"))
            wrapper.warmup()
            assert torch.equal(wrapper(x.cuda()), module(x.cuda()))

    Raises :class:`EmulationError` when it is on already.
    """
    global _active
    if _active is not None:
        raise EmulationError("emulated CUDA is on already: leave the outer `with emulated_cuda()` first")
    device = EmulatedDevice()
    patches = Patches()
    _active = device
    try:
        for owner, name, value in [
            *cuda_api.attributes(device),
            *composites.functions(device),
            *vllm_platform.attributes(),
            *real_device.attributes(),
            *threads.attributes(device),
        ]:
            patches.set(owner, name, value)
        for original, stand_in in tensor_methods.tensor_factories(device).items():
            patches.set(torch, original.__name__, stand_in)
        for name, value in tensor_methods.tensor_attributes(device).items():
            patches.set(torch.Tensor, name, value)
        for name, value in storage_methods.storage_attributes(device).items():
            patches.set(torch.UntypedStorage, name, value)
        patches.swap_references()
        _forget_constructors()
        threads.enter(device)
        with device:
            yield device
    finally:
        patches.undo()
        _forget_constructors()
        threads.leave()
        threads.end(device)
        capture.abandon()
        streams.set_stream(streams.DEFAULT_STREAM)
        graph.forget_pools()
        autocast.forget()
        _active = None


def _forget_constructors() -> None:
    """Torch keeps the set of functions that `with torch.device(...)` rules, from when it is first asked."""
    _device_constructors.cache_clear()
