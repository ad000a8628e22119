"""The one capture that may be open, and what refuses an operation inside it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from conformance.emulation.callsite import user_call_site
from conformance.emulation.errors import CaptureInvalidated, CaptureRefused

if TYPE_CHECKING:
    from conformance.emulation.random import Generator
    from conformance.emulation.streams import Stream
    from conformance.emulation.tape import Tape

NOT_PERMITTED = "CUDA error: operation not permitted when stream is capturing"
NOT_PINNED = "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned"
ALREADY_FAILED = "CUDA error: operation failed due to a previous error during capture"
UNCAPTURED_WORK = "CUDA error: dependency created on uncaptured work in another stream"
UNJOINED_WORK = "CUDA error: capturing stream has unjoined work"


@dataclass
class Capture:
    """An open capture: where its operations are written, who opened it, and the first thing it refused.

    `streams` are those that take part: the one it began on, and those that waited for one of them since. `unjoined` are
    those of them whose work no other has waited for.
    """

    tape: Tape
    stream: Stream
    generators: tuple[Generator, ...] = ()
    streams: set[Stream] = field(default_factory=set)
    unjoined: set[Stream] = field(default_factory=set)
    thread: int = field(default_factory=threading.get_ident)
    refusal: str | None = None

    def __post_init__(self) -> None:
        self.streams.add(self.stream)

    def works_on(self, stream: Stream) -> None:
        """Note an operation on `stream`, after which the capture cannot end before `stream` is joined."""
        if stream != self.stream:
            self.unjoined.add(stream)


_open: Capture | None = None


def current_capture() -> Capture | None:
    return _open


def begin(capture: Capture) -> None:
    global _open
    if _open is not None:
        raise RuntimeError(
            "Cannot register the state during capturing stage. during CUDA graph capture. "
            "End the capture that is open before beginning another."
        )
    _open = capture


def end() -> Capture:
    global _open
    if _open is None:
        raise RuntimeError("CUDA error: capture_end was called, and no capture is open.")
    capture, _open = _open, None
    return capture


def abandon() -> None:
    """Forget an open capture, when the emulation itself ends."""
    global _open
    _open = None


def refuse(call: str, cure: str = "", *, wording: str = NOT_PERMITTED) -> NoReturn:
    """Raise for `call`, which CUDA does not permit now, and invalidate the open capture as CUDA does."""
    message = f"{wording}: {call} at {user_call_site()}"
    if cure:
        message += f". {cure}"
    if _open is not None and _open.refusal is None:
        _open.refusal = message
    raise CaptureRefused(message)


def decline(call: str, cure: str) -> NoReturn:
    """Raise for a copy of pageable memory. Torch itself looks and declines it, so the capture goes on unharmed."""
    raise CaptureRefused(f"{NOT_PINNED}: {call} at {user_call_site()}. {cure}")


def refuse_while_capturing(call: str, cure: str = "") -> None:
    if _open is not None:
        refuse(call, cure)


def refuse_after_a_refusal(capture: Capture, call: str) -> None:
    """Raise for a kernel in a capture that is invalid already."""
    if capture.refusal is not None:
        raise CaptureInvalidated(
            f"{ALREADY_FAILED}: {call} at {user_call_site()}. The first refused operation: {capture.refusal}"
        )
