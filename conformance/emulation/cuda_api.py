"""The rest of `torch.cuda` and `torch.accelerator`: one device, its properties, its memory figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from conformance.emulation import graph, streams
from conformance.emulation.autocast import Autocast, CudaAutocast
from conformance.emulation.capture import refuse_while_capturing
from conformance.emulation.random import Generator

if TYPE_CHECKING:
    from conformance.emulation.device import EmulatedDevice

CUDA0 = torch.device("cuda", 0)
TOTAL_MEMORY = 80 * 1024**3


@dataclass(frozen=True)
class DeviceProperties:
    """Stands in for the properties of a device. The figures are round, and no kernel depends on them."""

    name: str = "emulated CUDA"
    major: int = 8
    minor: int = 0
    total_memory: int = TOTAL_MEMORY
    multi_processor_count: int = 108
    warp_size: int = 32
    regs_per_multiprocessor: int = 65536
    max_threads_per_multi_processor: int = 2048
    shared_memory_per_block: int = 48 * 1024
    is_integrated: int = 0


class DeviceContext:
    """Stands in for `torch.cuda.device`."""

    def __init__(self, device: Any) -> None:
        self.idx = 0
        self.prev_idx = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def synchronize(device: Any = None) -> None:
    refuse_while_capturing("torch.cuda.synchronize", "Synchronise before the capture begins.")


def _nothing() -> Callable[..., None]:
    """A function that does nothing: another one each time, since torch._dynamo keeps rules by function."""
    return lambda *_, **__: None


def _uncompiled(model: Any = None, **_: Any) -> Any:
    """torch.compile gives back what it is given: Inductor's kernels run past the dispatcher, so no tape holds them."""
    return model if model is not None else lambda function: function


def attributes(device: EmulatedDevice) -> list[tuple[Any, str, Any]]:
    """`(owner, name, value)` of every attribute to set. Owners are modules of torch."""

    def allocated(*_: Any, **__: Any) -> int:
        return device.marks.live_bytes()

    def peak(*_: Any, **__: Any) -> int:
        device.marks.live_bytes()
        return device.marks.peak_bytes

    def reset_peak(*_: Any, **__: Any) -> None:
        device.marks.peak_bytes = device.marks.live_bytes()

    def statistics(*_: Any, **__: Any) -> dict[str, int]:
        kinds = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")
        figures = {"current": allocated(), "peak": peak()}
        return {f"{kind}.all.{name}": value for kind in kinds for name, value in figures.items()}

    cuda: dict[str, Any] = {
        "CUDAGraph": graph.CUDAGraph,
        "graph_pool_handle": graph.graph_pool_handle,
        "is_current_stream_capturing": streams.is_current_stream_capturing,
        "Stream": streams.Stream,
        "Event": streams.Event,
        "StreamContext": streams.StreamContext,
        "stream": streams.StreamContext,
        "current_stream": streams.current_stream,
        "default_stream": streams.default_stream,
        "set_stream": streams.set_stream,
        "synchronize": synchronize,
        "device": DeviceContext,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": _nothing(),
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": _nothing(),
        "get_device_properties": lambda *_: DeviceProperties(),
        "get_device_name": lambda *_: DeviceProperties().name,
        "get_device_capability": lambda *_: (DeviceProperties().major, DeviceProperties().minor),
        "is_bf16_supported": lambda *_, **__: True,
        "memory_allocated": allocated,
        "memory_reserved": allocated,
        "max_memory_allocated": peak,
        "max_memory_reserved": peak,
        "reset_peak_memory_stats": reset_peak,
        "memory_stats": statistics,
        "mem_get_info": lambda *_: (TOTAL_MEMORY - device.marks.live_bytes(), TOTAL_MEMORY),
        "empty_cache": _nothing(),
        "default_generators": (device.random.default,),
        "_lazy_init": _nothing(),
    }
    accelerator: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_accelerator": lambda *_, **__: torch.device("cuda"),
        "current_device_index": lambda: 0,
        "set_device_index": _nothing(),
        "current_stream": streams.current_stream,
        "set_stream": streams.set_stream,
        "synchronize": synchronize,
        "empty_cache": _nothing(),
        "memory_allocated": allocated,
        "memory_reserved": allocated,
        "max_memory_allocated": peak,
        "max_memory_reserved": peak,
        "reset_peak_memory_stats": reset_peak,
    }
    return [
        *((torch.cuda, name, value) for name, value in cuda.items()),
        *((torch.accelerator, name, value) for name, value in accelerator.items()),
        (torch.cuda.graph, "default_capture_stream", None),
        (torch, "Generator", Generator),
        (torch, "Stream", streams.Stream),
        (torch, "Event", streams.Event),
        (torch, "autocast", Autocast),
        (torch.amp, "autocast", Autocast),
        (torch.cuda.amp, "autocast", CudaAutocast),
        (torch.backends.cudnn, "is_acceptable", lambda *_: False),  # an LSTM asks, and would flatten weights for cuDNN
        (torch, "compile", _uncompiled),
        (torch._C, "_host_emptyCache", _nothing()),
        (torch._C, "_cuda_getCurrentRawStream", lambda *_: streams.current_stream().cuda_stream),
        (torch._C, "_cuda_isCurrentStreamCapturing", streams.is_current_stream_capturing),
    ]
