"""Sequences of operations on two runners that share a pool: how one runs, and the program that repeats it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from conformance.cases import Sizes
from conformance.catalogue import CheckFailed
from conformance.compare import Advice, require_equal
from conformance.evidence import call, graphed_call, located
from conformance.instruments.graphlog import around_forward
from conformance.instruments.outer import outer_capture
from conformance.instruments.sweeps import largest
from conformance.spec import AdapterSpec
from conformance.subject import Inputs, Outputs, Subject, snapshot

CODE = "CG308"
Step = tuple[str, Mapping[str, int]]
"""What is done, one of :data:`ACTIONS`, and the sizes of the call where it is one."""

ADVICE = Advice(
    "an earlier operation left something behind that this one met: in the pool, a static buffer or the runner  "
    "(class B, D, E, F)",
    "run the program in the evidence, which repeats it, and look at what the operation before the last one keeps",
)


@dataclass
class _World:
    """Two runners and everything that they returned."""

    first: Subject
    pool: Any
    second: Subject | None = None
    leave: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    kept: list[tuple[str, Outputs, Outputs]] = field(default_factory=list)


def _call(world: _World, subject: Subject, sizes: Mapping[str, int], step: str) -> None:
    inputs = subject.draw(sizes, f"{CODE} {step}")
    served = subject.bucket_for(sizes) is not None
    if not served and _refuses(subject, inputs):
        return
    found, _ = (graphed_call if served else call)(subject, CODE, inputs)
    require_equal(CODE, subject, found, subject.eager(inputs), ADVICE)
    world.kept.append((step, found, snapshot(found)))


def _refuses(subject: Subject, inputs: Inputs) -> bool:
    """Whether the module itself cannot serve `inputs`: sizes are drawn one axis at a time, and may not go together."""
    try:
        subject.eager(inputs)
    except Exception:
        return True
    return False


def _call_first(world: _World, sizes: Mapping[str, int], step: str) -> None:
    _call(world, world.first, sizes, step)


def _call_second(world: _World, sizes: Mapping[str, int], step: str) -> None:
    """A call of the second runner, which is opened on the same pool where there is none."""
    if world.second is None:
        world.second = world.leave.enter_context(world.first.sibling(pool=world.pool, buckets=world.first.spec.buckets))
    _call(world, world.second, sizes, step)


def _close_second(world: _World, sizes: Mapping[str, int], step: str) -> None:
    world.leave.close()
    world.second = None


def _call_in_outer_capture(world: _World, sizes: Mapping[str, int], step: str) -> None:
    subject = world.first
    inputs = subject.draw(sizes, f"{CODE} {step}")
    if subject.bucket_for(sizes) is None and _refuses(subject, inputs):
        return
    with outer_capture(subject, CODE, inputs) as outer:
        subject.fresh_start()
        outer.graph.replay()
        require_equal(CODE, subject, outer.outputs, subject.eager(inputs), ADVICE)


def _fail_a_capture(world: _World, sizes: Mapping[str, int], step: str) -> None:
    """A third runner on a pool of its own, none of whose captures succeeds."""

    def refuse(forward: Any, tensors: tuple[torch.Tensor, ...]) -> Any:
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("the kit made this capture fail")
        return forward(*tensors)

    with (
        around_forward(base := world.first.apart(), refuse),
        base.sibling(warm=False, same_module=True) as third,
        contextlib.suppress(RuntimeError),
    ):
        third.warmup()


ACTIONS = {
    "call": _call_first,
    "call_second": _call_second,
    "close_second": _close_second,
    "outer_capture": _call_in_outer_capture,
    "failed_capture": _fail_a_capture,
}


def few_buckets(spec: AdapterSpec) -> list[Sizes]:
    """The first bucket and the largest: each sequence warms runners up anew."""
    return [dict(bucket) for bucket in spec.buckets if bucket in (spec.buckets[0], largest(spec))]


def run_steps(subject: Subject, steps: Sequence[Step]) -> int:
    """Run `steps` on fresh runners around the subject's module. Returns the number of results that were kept.

    Raises :class:`CheckFailed` where a call is not eager's, or a result changed in a later step.
    """
    subject.settle()  # the sequence before may have broken a capture
    pool = torch.cuda.graph_pool_handle()
    with subject.sibling(pool=pool, buckets=few_buckets(subject.spec)) as first:
        world = _World(first, pool)
        with _closing(world):
            for number, (action, sizes) in enumerate(steps):
                step = f"step {number + 1} ({action})"
                with located(step):
                    try:
                        ACTIONS[action](world, sizes, step)
                    except CheckFailed:
                        raise
                    except Exception as error:
                        raise _gave_way(error) from error
                    _require_kept(world)
        return len(world.kept)


@contextlib.contextmanager
def _closing(world: _World) -> Iterator[None]:
    try:
        yield
    finally:
        world.leave.close()


def _gave_way(error: Exception) -> CheckFailed:
    return CheckFailed(
        CODE, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}", likely=ADVICE.likely, cure=ADVICE.cure
    )


def _require_kept(world: _World) -> None:
    for made, found, before in world.kept:
        for name, rows in found.items():
            if not all(torch.equal(row, copy) for row, copy in zip(rows, before[name], strict=True)):
                raise CheckFailed(
                    CODE,
                    f"the result {name!r} of {made} changed",
                    likely="a result is memory that a later operation writes  (class D)",
                    cure="clone every output leaf before returning it",
                )


def program(subject: Subject, steps: Sequence[Step]) -> str:
    """Python that repeats `steps` on the same subject; a spec that has no name here is loaded by its file's path."""
    checkpoint = str(subject.checkpoint) if subject.checkpoint else None
    lines = ",\n    ".join(repr((action, dict(sizes))) for action, sizes in steps)
    return (
        "from conformance.device import open_device\n"
        "from conformance.registry import load_adapters\n"
        "from conformance.instruments.sequences import run_steps\n"
        "from conformance.subject import open_subject\n\n"
        f"steps = [\n    {lines},\n]\n"
        f"with open_device({subject.machine.device!r}) as machine:\n"
        f"    spec = load_adapters([{subject.spec.name!r}])[0].spec\n"
        f"    run_steps(open_subject(spec, machine, {subject.seed}, {checkpoint!r}), steps)\n"
    )
