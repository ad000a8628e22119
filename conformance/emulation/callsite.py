"""The line of user code behind an operation."""

from __future__ import annotations

import linecache
import os
import sys
from dataclasses import dataclass
from types import FrameType

import torch

_TORCH = os.path.dirname(torch.__file__) + os.sep
_EMULATION = os.path.dirname(__file__) + os.sep
PASSING_ON = ("__torch_function__", "__torch_dispatch__")  # frames of a mode, through which another line's call goes


@dataclass(frozen=True)
class CallSite:
    filename: str
    line: int
    function: str

    def __str__(self) -> str:
        text = linecache.getline(self.filename, self.line).strip()
        place = f"{self.filename}:{self.line} in {self.function}"
        return f"{place}: {text}" if text else place


def user_call_site() -> CallSite:
    """The innermost frame outside torch, the emulation and modes of the user's own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_back is not None:
        code = frame.f_code
        if not code.co_filename.startswith((_TORCH, _EMULATION)) and code.co_name not in PASSING_ON:
            break
        frame = frame.f_back
    if frame is None:
        return CallSite("<unknown>", 0, "<unknown>")
    return CallSite(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
