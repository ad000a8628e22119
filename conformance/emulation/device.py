"""The emulated device: a dispatch mode that sees every aten call, keeps host and device apart, and feeds a capture.

Device memory is host memory with a mark (see `marks`). For each call the mode decides whether its result lives on the
device, refuses what CUDA refuses, runs the host kernel, and marks the result. Python sees `cuda:0` through the
properties in `tensor_methods`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from conformance.emulation import refusals
from conformance.emulation.callsite import user_call_site
from conformance.emulation.capture import Capture, decline, refuse, refuse_after_a_refusal
from conformance.emulation.marks import StorageMarks
from conformance.emulation.poison import poison_
from conformance.emulation.random import DeviceRandom, check_host_generator
from conformance.emulation.real_device import explain_failure
from conformance.emulation.streams import capture_here, current_stream
from conformance.emulation.tape import results_in, tensors_in

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Traits:
    """What the mode needs to know of an operator, looked up once."""

    name: str
    writes: tuple[int, ...]
    writes_keywords: tuple[str, ...]
    random: bool
    rule: refusals.Rule | None
    transfers: bool
    indexed: bool
    may_mix: bool
    uninitialised: bool
    op: Any
    """Held, since traits are kept by its address."""

    @classmethod
    def of(cls, op: Any) -> Traits:
        name = op._schema.name
        writes = [
            (position, argument)
            for position, argument in enumerate(op._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        return cls(
            name=name,
            writes=tuple(position for position, argument in writes if not argument.kwarg_only),
            writes_keywords=tuple(argument.name for _, argument in writes if argument.kwarg_only),
            random=torch.Tag.nondeterministic_seeded in op.tags,
            rule=refusals.RULES.get(name),
            transfers=name in refusals.TRANSFERS,
            indexed=name in refusals.INDEXED,
            may_mix=name in refusals.MAY_MIX_DEVICES,
            uninitialised=name in refusals.UNINITIALISED,
            op=op,
        )


class EmulatedDevice(TorchDispatchMode):
    """`cuda:0` of a machine without a GPU, for the threads in which the mode is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.marks = StorageMarks()
        self.pinned = StorageMarks()
        self.random = DeviceRandom()
        self.ended = False
        self._traits: dict[int, Traits] = {}  # by the operator's address: its own hash is a call of Python

    def dispatch(self, op: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        traits = self._traits.get(id(op))
        if traits is None:
            traits = self._traits[id(op)] = Traits.of(op)
        call_kwargs = dict(kwargs) if kwargs else {}
        tensors = tensors_in(args) + tensors_in(call_kwargs.values()) if call_kwargs else tensors_in(args)
        on_device = self.marks.which(tensors)
        pin = bool(call_kwargs.pop("pin_memory", False))
        to_device = self._where(traits, call_kwargs, tensors, on_device)

        capture = capture_here()
        run = op
        if traits.random:
            generator = call_kwargs.get("generator")
            if to_device:
                run = self.random.bind(op, generator, capture)
            else:
                check_host_generator(generator)
        if traits.uninitialised and to_device:
            run = _poisoned(op)

        if not (to_device or True in on_device):
            result = run(*args, **call_kwargs)
        else:
            try:
                if capture is None:
                    result = run(*args, **call_kwargs)
                else:
                    result = self._captured(capture, traits, run, op, args, call_kwargs, tensors, on_device, to_device)
            except Exception as error:
                explain_failure(traits.name, error)
                raise

        if to_device:
            for tensor in results_in(result):
                self.marks.add(tensor)
        elif pin:
            for tensor in results_in(result):
                self.pinned.add(tensor)
        return result

    def _where(
        self, traits: Traits, kwargs: dict[str, Any], tensors: list[torch.Tensor], on_device: list[bool]
    ) -> bool:
        """Whether the result lives on the device. Rewrites a `device` keyword to where the memory really is."""
        some = True in on_device
        if some and False in on_device and not traits.may_mix:
            for tensor, here in zip(tensors, on_device, strict=True):
                if not here and tensor.dim() > 0 and tensor.device.type != "meta":
                    raise RuntimeError(
                        "Expected all tensors to be on the same device, but found at least two devices, "
                        f"cuda:0 and cpu! ({traits.name} at {user_call_site()})"
                    )
        if traits.indexed and some and not on_device[0]:
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu) "
                f"({traits.name} at {user_call_site()})"
            )
        device = kwargs.get("device")
        if device is not None:
            if device.type != "cuda":
                # C++ (type_as, rms_norm in bfloat16) asks for another tensor's options, whose device is the host's for
                # every tensor here; those have a layout too, which moves that Python asks for never have.
                return traits.name == "aten::_to_copy" and "layout" in kwargs and on_device[0]
            if device.index not in (None, 0):
                raise RuntimeError(f"CUDA error: invalid device ordinal ({device}; emulated CUDA has cuda:0 alone)")
            kwargs["device"] = CPU
            return True
        if traits.transfers and tensors:
            return on_device[0]
        return some

    def _captured(
        self,
        capture: Capture,
        traits: Traits,
        run: Callable[..., Any],
        op: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        tensors: list[torch.Tensor],
        on_device: list[bool],
        to_device: bool,
    ) -> Any:
        self._refuse_what_cuda_refuses(traits, args, kwargs, tensors, on_device, to_device)
        tape = capture.tape
        for position in traits.writes:
            if position < len(args) and isinstance(args[position], torch.Tensor):
                tape.before_write(args[position])
            elif position < len(args) and isinstance(args[position], (list, tuple)):
                for tensor in tensors_in(args[position]):
                    tape.before_write(tensor)
        for keyword in traits.writes_keywords:
            for tensor in results_in(kwargs.get(keyword)):
                tape.before_write(tensor)
        result = run(*args, **kwargs)
        if not traits.writes and not traits.writes_keywords and self._only_views(tensors, result):
            return result
        if not traits.uninitialised:
            refuse_after_a_refusal(capture, traits.name)
            capture.works_on(current_stream())
        tape.record(
            getattr(run, "_op", run),  # below torch's Python wrapper
            op.name(),
            user_call_site(),
            args,
            kwargs,
            result,
            by_value=self._read_by_value,
            keeps_old_content=traits.uninitialised,
        )
        return result

    def _refuse_what_cuda_refuses(
        self,
        traits: Traits,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        tensors: list[torch.Tensor],
        on_device: list[bool],
        to_device: bool,
    ) -> None:
        if traits.rule is not None:
            cure = traits.rule(args, kwargs)
            if cure is not None:
                (decline if traits.name in refusals.DECLINED else refuse)(traits.name, cure)
        if traits.transfers:
            self._refuse_transfer(traits, args, kwargs, tensors, on_device, to_device)
        elif traits.indexed and not all(on_device):
            masks = any(refusals.is_mask(index) for index in args[1])
            if any(tensor not in self.marks for tensor in (tensors[1:] if not masks else tensors[1:-1])):
                decline(f"{traits.name} with an index or a value on the host", refusals.PAGEABLE)

    def _refuse_transfer(
        self,
        traits: Traits,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        tensors: list[torch.Tensor],
        on_device: list[bool],
        to_device: bool,
    ) -> None:
        """A copy between host and device is captured from and to pinned memory alone, and only if it does not block."""
        host = [tensor for tensor, here in zip(tensors, on_device, strict=True) if not here]
        if not host and to_device == on_device[0]:
            return
        non_blocking = bool(kwargs.get("non_blocking", args[2] if len(args) > 2 else False))
        makes_pinned = non_blocking and not host  # the target of a non-blocking move to the host is pinned by torch
        if not makes_pinned and not (host and all(tensor in self.pinned for tensor in host)):
            reads = "aten::_to_copy to the host" if not to_device else f"{traits.name} from pageable host memory"
            decline(reads, refusals.READS_BACK if not to_device else refusals.PAGEABLE)
        if not non_blocking:
            refuse(f"{traits.name} that waits for its copy", "Pass non_blocking=True.")

    def _read_by_value(self, tensor: torch.Tensor) -> bool:
        """A host scalar among a kernel's arguments is passed by value; pinned memory is passed by address."""
        return tensor not in self.marks and tensor not in self.pinned

    @staticmethod
    def _only_views(tensors: list[torch.Tensor], result: Any) -> bool:
        results = results_in(result)
        if not results:
            return False
        known = {tensor.untyped_storage()._cdata for tensor in tensors}
        return all(tensor.untyped_storage()._cdata in known for tensor in results)


# Assigned after the class is made: torch wraps a `__torch_dispatch__` that it finds in a class body so that
# torch.compile leaves it alone, and that wrapper imports all of torch._dynamo (4 s) and costs microseconds a call.
EmulatedDevice.__torch_dispatch__ = EmulatedDevice.dispatch  # type: ignore[method-assign,assignment]


def _poisoned(op: Callable[..., Any]) -> Callable[..., Any]:
    """`op` makes memory that nothing has written; give it the content that shows where it is read all the same."""

    def run(*args: Any, **kwargs: Any) -> Any:
        result = op(*args, **kwargs)
        poison_(result)
        return result

    return run
