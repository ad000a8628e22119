"""CG3: a result is the caller's own, whatever is replayed afterwards."""

from __future__ import annotations

from collections.abc import Iterator

from conformance import cases
from conformance.cases import Sizes
from conformance.catalogue import Case, CheckFailed, Evidence, check
from conformance.evidence import graphed_call
from conformance.spec import AdapterSpec
from conformance.subject import Outputs, Subject, snapshot

SAME_AGAIN = 4  # later calls of the same sizes: buffers that take turns are overwritten by the second or third


def _then_others(spec: AdapterSpec) -> Iterator[Case]:
    """Each bucket, filled and padded, then the same call again and again; each bucket filled, then every other one."""
    for case in cases.exact_and_padded(spec):
        sizes: Sizes = case.arguments["sizes"]
        yield Case(f"{case.id}-then-same", {"sizes": sizes, "later": [sizes] * SAME_AGAIN})
        others = [dict(other) for other in spec.buckets if dict(other) != sizes]
        if len(others) in range(1, len(spec.buckets)):
            yield Case(f"{case.id}-then-others", {"sizes": sizes, "later": others})


@check("CG301", "output-aliasing", "a result keeps its samples when later calls replay", cases=_then_others)
def output_aliasing(subject: Subject, sizes: Sizes, later: list[Sizes]) -> Evidence:
    """Contract: what a call returned is unchanged by any later call, in the same bucket or in another.

    Why it matters: a static output handed out without a copy is overwritten by the next request's replay: one user
    hears another's audio. https://github.com/vllm-project/vllm/pull/52115

    How it is checked: a result is kept beside a copy of it; the same bucket is replayed four times with other inputs,
    or every other bucket of the shared pool is; then the result must still be its copy, bit for bit, and share no
    memory with the later results.

    If it fails: clone every output leaf before returning it.
    """
    kept, _ = graphed_call(subject, "CG301", subject.draw(sizes, "CG301 kept"))
    copy = snapshot(kept)
    replays = 0
    for number, other in enumerate(later):
        result, seen = graphed_call(subject, "CG301", subject.draw(other, f"CG301 later {number}"))
        replays += seen.replays
        _require_unchanged(kept, copy, sizes, other)
        _require_apart(kept, result, other)
    return {"later_replays": replays, "later_buckets": len(later)}


def _require_unchanged(kept: Outputs, copy: Outputs, sizes: Sizes, other: Sizes) -> None:
    for name, rows in kept.items():
        for row, (found, before) in enumerate(zip(rows, copy[name], strict=True)):
            changed = (found != before) & ~(found.isnan() & before.isnan())
            if bool(changed.any()):
                raise CheckFailed(
                    "CG301",
                    f"row {row} of {name!r}, returned at {sizes}, changed when {other} was replayed: "
                    f"{int(changed.sum())} of {found.numel()} samples",
                    likely="the static output, or a view of it, was returned  (class D)",
                    cure="clone every output leaf before returning it",
                    evidence={"changed_samples": int(changed.sum()), "samples": found.numel()},
                )


def _require_apart(kept: Outputs, result: Outputs, other: Sizes) -> None:
    def addresses(outputs: Outputs) -> set[int]:
        return {row.untyped_storage().data_ptr() for rows in outputs.values() for row in rows if row.numel()}

    if addresses(kept) & addresses(result):
        raise CheckFailed(
            "CG301",
            f"the result and the result of a later call at {other} are the same memory",
            likely="the static output, or a view of it, was returned  (class D)",
            cure="clone every output leaf before returning it",
        )
