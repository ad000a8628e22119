"""What the emulation raises. Wording that begins `CUDA error:` is the driver's own, as torch passes it on."""

from __future__ import annotations


class EmulationError(RuntimeError):
    """The emulation cannot do what was asked. Never raised for something that CUDA would refuse as well."""


class CaptureRefused(RuntimeError):
    """An operation that CUDA does not permit while a stream is capturing. Torch raises a `RuntimeError` there too."""


class CaptureInvalidated(RuntimeError):
    """The end of a capture in which an operation was refused."""


class UseAfterFree(RuntimeError):
    """A replay reads or writes memory that was freed after capture. On CUDA this is silent corruption."""
