"""CG8: what replaying is for. Runs with `--benchmark-only` or `--benchmark-enable`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from math import prod
from typing import Any

import torch

from conformance import cases
from conformance.bench.figures import Quartiles
from conformance.bench.measure import Measured, Times, describe_times, measure, operator_calls, rounds_in_short
from conformance.bench.timer import PlainTimer
from conformance.cases import Sizes
from conformance.catalogue import Case, CheckFailed, Evidence, Level, check
from conformance.device import CUDA
from conformance.evidence import call, graphed_call
from conformance.instruments.footprint import allocated, measuring, reserved
from conformance.spec import AdapterSpec
from conformance.subject import Subject
from conformance.versions import kit_version
from runner import Bucket, BucketTable

EXACT, PADDED, FALLBACK = "exact", "padded", "fallback"


def _traced(spec: AdapterSpec) -> Iterator[Case]:
    """Each size of the trace (each bucket where there is none), and one that no bucket holds if the trace has none."""
    served = spec.serving_buckets or spec.buckets
    table = BucketTable(served, spec.adapter.axes)
    sizes = [dict(one.sizes) for one in spec.trace.calls] if spec.trace else [dict(bucket) for bucket in served]
    past = (case.arguments["sizes"] for case in cases.outside(spec))
    if all(table.lookup(size) for size in sizes):
        sizes += itertools.islice((size for size in past if table.lookup(size) is None), 1)
    for size in sizes:
        yield Case(cases.label(spec, size), {"sizes": size})


@check("CG801", "speed", "a replay is no slower than eager", cases=_traced, level=Level.PERFORMANCE)
def speed(subject: Subject, sizes: Sizes) -> Evidence:
    """Contract: on a GPU the lower quartile of eager ÷ replay is at least the adapter's `min_speedup` (1.0 unless
    declared). On the emulation a replay takes no longer than eager of the same work, in the median. On both, calls
    after warm-up capture nothing, keep no memory, and a replay calls fewer modules than eager.

    Why it matters: a graph that saves nothing still costs memory and start-up time, and padding alone can make a replay
    slower than the call it stands for. https://github.com/sgl-project/sglang-omni/pull/1209

    How it is checked: eager and the graphed call take turns, so that the machine's load meets both alike; each round
    gives one ratio. Where a call is padded, the emulation compares with eager at the bucket's size: its kernels are the
    host's, whose time grows with every padded frame. What no bucket holds is timed too, and its ratio judged nowhere.

    If it fails: look for work besides the replay in the call, or declare buckets closer to the sizes of the trace.
    """
    bucket = BucketTable(subject.spec.serving_buckets or subject.spec.buckets, subject.adapter.axes).lookup(sizes)
    some = bucket or subject.spec.buckets[0]
    path = FALLBACK if bucket is None else EXACT if dict(bucket) == dict(sizes) else PADDED
    base = subject.apart()
    with measuring(subject):
        before = _bytes()
        with base.sibling(buckets=[dict(some)], warm=False, same_module=True) as served:
            started = time.perf_counter()
            served.warmup()
            torch.cuda.synchronize()
            capture = {"capture_seconds": round(time.perf_counter() - started, 6), "capture_bytes": _bytes() - before}
            counts = _counts(served, sizes, graphed=bucket is not None)
            measured = _measured(
                served, sizes, bucket if path == PADDED else None, subject.timer, graphed=bucket is not None
            )
    figures: dict[str, Any] = {
        "subject": subject.spec.name,
        "case": cases.label(subject.spec, sizes),
        "path": path,
        "bucket": cases.label(subject.spec, bucket) if bucket else "",
        **describe_times(measured.times),
        **(capture if bucket else {}),
        **counts,
        "padded_share": round(1 - prod(sizes.values()) / bucket.work, 4) if bucket else 0.0,
        "captures_after_warmup": measured.captures,
        "bytes_grown": measured.grown,
        "min_speedup": subject.spec.min_speedup,
    }
    about = {
        "device": subject.machine.device,
        "machine": subject.machine.name,
        "torch": subject.machine.torch_version,
        "kit": kit_version(),
    }
    subject.timer.tell({**figures, **about, **rounds_in_short(measured)})
    _judge_counts(measured, graphed=bucket is not None)
    if bucket is not None:
        judge_times(subject, measured.times, path)
    return figures


def _bytes() -> int:
    """Bytes taken from the device, after garbage and unused memory are given back."""
    allocated()
    return reserved()


def _counts(served: Subject, sizes: Sizes, *, graphed: bool) -> dict[str, int]:
    """What a graphed call saves, counted: of torch modules, and of operators dispatched."""
    inputs = served.draw(sizes, "CG801")
    with served.observe() as eager:
        served.eager(inputs)
    made = graphed_call if graphed else call
    _, seen = made(served, "CG801", inputs)
    if eager.module_calls and seen.module_calls > (eager.module_calls if not graphed else eager.module_calls - 1):
        raise CheckFailed(
            "CG801",
            f"the call ran {seen.module_calls} modules, where eager runs {eager.module_calls}",
            likely="the module runs in Python besides, or more than once  (class N)",
            cure="return what the replay computed, or what one eager call computed",
        )
    served.fresh_start()
    operators = operator_calls(lambda: served.eager_as_served(inputs))
    served.fresh_start()
    return {
        "module_calls_saved": eager.module_calls - seen.module_calls,
        "operator_calls_saved": operators - operator_calls(lambda: served.raw(inputs)),
    }


def _measured(served: Subject, sizes: Sizes, padded_to: Bucket | None, timer: PlainTimer, *, graphed: bool) -> Measured:
    inputs = served.draw(sizes, "CG801")
    full = None if padded_to is None else served.draw(padded_to, "CG801 full")

    def doubtful(times: Times) -> bool:
        cost = Quartiles.of(times.costs_at_bucket)
        return served.machine.device != CUDA and cost.q1 <= 1.0 < cost.median

    return measure(served, inputs, full, timer, doubtful, graphed=graphed)


def _judge_counts(measured: Measured, *, graphed: bool) -> None:
    if measured.captures:
        raise CheckFailed(
            "CG801",
            f"{measured.captures} captures happened in {measured.calls} calls, after warm-up",
            likely="the runner captures again, or captures what it should have captured at warm-up  (class N)",
            cure="capture every declared bucket at warm-up, once",
        )
    if graphed and measured.replays < measured.calls:
        raise CheckFailed(
            "CG801",
            f"{measured.replays} replays happened in {measured.calls} calls that a bucket holds",
            likely="some calls fall back to eager  (class N)",
            cure="look at the fallback reasons in the statistics",
        )
    if measured.grown > 0:
        raise CheckFailed(
            "CG801",
            f"{measured.grown} bytes more are live after {measured.calls} calls than before them",
            likely="the runner keeps what each call gives or takes  (class O)",
            cure="hold nothing of a call once it has returned",
        )


def judge_times(subject: Subject, times: Times, path: str) -> None:
    """The portable gate. Raises :class:`CheckFailed` where replaying does not pay."""
    if subject.machine.device == CUDA:
        speedup, wanted = Quartiles.of(times.speedups), subject.spec.min_speedup
        if speedup.q1 >= wanted:
            return
        found = f"eager ÷ replay is {speedup.median:.2f}, lower quartile {speedup.q1:.2f}; {wanted:g} was promised"
    else:
        cost = Quartiles.of(times.costs_at_bucket)
        if cost.median <= 1.0:
            return
        size = " at the bucket's size" if path == PADDED else ""
        found = f"a replay takes {cost.median:.2f} times as long as eager{size} ({cost.q1:.2f} to {cost.q3:.2f})"
    raise CheckFailed(
        "CG801",
        found,
        likely="the call does more than load, replay and unload, or pads far past what was asked",
        cure="look for host work beside the replay; declare buckets closer to the sizes of the trace",
        evidence=describe_times(times),
    )
