"""The one capture that may be open, and what refuses an operation inside it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from conformance.emulation.callsite import user_call_site
from conformance.emulation.errors import CaptureRefused

if TYPE_CHECKING:
    from conformance.emulation.streams import Stream
    from conformance.emulation.tape import Tape

NOT_PERMITTED = "CUDA error: operation not permitted when stream is capturing"


@dataclass
class Capture:
    """An open capture: where its operations are written, who opened it, and the first thing it refused."""

    tape: Tape
    stream: Stream
    thread: int = field(default_factory=threading.get_ident)
    refusal: str | None = None


_open: Capture | None = None


def current_capture() -> Capture | None:
    return _open


def begin(capture: Capture) -> None:
    global _open
    if _open is not None:
        refuse("CUDAGraph.capture_begin", "End the capture that is open before beginning another.")
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


def is_current_stream_capturing() -> bool:
    """Stands in for `torch.cuda.is_current_stream_capturing`: true while any capture is open."""
    return _open is not None


def refuse(call: str, cure: str = "") -> NoReturn:
    """Raise for `call`, which CUDA does not permit now, and invalidate the open capture as CUDA does."""
    message = f"{NOT_PERMITTED}: {call} at {user_call_site()}"
    if cure:
        message += f". {cure}"
    if _open is not None and _open.refusal is None:
        _open.refusal = message
    raise CaptureRefused(message)


def refuse_while_capturing(call: str, cure: str = "") -> None:
    if _open is not None:
        refuse(call, cure)
