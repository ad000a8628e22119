"""CG2: every size up to the largest bucket, whatever was in memory and in the batch before."""

from __future__ import annotations

from collections.abc import Iterator

from conformance import cases
from conformance.cases import ROWS, Sizes
from conformance.catalogue import Case, Evidence, check
from conformance.compare import Advice, require_equal
from conformance.evidence import graphed_call, located
from conformance.instruments.static_memory import poisoned, rewritten_memory
from conformance.instruments.sweeps import full_and_padded, padded, require_parity, sizes_along, smallest
from conformance.spec import AdapterSpec
from conformance.subject import Inputs, Outputs, Subject


def _every_size(spec: AdapterSpec) -> Iterator[Case]:
    """Every length of one row; and every number of rows at the shortest, a middle and the longest length."""
    time = cases.time_axis(spec)
    for axis in spec.adapter.axes:
        others = [smallest(spec)]
        if axis == ROWS and time is not None:
            lengths = sizes_along(spec, time)
            others = [{**others[0], time: length} for length in (1, lengths[len(lengths) // 2], lengths[-1])]
        sizes = [{**other, axis: size} for other in others for size in sizes_along(spec, axis)]
        yield Case(axis, {"sizes": sizes})


@check("CG205", "every-length", "every length and every batch up to the largest bucket equals eager", cases=_every_size)
def every_length(subject: Subject, sizes: list[Sizes]) -> Evidence:
    """Contract: at every length from one frame to the largest bucket's, and at every number of rows, a call's result
    has eager's length exactly and eager's samples.

    Why it matters: a trim that is right at the bucket's edges is wrong between them: 46 ms of surplus at each ramp
    chunk of a stream. https://github.com/vllm-project/vllm-omni/pull/4525

    How it is checked: every size along each axis of the buckets (past 64, those around each edge), for one row at every
    length and for every batch at three lengths; a replay must be observed wherever a bucket holds the call.

    If it fails: declare the length contract that the module's output follows, and trim by the caller's own length.
    """
    advice = Advice(
        "a size between the buckets' edges is padded, looked up or trimmed by another rule than they  (class A, N)",
        "derive the trim from the call's own length and the bucket's, by one formula for all sizes",
    )
    return require_parity(subject, "CG205", sizes, advice)


def _each_bucket(spec: AdapterSpec) -> Iterator[Case]:
    for bucket in spec.buckets:
        yield Case(cases.label(spec, bucket), {"sizes": dict(bucket)})


@check("CG206", "poisoned-buffers", "what static memory held before a call is not heard in it", cases=_each_bucket)
def poisoned_buffers(subject: Subject, sizes: Sizes) -> Evidence:
    """Contract: a call's result depends on its own inputs alone, not on what the static buffers, their pads or the pool
    held before.

    Why it matters: pads that keep NaN or a longer request's content reach real rows through a mask that multiplies by
    zero, or through attention. https://github.com/vllm-project/vllm/issues/40047

    How it is checked: two full calls fill the bucket's integer buffers with other codes; floating-point memory that the
    runner holds and that those calls changed is filled with NaN. Then a short call and a full one must be eager's.

    If it fails: write every static buffer wholly before each replay, and mask with `where`, never with a product.
    """
    advice = Advice(
        "memory that an earlier call wrote is read before this one writes it: a pad that is not reset, or a product "
        "with zero, which NaN survives  (class B)",
        "reset the pads of every static buffer before each replay, and mask with torch.where instead of a product",
    )
    others: list[Inputs] = [subject.draw(sizes, f"CG206 before {number}") for number in (0, 1)]
    memory = rewritten_memory(subject, *others)
    evidence: Evidence = {}
    for size in (padded(subject.spec, sizes), sizes):
        subject(others[0])
        with poisoned(memory):
            evidence = require_parity(subject, "CG206", [size], advice, salt=str(size), context=True)
    return {"poisoned_tensors": len(memory), **evidence}


def _one(_: AdapterSpec) -> Iterator[Case]:
    yield Case("")


@check("CG207", "ladder", "calls from small to large and back each equal eager", cases=_one)
def ladder(subject: Subject) -> Evidence:
    """Contract: a call is right whichever buckets of the shared pool were replayed before it, larger or smaller.

    Why it matters: graphs of one pool write over each other's scratch memory, and a padded call after a longer one
    finds the longer one's frames. https://github.com/flashinfer-ai/flashinfer/issues/3057

    How it is checked: every bucket, padded and filled, from the smallest to the largest and back down, each call
    compared with eager.

    If it fails: keep nothing between replays in memory that another bucket's graph may write, and reset the pads.
    """
    advice = Advice(
        "an earlier call of another bucket is heard: pads kept its frames, or its graph wrote over memory that this "
        "one reads  (class B)",
        "reset the pads before each replay; keep every static buffer out of the shared pool, or alive for good",
    )
    climb = sorted(full_and_padded(subject.spec), key=lambda sizes: sorted(sizes.values()))
    return require_parity(subject, "CG207", [*climb, *reversed(climb)], advice, context=True)


@check(
    "CG208",
    "neighbours",
    "a row is the same at every position of a batch, whoever its neighbours are",
    cases=cases.exact_with_rows,
    not_applicable=cases.no_rows,
)
def neighbours(subject: Subject, sizes: Sizes) -> Evidence:
    """Contract: a row's result does not depend on its position in the batch, nor on the other rows.

    Why it matters: requests are batched by chance; a row that is right only as the first, or only beside the same
    neighbours, is wrong in production alone. https://github.com/pytorch/torchtitan/issues/3668

    How it is checked: one row is put at every position of the bucket's batch, and of a batch of one row less, beside
    rows drawn anew each time; its result must be what eager gives for that row alone. A module that draws random
    numbers draws others at each position: there it must be what eager gives at that position, beside yet other rows.

    If it fails: keep rows apart in the module and in the trim: no reduction over the batch, no index by the first row.
    """
    advice = Advice(
        "the row depends on its position or on its neighbours  (class C)",
        "keep rows apart: no reduction over the batch, and per-row values indexed by the row itself",
    )
    axis, time = ROWS, subject.time_axis
    mine = subject.draw(sizes, "CG208 row")
    alone = subject.eager_row(mine, 0, sizes[time] if time else 0)
    replays = 0
    for rows in (sizes[axis], sizes[axis] - 1):
        for position in range(rows if subject.bucket_for({**sizes, axis: rows}) else 0):
            size = {**sizes, axis: rows}
            with located(f"row at position {position} of {rows}"):
                found, seen = graphed_call(subject, "CG208", _beside(subject, mine, size, position, "neighbours"))
                if subject.spec.capabilities.randomness.supported:
                    others = subject.eager(_beside(subject, mine, size, position, "other neighbours"))
                    alone = _row(others, position, rows)
                require_equal("CG208", subject, _row(found, position, rows), alone, advice)
            replays += seen.replays
    return {"positions": replays}


def _row(outputs: Outputs, position: int, rows: int) -> Outputs:
    """One row of each output; an output without rows stays whole."""
    return {name: values if len(values) < rows else [values[position]] for name, values in outputs.items()}


def _beside(subject: Subject, mine: Inputs, sizes: Sizes, position: int, salt: str) -> Inputs:
    """Inputs drawn anew, with the first row of `mine` at `position`."""
    return subject.with_row(subject.draw(sizes, f"CG208 {salt} {sizes[ROWS]} {position}"), position, mine)
