"""Emulated CUDA: `torch.cuda`'s graph API on a machine without a GPU, with the semantics of the real one."""

from conformance.emulation.context import active_device, emulated_cuda
from conformance.emulation.errors import CaptureInvalidated, CaptureRefused, EmulationError, UseAfterFree

__all__ = ["CaptureInvalidated", "CaptureRefused", "EmulationError", "UseAfterFree", "active_device", "emulated_cuda"]
