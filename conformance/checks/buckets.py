"""CG4: which bucket serves a call, and how many calls of serving find one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from conformance import cases
from conformance.catalogue import Case, CheckFailed, Evidence, check
from conformance.evidence import call, graphed_call
from conformance.instruments.sweeps import sizes_along
from conformance.planner import coverage
from conformance.spec import AdapterSpec
from conformance.subject import Subject
from conformance.traces import Trace
from runner import Bucket


def _one(_: AdapterSpec) -> Iterator[Case]:
    yield Case("")


@check("CG406", "cheapest-bucket", "a call is served by the bucket of least work that holds it", cases=_one)
def cheapest_bucket(subject: Subject) -> Evidence:
    """Contract: of the buckets that hold a call, the one that computes the least serves it.

    Why it matters: a lookup that takes the first or the largest bucket is right, and pays for frames that nobody asked
    for: half the throughput in one case. https://github.com/vllm-project/vllm/pull/36165

    How it is checked: each bucket's graph is learned from a call that fills it; then every size along each axis, with
    the others as each bucket has them, must be replayed by the graph of a bucket of least work.

    If it fails: sort the buckets by the product of their sizes, and take the first that holds the call.
    """
    graphs: dict[Bucket, list[int]] = {}
    for bucket in subject.table.buckets:
        _, seen = graphed_call(subject, "CG406", subject.draw(bucket, "CG406 exact"))
        graphs[bucket] = seen.replayed
    for bucket, replayed in graphs.items():
        for other in subject.table.buckets:
            if other != bucket and graphs[other] == replayed and other.work != bucket.work:
                raise _dearer(f"calls that fill {bucket} and {other} are replayed by one graph")
    tried = set()
    for bucket in subject.table.buckets:
        for axis in subject.adapter.axes:
            for size in sizes_along(subject.spec, axis):
                sizes = {**bucket, axis: size}
                best = subject.bucket_for(sizes)
                if best is None or tuple(sizes.values()) in tried:
                    continue
                tried.add(tuple(sizes.values()))
                _, seen = graphed_call(subject, "CG406", subject.draw(sizes, "CG406"))
                used = [other for other, replayed in graphs.items() if replayed == seen.replayed]
                if not any(other.work == best.work for other in used):
                    raise _dearer(
                        f"{cases.label(subject.spec, sizes)} was replayed by {' or '.join(map(str, used)) or 'none'}; "
                        f"{best} holds it for less"
                    )
    return {"buckets": len(graphs), "sizes_tried": len(tried)}


def _dearer(found: str) -> CheckFailed:
    return CheckFailed(
        "CG406",
        found,
        likely="the lookup takes the first or the largest bucket that holds the call  (class N)",
        cure="sort the buckets by the product of their sizes, and take the first that holds the call",
    )


def _no_trace(spec: AdapterSpec) -> str | None:
    return None if spec.trace else f"{spec.name} declares no trace of typical calls"


@check("CG407", "hit-rate", "typical calls replay as often as the spec promises", cases=_one, not_applicable=_no_trace)
def hit_rate(subject: Subject) -> Evidence:
    """Contract: of the calls in the spec's trace, at least `min_hit_rate` are replayed.

    Why it matters: buckets that miss real sizes by one leave most calls eager, and nothing is wrong but the bill: 39 %
    were graphed in one case. https://github.com/sgl-project/sglang-omni/pull/886

    How it is checked: each size of the trace is called once, on a runner with the buckets of production; replays are
    observed, and weighed with how often the trace makes the call.

    If it fails: declare buckets for the sizes that are missed, or correct the trace.
    """
    trace = subject.spec.trace or Trace.of()
    with contextlib.ExitStack() as stack:
        served = subject
        if subject.spec.serving_buckets:
            served = stack.enter_context(subject.sibling(buckets=subject.spec.serving_buckets))
        missed = [one for one in trace.calls if not call(served, "CG407", served.draw(one.sizes, "CG407"))[1].replays]
    rate = 1 - sum(one.count for one in missed) / trace.total
    replayed = Trace(tuple(one for one in trace.calls if one not in missed))
    if rate < subject.spec.min_hit_rate:
        labels = [f"{cases.label(subject.spec, one.sizes)} ({one.count}×)" for one in missed]
        raise CheckFailed(
            "CG407",
            f"{rate:.0%} of {trace.total} typical calls were replayed, {subject.spec.min_hit_rate:.0%} were promised; "
            f"missed: {', '.join(labels[:4])}",
            likely="no bucket holds these sizes, or the lookup does not find it  (class N)",
            cure="declare buckets for the sizes that are missed, or correct the trace",
        )
    return {
        "hit_rate": rate,
        "padded_share": round(coverage(replayed, served.spec.buckets, served.adapter.axes).padded_share, 4),
        "calls": trace.total,
        "sizes": len(trace.calls),
    }
