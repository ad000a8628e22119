"""Streams and events of the emulated device.

All work is done at once and in program order, so ordering between streams needs no bookkeeping. What remains is what
code can see: identity, the current stream of a thread, which streams take part in a capture, and the calls that a
capture refuses.
"""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import torch

from conformance.emulation.capture import (
    UNCAPTURED_WORK,
    Capture,
    current_capture,
    refuse,
    refuse_while_capturing,
)

CUDA0 = torch.device("cuda", 0)
_handles = itertools.count(1)


class Stream:
    """Stands in for `torch.cuda.Stream` and `torch.Stream`."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device = CUDA0
        self.device_index = 0
        self.device_type = 1
        self.priority = priority
        self.cuda_stream = next(_handles)
        self.stream_id = self.cuda_stream
        self._previous: list[Stream] = []

    def wait_stream(self, stream: Stream) -> None:
        self.wait_event(stream.record_event())

    def wait_event(self, event: Event) -> None:
        """Earlier work is done. Within a capture, waiting is what makes a stream take part and what joins it again."""
        capture = current_capture()
        if capture is None or event._stream is None:
            return
        if event._capture is capture:
            capture.streams.add(self)
            capture.unjoined.discard(event._stream)
            if event._stream != self:
                capture.works_on(self)
        elif self in capture.streams:
            cure = "Let the other stream wait for the capturing one first, so that it takes part in the capture."
            refuse("a wait for work outside the capture", cure, wording=UNCAPTURED_WORK)

    def record_event(self, event: Event | None = None) -> Event:
        event = event if event is not None else Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        refuse_while_capturing("Stream.synchronize")

    def query(self) -> bool:
        refuse_while_capturing("Stream.query")
        return True

    def __enter__(self) -> Stream:
        self._previous.append(current_stream())
        set_stream(self)
        return self

    def __exit__(self, *_: object) -> None:
        set_stream(self._previous.pop())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:0 cuda_stream={self.cuda_stream:#x} (emulated)>"


class Event:
    """Stands in for `torch.cuda.Event` and `torch.Event`. Times are the host's, in milliseconds."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any
    ) -> None:
        self.enable_timing = enable_timing
        self.device = CUDA0
        self.cuda_event = next(_handles)
        self._recorded: float | None = None
        self._stream: Stream | None = None
        self._capture: Capture | None = None

    def record(self, stream: Stream | None = None) -> None:
        self._recorded = time.perf_counter()
        self._stream = stream if stream is not None else current_stream()
        capture = current_capture()
        self._capture = capture if capture is not None and self._stream in capture.streams else None

    def wait(self, stream: Stream | None = None) -> None:
        (stream if stream is not None else current_stream()).wait_event(self)

    def query(self) -> bool:
        refuse_while_capturing("Event.query")
        return True

    def synchronize(self) -> None:
        refuse_while_capturing("Event.synchronize")

    def elapsed_time(self, end_event: Event) -> float:
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._recorded is None or end_event._recorded is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._recorded - self._recorded) * 1e3


DEFAULT_STREAM = Stream()
DEFAULT_STREAM.cuda_stream = DEFAULT_STREAM.stream_id = 0
_current = threading.local()


def current_stream(device: Any = None) -> Stream:
    return getattr(_current, "stream", DEFAULT_STREAM)


def default_stream(device: Any = None) -> Stream:
    return DEFAULT_STREAM


def set_stream(stream: Stream | None) -> None:
    if stream is not None:
        _current.stream = stream


def capture_here() -> Capture | None:
    """The open capture, if this thread's current stream takes part in it."""
    capture = current_capture()
    return capture if capture is not None and current_stream() in capture.streams else None


def is_current_stream_capturing() -> bool:
    """Stands in for `torch.cuda.is_current_stream_capturing`."""
    return capture_here() is not None


class StreamContext:
    """Stands in for `torch.cuda.StreamContext` and `torch.cuda.stream`. `None` changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self.src_prev_stream: Stream | None = None
        self.dst_prev_stream: Stream | None = None

    def __enter__(self) -> None:
        self.src_prev_stream = self.dst_prev_stream = current_stream()
        set_stream(self.stream)

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            set_stream(self.src_prev_stream)
