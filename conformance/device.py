"""The device that a run happens on: a real GPU, or emulated CUDA on a machine without one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from conformance.catalogue import Machine
from conformance.emulation import emulated_cuda
from conformance.numerics import strict_numerics

CUDA = "cuda"
EMULATED = "emulated"
AUTO = "auto"
CHOICES = (AUTO, CUDA, EMULATED)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Kernels of one thread: small ones gain nothing from more, and crawl where other processes want the cores too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def open_device(choice: str) -> Iterator[Machine]:
    """Enter the device for a run: `auto` takes a GPU where there is one. Strict numerics hold meanwhile.

    Yields a :class:`Machine` whose `graphs` is false when a GPU was asked for and none is there.
    """
    if choice not in CHOICES:
        raise ValueError(f"graph device {choice!r}: expected one of {', '.join(CHOICES)}")
    available = torch.cuda.is_available()
    if choice == EMULATED or (choice == AUTO and not available):
        with strict_numerics(), _one_thread(), emulated_cuda():
            yield Machine(EMULATED, "emulated CUDA", torch.__version__)
    elif available:
        with strict_numerics():
            yield Machine(CUDA, torch.cuda.get_device_name(), torch.__version__)
    else:
        yield Machine(CUDA, "no CUDA device", torch.__version__, graphs=False)
