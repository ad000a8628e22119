"""Captures that the kit makes itself around a module, and captures of a runner that the kit makes fail."""

from __future__ import annotations

import contextlib
import linecache
import os
import re
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from conformance.emulation.callsite import PASSING_ON
from conformance.instruments.graphlog import Forward, around_forward
from conformance.subject import Inputs, Subject

_TORCH = os.path.dirname(torch.__file__) + os.sep
_KIT = tuple(
    os.path.join(os.path.dirname(os.path.dirname(__file__)), room) + os.sep
    for room in ("instruments", "emulation", "checks")
)
_CURE = re.compile(r"The first refused operation: .*? at [^\n]*?\. (?P<cure>[A-Z][^\n]*)$", re.S)


@dataclass(frozen=True)
class Refusal:
    """What a capture refused, the user's line that asked for it where the traceback tells, and a cure if known."""

    what: str
    line: str
    cure: str


def audit_capture(subject: Subject, inputs: Inputs, sizes: Mapping[str, int]) -> Refusal | None:
    """Capture what the subject captures, called as for `inputs` of these `sizes`. None where it succeeds.

    Where eager goes another way than the capture, it is called as in the warm-up of a runner of this one bucket. The
    current stream is put back either way.
    """
    calls: list[tuple[Forward, tuple[Any, ...]]] = []

    def listen(original: Forward, arguments: tuple[Any, ...]) -> Any:
        if not torch.cuda.is_current_stream_capturing():
            calls.append((original, arguments))
        return original(*arguments)

    base = subject.apart()
    with contextlib.ExitStack() as held, around_forward(base, listen):
        base.eager(inputs)
        if not calls:
            held.enter_context(base.sibling(buckets=[sizes], same_module=True))
        if not calls:
            raise RuntimeError(f"neither eager nor the warm-up calls {subject.spec.captured(subject.adapter)[1]!r}")
        return _capture(*calls[-1])


def _capture(forward: Forward, arguments: tuple[Any, ...]) -> Refusal | None:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(2):
            forward(*arguments)
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(graph, stream=side):
                result = forward(*arguments)
        except Exception as error:
            return _refusal(error)
    del result
    graph.reset()
    return None


def _refusal(error: BaseException) -> Refusal:
    chain = [error]
    while (earlier := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(earlier)
    first = chain[-1]
    text = (str(first).strip().splitlines() or [""])[0]
    told = _CURE.search(str(error)) or _CURE.search(str(first))
    return Refusal(f"{type(first).__name__}: {text}", _user_line(first), told["cure"] if told else "")


def _user_line(error: BaseException) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_TORCH, *_KIT))
        and os.path.isabs(frame.filename)
        and frame.name not in PASSING_ON
    ]
    if not frames:
        return ""
    last = frames[-1]
    text = linecache.getline(last.filename, last.lineno or 0).strip()
    return f"{last.filename}:{last.lineno} in {last.name}" + (f": {text}" if text else "")


@dataclass
class FailedCapture:
    """The sizes of the bucket whose capture was made to fail; empty until then."""

    sizes: dict[str, int] = field(default_factory=dict)
    begun: int = 0


@contextlib.contextmanager
def failing_capture(subject: Subject, number: int) -> Iterator[FailedCapture]:
    """Make the module's capture of that number (from 0) fail for real: it waits for the device, which is refused."""
    failed = FailedCapture()

    def forward(original: Forward, tensors: tuple[torch.Tensor, ...]) -> Any:
        result = original(*tensors)
        if torch.cuda.is_current_stream_capturing():
            failed.begun += 1
            if failed.begun == number + 1:
                failed.sizes = subject.spec.captured_sizes(subject.adapter, tensors)
                torch.cuda.synchronize()
        return result

    with around_forward(subject, forward):
        yield failed
