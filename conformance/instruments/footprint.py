"""How much device memory is in use, measured so that two readings can be compared."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping

import torch

from conformance.device import CUDA
from conformance.subject import Subject

BLOCK = 512  # bytes: the caching allocator rounds every tensor up to a multiple of this
SEGMENT = 20 * 1024**2  # bytes: what the caching allocator asks the driver for at once, at most, for small requests
_POOL_STREAMS = 32  # torch hands out its streams in turn from a ring of this size
_primed = False


@contextlib.contextmanager
def measuring(subject: Subject) -> Iterator[None]:
    """Readings inside can be compared: what is there now is kept aside, so that only what is made inside is collected.

    What a process makes once and keeps is made first, so that it is not taken for a subject's: cuBLAS keeps a workspace
    for each stream that it ever ran on, cuBLASLt (for a bias) another, and torch hands out 32 streams in turn.
    """
    global _primed
    if subject.machine.device == CUDA and not _primed:
        _primed = True
        matrix = torch.ones(8, 8, device=subject.device)
        for _ in range(_POOL_STREAMS):
            with torch.cuda.stream(torch.cuda.Stream(subject.device)):
                torch.nn.functional.linear(matrix, torch.mm(matrix, matrix), matrix[0])
    torch.cuda.synchronize()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def allocated() -> int:
    """Bytes of live tensors, after garbage is collected."""
    gc.collect()
    torch.cuda.synchronize()
    return int(torch.cuda.memory_allocated())


def reserved() -> int:
    """Bytes taken from the device, after everything unused was given back. To be read after :func:`allocated`."""
    torch.cuda.empty_cache()
    return int(torch.cuda.memory_reserved())


def static_bytes(subject: Subject, bucket: Mapping[str, int]) -> int:
    """Bytes that a bucket's static inputs and outputs need, each rounded up as the allocator does."""
    inputs = subject.draw(bucket, "static bytes")
    device = {spec.name for spec in subject.adapter.device_inputs()}
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in (
            *(tensor for name, tensor in inputs.items() if name in device),
            *(row for rows in subject.eager(inputs).values() for row in rows),
        )
    }
    return sum(-(-size // BLOCK) * BLOCK for size in storages.values())
