"""What makes the host wait for the device is refused in a capture; what looks like it and does not is allowed.

Each line of the two tables is a row. `s` is the :class:`~conformance.fidelity.stage.Stage`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from conformance.fidelity.row import REFUSED_IN_CAPTURE, Device, Group, Only, Program, Refuses, Returns
from conformance.fidelity.stage import Stage

refused = Group("host syncs are refused in a capture")
allowed = Group("what does not sync is captured")
GROUPS = (refused, allowed)

CURED = Only(Device.EMULATED, "torch's own text names no line and no cure")

Body = Callable[[Stage], Any]


def _assigned(s: Stage, key: Any, value: Any) -> torch.Tensor:
    copy = s.x.clone()
    copy[key] = value
    return copy


def _assigned_in_place(target: torch.Tensor, key: Any, value: Any) -> torch.Tensor:
    target[key] = value
    return target


def _spectrum(s: Stage) -> torch.Tensor:
    window = torch.hann_window(4, device="cuda")
    return torch.stft(s.x, 4, hop_length=2, window=window, return_complex=True)


def _inverse_spectrum(s: Stage) -> torch.Tensor:
    return torch.istft(_spectrum(s), 4, hop_length=2, window=torch.hann_window(4, device="cuda"))


REFUSED: dict[str, Body] = {
    "item": lambda s: s.x[0].item(),
    "float-of-a-tensor": lambda s: float(s.x[0]),
    "int-of-a-tensor": lambda s: int(s.codes[0]),
    "bool-of-a-tensor": lambda s: bool(s.mask[0]),
    "a-branch-on-any": lambda s: 1 if (s.x > 0).any() else 0,
    "tolist": lambda s: s.x.tolist(),
    "iterating-over-values": lambda s: [float(value) for value in s.x],
    "cpu": lambda s: s.x.cpu(),
    "to-the-host": lambda s: s.x.to("cpu"),
    "numpy-by-force": lambda s: s.x.numpy(force=True),
    "a-print": lambda s: repr(s.x),
    "format-of-a-scalar": lambda s: f"{s.x[0]:.2f}",
    "a-copy-into-pageable-memory": lambda s: s.host.copy_(s.x),
    "a-copy-from-pageable-memory": lambda s: s.x.copy_(s.host),
    "a-non-blocking-copy-from-pageable-memory": lambda s: s.x.copy_(s.host, non_blocking=True),
    "cuda-of-a-host-tensor": lambda s: s.host.cuda(),
    "to-cuda-of-a-host-tensor": lambda s: s.host.to("cuda"),
    "a-tensor-from-a-list": lambda s: torch.tensor([1.0, 2.0], device="cuda"),
    "a-tensor-from-a-number": lambda s: torch.tensor(1.0, device="cuda"),
    "as-tensor-of-an-array": lambda s: torch.as_tensor(np.arange(3.0), device="cuda"),
    "new-tensor": lambda s: s.x.new_tensor([1.0, 2.0]),
    "a-read-by-mask": lambda s: s.x[s.mask],
    "a-tensor-assigned-by-mask": lambda s: _assigned(s, s.mask, torch.ones(3, device="cuda")),
    "nonzero": lambda s: s.codes.nonzero(),
    "argwhere": lambda s: torch.argwhere(s.codes),
    "where-of-one-argument": lambda s: torch.where(s.mask),
    "masked-select": lambda s: s.x.masked_select(s.mask),
    "unique": lambda s: s.codes.unique(),
    "unique-consecutive": lambda s: s.codes.unique_consecutive(),
    "a-python-list-as-index": lambda s: s.x[[0, 2]],
    "a-host-tensor-as-index": lambda s: s.x[s.host_index],
    "a-slice-up-to-a-device-scalar": lambda s: s.x[: s.scalar],
    "repeat-interleave-by-a-tensor": lambda s: s.x.repeat_interleave(s.codes),
    "one-hot-without-classes": lambda s: functional.one_hot(s.codes),
    "bincount": lambda s: s.codes.bincount(),
    "bincount-with-minlength": lambda s: s.codes.bincount(minlength=8),
    "istft": _inverse_spectrum,
    "inverse-of-a-matrix": lambda s: torch.linalg.inv(s.square),
    "allclose": lambda s: torch.allclose(s.x, s.x),
    "equal-of-two-tensors": lambda s: torch.equal(s.x, s.x * 1),
    "synchronize-of-the-device": lambda s: torch.cuda.synchronize(),
    "synchronize-of-a-stream": lambda s: torch.cuda.current_stream().synchronize(),
    "arange-up-to-a-device-scalar": lambda s: torch.arange(s.scalar, device="cuda"),  # type: ignore[call-overload]
    "in-of-a-tensor": lambda s: 2.5 in s.x,
    "a-number-assigned-by-device-index": lambda s: _assigned(s, s.index, 9.0),
    "a-number-assigned-to-one-element": lambda s: _assigned(s, 0, 9.0),
    "a-host-scalar-assigned-by-position": lambda s: _assigned(s, 0, s.host_scalar),
    "a-copy-of-a-host-scalar": lambda s: s.x[0].copy_(s.host_scalar),
    "a-blocking-copy-from-pinned-memory": lambda s: s.x.copy_(s.pinned),
    "a-blocking-copy-into-pinned-memory": lambda s: s.pinned.copy_(s.x),
}
GOES_ON = (
    *("cpu", "to-the-host", "numpy-by-force", "tolist", "a-copy-into-pageable-memory", "a-copy-from-pageable-memory"),
    *("a-non-blocking-copy-from-pageable-memory", "cuda-of-a-host-tensor", "to-cuda-of-a-host-tensor"),
    *("a-tensor-from-a-list", "a-tensor-from-a-number", "as-tensor-of-an-array"),
    *("new-tensor", "a-python-list-as-index", "a-host-tensor-as-index", "bincount", "bincount-with-minlength"),
    *(
        "a-number-assigned-to-one-element",
        "a-number-assigned-by-device-index",
        "a-host-scalar-assigned-by-position",
        "a-copy-of-a-host-scalar",
    ),
)
"""Copies of pageable memory: torch itself declines them, and the capture is as good as before."""

ALLOWED: dict[str, Body] = {
    "any-without-a-branch": lambda s: (s.x > 0).any(),
    "assert-async": lambda s: (torch._assert_async(s.x.isfinite().all()), s.x * 2)[1],
    "full": lambda s: torch.full((6,), 2.0, device="cuda") + s.x,
    "arange": lambda s: torch.arange(6, device="cuda") + s.x,
    "linspace": lambda s: torch.linspace(0, 1, 6, device="cuda") + s.x,
    "new-zeros": lambda s: s.x.new_zeros(6) + s.x,
    "new-full": lambda s: s.x.new_full((6,), 3.0) + s.x,
    "a-hann-window": lambda s: torch.hann_window(6, device="cuda") * s.x,
    "a-non-blocking-move-to-the-host": lambda s: (s.x.to("cpu", non_blocking=True), s.x * 2)[1],
    "a-copy-from-pinned-memory": lambda s: torch.empty(6, device="cuda").copy_(s.pinned, non_blocking=True),
    "to-cuda-of-pinned-memory": lambda s: s.pinned.to("cuda", non_blocking=True) * s.x,
    "a-number-assigned-by-mask": lambda s: _assigned(s, s.mask, 0.0),
    "masked-fill": lambda s: s.x.masked_fill(s.mask, -1.0),
    "where-of-three-arguments": lambda s: torch.where(s.mask, s.x, -s.x),
    "where-with-a-number": lambda s: torch.where(s.x > 0, s.x, 0.0),
    "a-device-tensor-as-index": lambda s: s.x[s.index],
    "index-select": lambda s: s.x.index_select(0, s.index),
    "gather": lambda s: s.x.gather(0, s.index),
    "a-number-assigned-to-a-row": lambda s: _assigned_in_place(s.square.clone(), 0, 9.0),
    "a-number-assigned-by-slice": lambda s: _assigned(s, slice(1, 3), 9.0),
    "a-number-assigned-by-several-keys": lambda s: _assigned_in_place(s.square.clone(), (..., slice(0, 1)), 9.0),
    "an-assignment-by-device-index": lambda s: _assigned(s, s.index, s.x[:3]),
    "a-slice-up-to-a-host-scalar": lambda s: s.x[: s.host_scalar] * 1,
    "item-of-a-host-tensor": lambda s: s.x * s.host_scalar.item(),
    "a-branch-on-a-host-tensor": lambda s: s.x * 2 if s.host_scalar > 1 else s.x,
    "arithmetic-with-a-host-scalar": lambda s: s.x * s.host_scalar + torch.tensor(0.5),
    "repeat-interleave-with-output-size": lambda s: s.x.repeat_interleave(s.codes, output_size=6),
    "repeat-interleave-by-a-number": lambda s: s.x.repeat_interleave(2),
    "one-hot-with-classes": lambda s: functional.one_hot(s.codes, 3),
    "stft": lambda s: torch.view_as_real(_spectrum(s)),
    "sort": lambda s: s.x.sort().values,
    "argsort": lambda s: s.x.argsort(),
    "topk": lambda s: s.x.topk(3).values,
    "cumsum": lambda s: s.x.cumsum(0),
    "max-with-indices": lambda s: s.x.max(0).values,
    "embedding": lambda s: functional.embedding(s.codes, s.x.view(3, 2)),
    "inverse-without-its-check": lambda s: torch.linalg.inv_ex(s.square + s.x[0].abs() * 0).inverse,
}


def _refused_program(body: Body) -> Program:
    return lambda stage: stage.capture(lambda: body(stage))


def _caught_program(body: Body) -> Program:
    def program(stage: Stage) -> bool:
        def caught() -> torch.Tensor:
            with contextlib.suppress(RuntimeError):
                body(stage)
            return stage.square * 2

        doubled = stage.capture(caught, warm=False)
        stage.replay()
        return bool(torch.equal(doubled, stage.square * 2))

    return program


def _allowed_program(body: Body) -> Program:
    return lambda stage: stage.agrees(lambda: body(stage))


for name, body in REFUSED.items():
    refused.add(
        f"{name}-is-refused", _refused_program(body), Refuses(RuntimeError, REFUSED_IN_CAPTURE), written_as=body
    )
    refused.add(
        f"{name}-{'leaves-the-capture-going' if name in GOES_ON else 'invalidates-the-capture'}",
        _caught_program(body),
        Returns(True) if name in GOES_ON else Refuses(RuntimeError, "previous error during capture"),
        written_as=body,
    )
for name, body in ALLOWED.items():
    allowed.add(f"{name}-is-captured", _allowed_program(body), Returns(True), written_as=body)


@refused.refuses(REFUSED_IN_CAPTURE)
def synchronize_of_an_event_is_refused(stage: Stage) -> object:
    event = torch.cuda.Event()

    def body() -> None:
        event.record()
        event.synchronize()

    return stage.capture(body, warm=False)


@refused.refuses(r"at .*host_syncs\.py:\d+ in .* keep the value on the device", only=CURED)
def a_refusal_names_the_users_line_and_a_cure(stage: Stage) -> object:
    return stage.capture(lambda: stage.x.max().item())


@allowed.returns([True, True])
def equal_of_a_tensor_with_itself_is_answered_without_looking(stage: Stage) -> object:
    seen: list[bool] = []
    stage.capture(lambda: seen.append(torch.equal(stage.x, stage.x)))
    return seen


@allowed.returns([0.0, 0.5])
def a_copy_into_pinned_memory_happens_at_replay(stage: Stage) -> object:
    target = torch.zeros(6).pin_memory()
    stage.capture(lambda: target.copy_(stage.x, non_blocking=True), warm=False)
    before = target[0].item()
    stage.replay()
    return [before, target[0].item()]


@allowed.returns([3.0, 8.0])
def a_copy_from_pinned_memory_reads_it_at_each_replay(stage: Stage) -> object:
    source = torch.zeros(2).pin_memory()
    out = stage.capture(lambda: torch.empty(2, device="cuda").copy_(source, non_blocking=True))
    seen = []
    for value in (3.0, 8.0):
        source.fill_(value)
        stage.replay()
        seen.append(out[0].item())
    return seen


@allowed.returns(True)
def recording_an_event_is_captured(stage: Stage) -> object:
    event = torch.cuda.Event()

    def body() -> torch.Tensor:
        event.record()
        return stage.x * 2

    return stage.agrees(body)


@allowed.returns(True)
def asking_for_memory_figures_is_allowed(stage: Stage) -> object:
    return stage.agrees(lambda: stage.x * 2 if torch.cuda.memory_allocated() > 0 else stage.x)


@allowed.returns(True)
def emptying_the_cache_is_allowed(stage: Stage) -> object:
    def body() -> torch.Tensor:
        torch.cuda.empty_cache()
        return stage.x * 2

    return stage.agrees(body)


@allowed.returns(True)
def a_host_computation_is_not_part_of_the_graph(stage: Stage) -> object:
    def body() -> torch.Tensor:
        frames = (torch.arange(6)[torch.tensor([True, False] * 3)]).tolist()
        return stage.x * len(frames)

    return stage.agrees(body)
