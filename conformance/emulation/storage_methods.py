"""What Python sees of a storage on the emulated device: copying, saving and loading a tensor go by its storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from conformance.emulation.device import EmulatedDevice

CUDA0 = torch.device("cuda", 0)
_real_device = torch._C.StorageBase.device.__get__  # type: ignore[attr-defined]
_real_to = torch.UntypedStorage.to


def storage_attributes(device: EmulatedDevice) -> dict[str, Any]:
    """Attributes to set on `torch.UntypedStorage`, by name."""
    marks = device.marks

    def where(self: torch.UntypedStorage) -> torch.device:
        real: torch.device = _real_device(self)
        return CUDA0 if marks.has_storage(self) else real

    def copied(self: torch.UntypedStorage, to_device: bool) -> torch.UntypedStorage:
        made = torch.UntypedStorage(self.nbytes())
        with torch._C._DisableTorchDispatch():
            made.copy_(self)
        if to_device:
            marks.add_storage(made)
        return made

    def clone(self: torch.UntypedStorage) -> torch.UntypedStorage:
        return copied(self, marks.has_storage(self))

    def deepcopy(self: torch.UntypedStorage, memo: dict[Any, Any]) -> torch.UntypedStorage:
        memo = memo.setdefault("torch", {})
        if self._cdata not in memo:
            memo[self._cdata] = clone(self)
        made: torch.UntypedStorage = memo[self._cdata]
        return made

    def to(self: torch.UntypedStorage, *, device: Any, non_blocking: bool = False) -> torch.UntypedStorage:
        target = torch.device(device)
        if target.type not in ("cpu", "cuda"):
            gone: torch.UntypedStorage = _real_to(self, device=target, non_blocking=non_blocking)
            return gone
        return self if target.type == where(self).type else copied(self, target.type == "cuda")

    def cpu(self: torch.UntypedStorage) -> torch.UntypedStorage:
        return to(self, device="cpu")

    def cuda(self: torch.UntypedStorage, device: Any = None, non_blocking: bool = False) -> torch.UntypedStorage:
        return to(self, device="cuda")

    return {
        "device": property(where),
        "is_cuda": property(marks.has_storage),
        "clone": clone,
        "__deepcopy__": deepcopy,
        "to": to,
        "cpu": cpu,
        "cuda": cuda,
    }
