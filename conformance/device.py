"""The device that a run happens on: a real GPU, or emulated CUDA on a machine without one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

from conformance.catalogue import Machine
from conformance.emulation import emulated_cuda
from conformance.numerics import strict_numerics

CUDA = "cuda"
EMULATED = "emulated"
AUTO = "auto"
CHOICES = (AUTO, CUDA, EMULATED)


def _share_cores() -> None:
    """Give each process of a distributed run its share of the cores: with more threads, small kernels crawl."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))


@contextlib.contextmanager
def open_device(choice: str) -> Iterator[Machine]:
    """Enter the device for a run: `auto` takes a GPU where there is one. Strict numerics hold meanwhile.

    Yields a :class:`Machine` whose `graphs` is false when a GPU was asked for and none is there.
    """
    if choice not in CHOICES:
        raise ValueError(f"graph device {choice!r}: expected one of {', '.join(CHOICES)}")
    available = torch.cuda.is_available()
    _share_cores()
    if choice == EMULATED or (choice == AUTO and not available):
        with strict_numerics(), emulated_cuda():
            yield Machine(EMULATED, "emulated CUDA", torch.__version__)
    elif available:
        with strict_numerics():
            yield Machine(CUDA, torch.cuda.get_device_name(), torch.__version__)
    else:
        yield Machine(CUDA, "no CUDA device", torch.__version__, graphs=False)
