"""CG5: graphs cost the memory that their buckets need, once, and give it back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from conformance import cases
from conformance.catalogue import Case, CheckFailed, Evidence, check
from conformance.compare import Advice, require_equal
from conformance.evidence import call
from conformance.instruments.footprint import SEGMENT, allocated, measuring, reserved, static_bytes
from conformance.instruments.graphlog import GraphLog, log_graphs
from conformance.spec import AdapterSpec
from conformance.subject import Inputs, Subject

CALLS = 200
SHARE = 2  # what all buckets may take: so many times the largest one alone, and every bucket's static buffers
GRANULE = 512  # bytes that CUDA's allocator gives the smallest tensor
SMALL_TENSORS = 4  # a bucket, for lengths, masks and slots that a wrapper keeps and no adapter declares


def _once(_: AdapterSpec) -> Iterator[Case]:
    yield Case("")


def _bytes_and_pool(spec: AdapterSpec) -> Iterator[Case]:
    yield Case("bytes", {"given_pool": False})
    if spec.takes_pool:
        yield Case("given-pool", {"given_pool": True})


@check(
    "CG501",
    "bucket-bytes",
    "buckets share their memory: together they cost little more than the largest",
    cases=_bytes_and_pool,
)
def bucket_bytes(subject: Subject, given_pool: bool) -> Evidence:
    """Contract: warm-up of all buckets takes at most twice what the largest takes alone, and every bucket's own static
    inputs and outputs; a runner that is given a pool captures into that pool alone.

    Why it matters: buckets that share nothing took 11.4 GiB of one card, which the KV cache no longer had.
    https://github.com/vllm-project/vllm-omni/pull/3932

    How it is checked: memory of live tensors and memory taken from the device are read before and after a second runner
    warms up, once with its largest bucket and once with all; one allocator segment of 20 MiB is not counted. Then a
    runner is given a pool, and each graph is asked for the one it used.

    If it fails: capture the largest bucket first and all of them into one pool; keep no copy of weights per bucket.
    """
    if given_pool:
        return _require_pool(subject)
    buckets = subject.table.buckets
    with measuring(subject):
        alone = _growth(subject, [dict(buckets[-1])])
        together = _growth(subject, [dict(bucket) for bucket in buckets])
    by_bucket = {cases.label(subject.spec, bucket): static_bytes(subject, bucket) for bucket in buckets}
    statics = sum(by_bucket.values())
    evidence = {
        "largest_alone": alone,
        "all_buckets": together,
        "static_bytes": statics,
        "static_bytes_by_bucket": by_bucket,
        "buckets": len(buckets),
    }
    if together["captures"] and together["live"] <= 0:
        raise CheckFailed(
            "CG501",
            f"{together['captures']} captures took no memory: {together['live']} bytes",
            likely="static buffers are freed while their graphs live  (class E)",
            cure="hold static inputs and outputs for as long as their graph",
            evidence=evidence,
        )
    small = SMALL_TENSORS * GRANULE * len(buckets) if subject.machine.device == "cuda" else 0
    for kind, slack in (("live", small), ("taken", SEGMENT)):
        allowed = SHARE * max(alone[kind], 0) + statics + slack
        if together[kind] > allowed:
            raise CheckFailed(
                "CG501",
                f"{len(buckets)} buckets took {together[kind]} bytes ({kind}) where the largest alone takes "
                f"{alone[kind]} and all static buffers {statics}: at most {allowed} were expected",
                likely="buckets share nothing: a pool, a workspace or a copy of the weights for each  (class K)",
                cure="capture the largest bucket first, all into one pool, and keep one copy of everything else",
                evidence=evidence,
            )
    return evidence


def _growth(subject: Subject, buckets: list[dict[str, int]]) -> dict[str, int]:
    base = subject.apart()
    live, taken = allocated(), reserved()
    with base.sibling(buckets=buckets, warm=False, same_module=True) as other:
        seen = other.warmup()
        return {"live": allocated() - live, "taken": reserved() - taken, "captures": seen.captures}


def _require_pool(subject: Subject) -> Evidence:
    pool = torch.cuda.graph_pool_handle()
    with subject.sibling(pool=pool, warm=False) as other, log_graphs(other) as log:
        other.warmup()
    if len(log.pools) != len(subject.spec.buckets):
        return {"graphs": len(log.pools)}  # a pool in which a capture failed takes no other
    strays = [sizes for sizes, used in zip(log.sizes, log.pools, strict=True) if used != tuple(pool)]
    if strays:
        raise CheckFailed(
            "CG501",
            f"{len(strays)} of {len(log.pools)} graphs were captured into another pool than the one given: {strays}",
            likely="each capture makes a pool of its own, so that no bucket can use another's memory  (class K)",
            cure="pass one pool to every torch.cuda.graph(..., pool=pool)",
        )
    return {"graphs": len(log.pools), "pools": len(set(log.pools))}


@check("CG502", "flat", "device memory stays flat over 200 calls", cases=_once)
def flat(subject: Subject) -> Evidence:
    """Contract: once every size has been seen, calls leave no memory behind, whatever their sizes.

    Why it matters: a few kilobytes a request are an out-of-memory error a day later.
    https://github.com/vllm-project/vllm-omni/pull/2059

    How it is checked: 200 calls at sizes inside, between and past the buckets, their results dropped. Bytes of live
    tensors are read before, after 100 and after 200: growth in both halves is a leak, growth in one alone is not.

    If it fails: look for results, inputs or events that are kept in a list or in a cache keyed by request or size.
    """
    families = (cases.exact, cases.around_frames, cases.outside)
    sizes = [case.arguments["sizes"] for family in families for case in list(family(subject.spec))[:4]]
    with measuring(subject):
        inputs = [subject.draw(size, "CG502") for size in sizes]
        _serve(subject, inputs, len(inputs))
        readings = [allocated()]
        for _ in range(2):
            _serve(subject, inputs, CALLS // 2)
            readings.append(allocated())
    first, second = readings[1] - readings[0], readings[2] - readings[1]
    if first > 0 and second > 0:
        raise CheckFailed(
            "CG502",
            f"{first + second} bytes are left after {CALLS} calls: {first} of one half, {second} of the other",
            likely="something of each call is kept: its result, its inputs or an event  (class K)",
            cure="keep nothing of a call once its result is handed out",
            evidence={"readings": readings},
        )
    return {"calls": CALLS, "sizes": len(sizes), "bytes_left": first + second}


def _serve(subject: Subject, inputs: list[Inputs], calls: int) -> None:
    """Calls whose results are dropped. Whether they are right, and raise, is the business of CG2 and CG4."""
    for number in range(calls):
        with contextlib.suppress(Exception):
            subject(inputs[number % len(inputs)])


@check("CG503", "second-warm-up", "a second warm-up captures nothing and takes nothing", cases=_once)
def second_warm_up(subject: Subject) -> Evidence:
    """Contract: calling warm-up again changes nothing: no capture, no memory.

    Why it matters: engines warm up on start, on wake-up and on a profile run; graphs captured twice are paid twice.
    https://github.com/vllm-project/vllm/issues/49224

    How it is checked: a second runner warms up twice; captures and bytes of live tensors are read around the second.

    If it fails: return from warm-up where every bucket has its graph already.
    """
    with measuring(subject), subject.sibling() as other:
        before = allocated()
        seen = other.warmup()
        grown = allocated() - before
        if seen.captures or grown > 0:
            raise CheckFailed(
                "CG503",
                f"a second warm-up made {seen.captures} captures and took {grown} bytes",
                likely="warm-up does not ask whether it has been done  (class K)",
                cure="return from warm-up where every bucket has its graph already",
                evidence={"captures": seen.captures, "bytes": grown},
            )
    return {"captures": 0, "bytes": grown}


@check("CG504", "close", "close gives all memory back, and later calls are eager, right and counted", cases=_once)
def close(subject: Subject) -> Evidence:
    """Contract: after close no graph and no static buffer is alive, memory is what it was before warm-up, and calls
    run eagerly, counted as `closed`.

    Why it matters: an engine that sleeps or swaps models counts on the memory; a graph kept by a forgotten reference
    keeps its whole pool. https://github.com/pytorch/pytorch/issues/155398

    How it is checked: a second runner warms up, serves each bucket once and closes. Its graphs and static tensors are
    watched through weak references, and bytes of live tensors are read before and after.

    If it fails: drop graphs, static inputs and outputs, and the pool; keep none of them in a cache or a closure.
    """
    _serve(subject, [subject.draw(subject.spec.buckets[0], "CG504")], 1)
    base = subject.apart()
    with measuring(subject):
        before = allocated()
        with base.sibling(warm=False, same_module=True) as other:
            with log_graphs(other) as log:
                other.warmup()
            for bucket in subject.spec.buckets:
                _serve(other, [subject.draw(bucket, "CG504")], 1)
            other.close_runner()
            _require_given_back(log, allocated() - before)
            served = _require_eager(subject, other)
    return {"graphs": len(log.graphs), "calls_after": served}


def _require_given_back(log: GraphLog, left: int) -> None:
    alive = sum(graph() is not None for graph in log.graphs)
    static = sum(tensor() is not None for tensor in log.statics)
    if left > 0 or alive or static:
        raise CheckFailed(
            "CG504",
            f"after close {alive} of {len(log.graphs)} graphs and {static} of {len(log.statics)} static tensors are "
            f"alive, and {left} bytes are not given back",
            likely="graphs or static buffers are kept by another reference: a cache, a closure, a list  (class K)",
            cure="drop graphs, static buffers and the pool in close",
            evidence={"graphs": alive, "static_tensors": static, "bytes": left},
        )


def _require_eager(subject: Subject, other: Subject) -> int:
    advice = Advice("a closed runner still answers from memory it let go", "run the module eagerly once closed")
    before = dict((other.stats() or {}).get("fallbacks", {}))
    for bucket in subject.spec.buckets:
        inputs = subject.draw(bucket, "CG504 after")
        found, seen = call(other, "CG504", inputs)
        if seen.replays or seen.captures:
            raise CheckFailed(
                "CG504",
                f"{seen.replays} replays and {seen.captures} captures were observed after close",
                likely="close does not reach the path that replays  (class K)",
                cure="run every call eagerly once closed",
            )
        require_equal("CG504", subject, found, subject.eager(inputs), advice)
    statistics = other.stats()
    if statistics is not None:
        counted = statistics["fallbacks"].get("closed", 0) - before.get("closed", 0)
        if counted != len(subject.spec.buckets):
            raise CheckFailed(
                "CG504",
                f"{counted} of {len(subject.spec.buckets)} calls after close are counted as `closed`",
                likely="a path to eager is not counted, or under another reason  (class T)",
                cure="count the reason `closed` for each call after close",
            )
    return len(subject.spec.buckets)
