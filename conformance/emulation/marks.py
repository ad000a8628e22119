"""Which storages live on the emulated device.

Emulated CUDA memory is host memory with a mark on its storage. A mark is keyed by the address of the storage object and
holds that object weakly: the memory is freed as usual, while the address cannot be given to another storage until the
mark is swept, so a key never means two storages.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_SWEEP_EVERY = 4096
_PEAK_RESOLUTION = 1 << 20


class StorageMarks:
    """A set of storages, held weakly. Threads may add while another sweeps: no mark is lost."""

    def __init__(self) -> None:
        self._refs: dict[int, StorageWeakRef] = {}
        self._changes = threading.RLock()
        self._sweep_at = _SWEEP_EVERY
        self.peak_bytes = 0
        self._live_at_most = 0  # live bytes when they were last counted, and all that was added since

    def __contains__(self, tensor: torch.Tensor) -> bool:
        try:
            return tensor.untyped_storage()._cdata in self._refs
        except (NotImplementedError, RuntimeError):  # sparse and functorch tensors have no storage of their own
            return False

    def which(self, tensors: Sequence[torch.Tensor]) -> list[bool]:
        """Of each tensor, whether it is in the set: what every call on the device asks, in the fewest steps."""
        refs = self._refs
        try:
            return [tensor.untyped_storage()._cdata in refs for tensor in tensors]
        except (NotImplementedError, RuntimeError):
            return [tensor in self for tensor in tensors]

    def add(self, tensor: torch.Tensor) -> None:
        self.add_storage(tensor.untyped_storage())

    def add_storage(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata in self._refs:
            return
        with self._changes:
            if len(self._refs) >= self._sweep_at:
                self.sweep()
            self._refs[storage._cdata] = StorageWeakRef(storage)
            self._live_at_most += storage.nbytes()
            if self._live_at_most > self.peak_bytes + max(_PEAK_RESOLUTION, self.peak_bytes >> 6):
                self.live_bytes()

    def has_storage(self, storage: torch.UntypedStorage) -> bool:
        return storage._cdata in self._refs

    def sweep(self) -> None:
        """Forget storages that are gone."""
        with self._changes:
            self._refs = {key: ref for key, ref in self._refs.items() if not ref.expired()}
            self._sweep_at = max(_SWEEP_EVERY, 2 * len(self._refs))

    def live_bytes(self) -> int:
        """Bytes of all marked storages that are alive.

        Counting visits each, so a new peak is looked for only when it may exceed the last by a MiB and by 1/64 of it.
        """
        with self._changes:
            self.sweep()
            total = 0
            for ref in self._refs.values():
                storage = torch.UntypedStorage._new_with_weak_ptr(ref.cdata)
                if storage is not None:
                    total += storage.nbytes()
            self._live_at_most = total
            self.peak_bytes = max(self.peak_bytes, total)
            return total

    def clear(self) -> None:
        self._refs.clear()
