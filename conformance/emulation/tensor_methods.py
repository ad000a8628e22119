"""What Python sees of a tensor on the emulated device: where it is, and how it moves.

These replace attributes of `torch.Tensor` while the emulation is on. Each asks the marks and otherwise does what
torch's own does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from conformance.emulation import refusals
from conformance.emulation.capture import decline, refuse
from conformance.emulation.streams import capture_here

if TYPE_CHECKING:
    from conformance.emulation.device import EmulatedDevice

CUDA0 = torch.device("cuda", 0)
CPU = torch.device("cpu")
_real_device = torch._C.TensorBase.device.__get__
_real_to = torch._C.TensorBase.to
_real_numpy = torch._C.TensorBase.numpy
_real_repr: Any = torch.Tensor.__repr__
_real_tolist = torch._C.TensorBase.tolist
_real_is_pinned = torch._C.TensorBase.is_pinned
_real_new_tensor = torch._C.TensorBase.new_tensor
_real_tensor = torch.tensor
_real_as_tensor = torch.as_tensor
_real_type = torch._C.TensorBase.type
_real_record_stream = torch._C.TensorBase.record_stream


def tensor_attributes(device: EmulatedDevice) -> dict[str, Any]:
    """Attributes to set on `torch.Tensor`, by name."""
    marks = device.marks

    def where(self: torch.Tensor) -> torch.device:
        real = _real_device(self)
        return CUDA0 if real.type == "cpu" and self in marks else real

    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        other = kwargs.pop("other", None)
        if args and isinstance(args[0], torch.Tensor):
            other, args = args[0], args[1:]
        copy = bool(kwargs.pop("copy", False))
        if other is not None:
            target, dtype = other.device, other.dtype
            non_blocking = bool(args[0]) if args else bool(kwargs.get("non_blocking", False))
            memory_format = kwargs.get("memory_format")
        else:
            if args and type(args[0]) is int:  # torch parses it only where it knows an accelerator
                args = (torch.device("cuda", args[0]), *args[1:])
            target, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
        return move(self, target, dtype, non_blocking, memory_format, copy)

    def move(
        self: torch.Tensor,
        target: torch.device | None,
        dtype: torch.dtype | None = None,
        non_blocking: bool = False,
        memory_format: torch.memory_format | None = None,
        copy: bool = False,
    ) -> torch.Tensor:
        options: dict[str, Any] = {} if memory_format is None else {"memory_format": memory_format}
        if target is None or target.type == where(self).type:
            kept: torch.Tensor = _real_to(self, dtype=dtype or self.dtype, copy=copy, **options)
            return kept
        if target.type not in ("cpu", "cuda"):
            gone: torch.Tensor = _real_to(self, device=target, dtype=dtype or self.dtype, copy=copy, **options)
            return gone
        target = CUDA0 if target == torch.device("cuda") else target
        result: torch.Tensor = torch.ops.aten._to_copy.default(
            self, dtype=dtype or self.dtype, device=target, non_blocking=non_blocking, **options
        )
        return result

    def cuda(self: torch.Tensor, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> torch.Tensor:
        return move(self, CUDA0, None, non_blocking, kwargs.get("memory_format"))

    def cpu(self: torch.Tensor, memory_format: torch.memory_format | None = None) -> torch.Tensor:
        return move(self, CPU, None, False, memory_format)

    def numpy(self: torch.Tensor, *, force: bool = False) -> Any:
        if self in marks:
            if not force:
                raise TypeError(
                    "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
                    "memory first."
                )
            return _real_numpy(cpu(self), force=True)
        return _real_numpy(self, force=force)

    def tolist(self: torch.Tensor) -> Any:
        if self in marks and capture_here() is not None:
            decline("Tensor.tolist", refusals.READS_BACK)
        return _real_tolist(self)

    def to_text(self: torch.Tensor, *, tensor_contents: Any = None) -> str:
        if self in marks and capture_here() is not None:
            refuse("Tensor.__repr__", refusals.READS_BACK)
        text: str = _real_repr(self, tensor_contents=tensor_contents)
        return text

    def is_pinned(self: torch.Tensor, device: Any = None) -> bool:
        return self in device_pinned

    def pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
        if self in marks:
            raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
        if self in device_pinned:
            return self
        pinned = self.clone()
        device_pinned.add(pinned)
        return pinned

    def new_tensor(self: torch.Tensor, data: Any, **kwargs: Any) -> torch.Tensor:
        kwargs.setdefault("device", where(self))
        kwargs.setdefault("dtype", self.dtype)
        return tensor_factories(device)[_real_tensor](data, **kwargs)  # type: ignore[no-any-return]

    def type_(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
        if dtype is None:
            name: str = _real_type(self)
            return name.replace("torch.", "torch.cuda.") if self in marks else name
        if isinstance(dtype, torch.dtype):
            return move(self, None, dtype, non_blocking)
        name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
        on_device = name.startswith("torch.cuda.")
        host_type = name.replace("torch.cuda.", "torch.")
        return _real_type(move(self, CUDA0 if on_device else CPU, None, non_blocking), host_type)

    def type_as(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return move(self, other.device, other.dtype)

    def record_stream(self: torch.Tensor, stream: Any) -> None:
        """Nothing to keep: memory is freed when its last reference goes, and all work on it is done by then."""
        if self not in marks:
            _real_record_stream(self, stream)

    device_pinned = device.pinned
    return {
        "device": property(where),
        "is_cuda": property(lambda self: where(self).type == "cuda"),
        "is_cpu": property(lambda self: where(self).type == "cpu"),
        "get_device": lambda self: 0 if self in marks else -1,
        "to": to,
        "cuda": cuda,
        "cpu": cpu,
        "numpy": numpy,
        "tolist": tolist,
        "__repr__": to_text,
        "is_pinned": is_pinned,
        "pin_memory": pin_memory,
        "new_tensor": new_tensor,
        "type": type_,
        "type_as": type_as,
        "record_stream": record_stream,
    }


def tensor_factories(device: EmulatedDevice) -> dict[Any, Any]:
    """Stand-ins for the factories that read host data, keyed by what they stand in for.

    On CUDA each builds the tensor on the host and copies it over, which is why a capture refuses them.
    """

    def target_of(kwargs: dict[str, Any], data: Any) -> torch.device:
        asked = kwargs.pop("device", None)
        if asked is not None:
            return torch.device("cuda", asked) if isinstance(asked, int) else torch.device(asked)
        if isinstance(data, torch.Tensor):
            return data.device
        return torch.empty(0).device  # torch.get_default_device makes a tensor in the way that is replaced here

    def tensor(data: Any, **kwargs: Any) -> torch.Tensor:
        target = target_of(kwargs, None if isinstance(data, torch.Tensor) else data)
        if target.type != "cuda":
            return _real_tensor(data, device=target, **kwargs)
        requires_grad = kwargs.pop("requires_grad", False)
        made = _real_tensor(data, device="cpu", **kwargs).to(CUDA0)
        return made.requires_grad_(requires_grad)

    def as_tensor(data: Any, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
        target = target_of({"device": device}, data)
        if isinstance(data, torch.Tensor):
            return data.to(device=target, dtype=dtype or data.dtype)
        made = _real_as_tensor(data, dtype=dtype, device="cpu" if target.type == "cuda" else target)
        return made.to(CUDA0) if target.type == "cuda" else made

    return {_real_tensor: tensor, _real_as_tensor: as_tensor}
