"""CG6: calls from several threads, a close among them, and a fork, each get their own right result."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from conformance import cases
from conformance.cases import Sizes
from conformance.catalogue import Case, CheckFailed, Evidence, check
from conformance.compare import Advice, require_equal
from conformance.evidence import call
from conformance.instruments.graphlog import Forward, around_forward
from conformance.instruments.parallel import Stuck, in_fork, in_threads
from conformance.spec import AdapterSpec
from conformance.subject import Inputs, Outputs, Subject, snapshot

CALLS = 8  # a thread
_LIMIT = 200  # calls a thread, where the close does not come
_PATIENCE = 1.0  # seconds to wait for half of the calls, which never replay where a runner is eager
Served = tuple[int, Outputs]
"""The number of a turn, and what the call returned."""
_ADVICE = Advice(
    "another thread's call wrote the static buffers between this one's load and its copy of the result  (class M)",
    "hold one lock from load to unload, and order the streams of two calls with an event",
)


def _no_threads(spec: AdapterSpec) -> str | None:
    return cases.unclaimed(spec, "threads")


def _no_two_buckets(spec: AdapterSpec) -> str | None:
    return _no_threads(spec) or (f"{spec.name} declares one bucket" if len(spec.buckets) < 2 else None)


def _once(_: AdapterSpec) -> Iterator[Case]:
    yield Case("")


def _largest_and_next(spec: AdapterSpec) -> Iterator[Case]:
    """The largest bucket with the smallest, and with the next to it."""
    ordered = sorted(spec.buckets, key=lambda bucket: [_work(bucket), *bucket.values()])
    for other in {0, len(ordered) - 2}:
        pair = [dict(ordered[-1]), dict(ordered[other])]
        yield Case("-and-".join(cases.label(spec, sizes) for sizes in pair), {"pair": pair})


def _work(bucket: Any) -> int:
    product = 1
    for size in bucket.values():
        product *= size
    return product


@check(
    "CG601",
    "threads-one-bucket",
    "two threads that call one bucket at once each get their own result",
    cases=cases.exact,
    not_applicable=_no_threads,
)
def threads_one_bucket(subject: Subject, sizes: Sizes) -> Evidence:
    """Contract: calls from several threads at once, in one bucket, each return what eager gives for their own input.

    Why it matters: one static buffer serves all callers: without a lock from load to unload one user hears another's
    audio, under load only. https://github.com/sgl-project/sglang-omni/issues/825

    How it is checked: two threads, each on a stream of its own, call the bucket several times with inputs of their own,
    the interpreter switching between them as often as it can. Every result is compared with eager.

    If it fails: hold one lock from load to unload; across streams, wait for the event that the last call recorded.
    """
    return _race(subject, "CG601", [sizes, sizes])


@check(
    "CG602",
    "threads-two-buckets",
    "two threads that call different buckets at once each get their own result",
    cases=_largest_and_next,
    not_applicable=_no_two_buckets,
)
def threads_two_buckets(subject: Subject, pair: list[Sizes]) -> Evidence:
    """Contract: calls from several threads at once, in different buckets, each return what eager gives.

    Why it matters: graphs of one pool use one memory: a lock for each bucket lets one graph's replay write over
    another's outputs; and what is kept on the runner during a call belongs to whichever call came last.
    https://github.com/vllm-project/vllm/pull/48053

    How it is checked: as CG601, one thread at the largest bucket and one at the smallest, or next to the largest.

    If it fails: one lock for all graphs that share a pool; keep what belongs to one call in local variables.
    """
    return _race(subject, "CG602", pair)


def _race(subject: Subject, code: str, sizes: list[Sizes]) -> Evidence:
    inputs = [[subject.draw(size, f"{code} {who} {turn}") for turn in range(CALLS)] for who, size in enumerate(sizes)]
    expected = [[subject.eager(one) for one in mine] for mine in inputs]
    found = _together(subject, code, inputs, lambda: range(CALLS))
    _require_own(subject, code, found, expected, _ADVICE)
    return {"threads": len(sizes), "calls": CALLS * len(sizes)}


def _require_own(
    subject: Subject, code: str, found: list[list[Served]], expected: list[list[Outputs]], advice: Advice
) -> None:
    for mine, truth in zip(found, expected, strict=True):
        for turn, one in mine:
            require_equal(code, subject, one, truth[turn % CALLS], advice)


def _together(
    subject: Subject,
    code: str,
    inputs: list[list[Inputs]],
    turns: Callable[[], Iterable[int]],
    meanwhile: Callable[[], None] | None = None,
) -> list[list[Served]]:
    """What each thread was served in its `turns`, on the thread's own inputs."""
    call(subject, code, inputs[0][0])

    def job(mine: list[Inputs]) -> Callable[[], list[Served]]:
        return lambda: [(turn, subject.proceed(mine[turn % CALLS])) for turn in turns()]

    try:
        results = in_threads([job(mine) for mine in inputs], meanwhile)
    except Stuck as stuck:
        raise CheckFailed(
            code, str(stuck), likely="two locks are taken in two orders  (class M)", cure="use one lock, taken once"
        ) from stuck
    found: list[list[Served]] = []
    for result in results:
        if isinstance(result, Exception):
            raise CheckFailed(
                code,
                f"a call in a thread raised {type(result).__name__}: {(str(result).splitlines() or [''])[0]}",
                likely="what one call uses was changed or let go by another thread  (class M)",
                cure="hold one lock from lookup to unload, and look again inside it whether the runner is closed",
                evidence={"exception": repr(result)},
            ) from result
        found.append(result)
    return found


@check(
    "CG603",
    "close-in-calls",
    "close during calls of another thread disturbs none of them",
    cases=_once,
    not_applicable=_no_threads,
)
def close_during_calls(subject: Subject) -> Evidence:
    """Contract: while one thread calls, another may close: each call before and after returns what eager gives.

    Why it matters: a server that shuts down or sleeps closes while requests are on their way; a graph that is let go
    under a replay is a use after free. https://github.com/sgl-project/sglang-omni/pull/1395

    How it is checked: two threads call a second runner's largest bucket, and it is closed in the middle of their calls.
    Every result is compared with eager; no call may raise.

    If it fails: take the lock of the calls in close, and ask inside that lock whether the runner is closed.
    """
    bucket = subject.table.buckets[-1]
    inputs = [[subject.draw(bucket, f"CG603 {who} {turn}") for turn in range(CALLS)] for who in range(2)]
    expected = [[subject.eager(one) for one in mine] for mine in inputs]
    closed = threading.Event()
    with subject.sibling() as other, subject.observe() as seen:

        def turns() -> Iterator[int]:
            """Until the close, and two more."""
            yield from itertools.takewhile(lambda _: not closed.is_set(), range(_LIMIT))
            yield from range(2)

        def close_in_the_middle() -> None:
            deadline = time.monotonic() + _PATIENCE
            while seen.replays < CALLS and time.monotonic() < deadline:
                time.sleep(1e-4)
            try:
                other.close_runner()
            finally:
                closed.set()

        found = _together(other, "CG603", inputs, turns, close_in_the_middle)
    advice = Advice("a graph was let go while it was replayed  (class M)", "take the lock of the calls in close")
    _require_own(subject, "CG603", found, expected, advice)
    return {"calls": sum(map(len, found)), "replays": seen.replays}


class _ReachedEager(Exception):
    """Stands for the module in a forked child, where a real one could not run."""


def _no_fork(_: AdapterSpec) -> str | None:
    return None if hasattr(os, "fork") else "this system cannot fork"


@check(
    "CG604",
    "fork",
    "in a forked child no graph is touched: calls go to the module",
    cases=_once,
    not_applicable=_no_fork,
)
def fork(subject: Subject) -> Evidence:
    """Contract: in a forked child a call reaches the module without touching a graph, counted as `forked`, and close
    does nothing.

    Why it matters: a child has the parent's Python objects and none of its device: a replay there hangs, and freeing
    the parent's graphs breaks the parent. https://github.com/sgl-project/sglang-omni/pull/1101

    How it is checked: a child is forked and calls the runner at its first bucket, with a stand-in for the module, so
    that no device is needed; it must be reached, with no replay before. Then the child closes, and the parent calls.

    If it fails: keep the id of the process that captured, and compare it before every call and in close.
    """
    inputs = subject.draw(subject.spec.buckets[0], "CG604")
    with subject.sibling() as other:
        before = snapshot(call(other, "CG604", inputs)[0])
        told = in_fork(lambda: _in_child(other, inputs))
        if told.get("error") or told["replays"]:
            raise CheckFailed(
                "CG604",
                f"in a forked child: {told.get('error') or str(told['replays']) + ' replays were observed'}",
                likely="nobody asks which process this is  (class M)",
                cure="keep os.getpid() at construction, and run eagerly and close nothing where it differs",
                evidence=told,
            )
        if told["fallbacks"] is not None and told["fallbacks"] != {"forked": 1}:
            raise CheckFailed(
                "CG604",
                f"the child's one call is counted as {told['fallbacks'] or 'nothing'}",
                likely="a path to eager is not counted, or under another reason  (class T)",
                cure="count the reason `forked`",
                evidence=told,
            )
        after, _ = call(other, "CG604", inputs)
        advice = Advice("the child's close reached the parent's memory  (class M)", "close nothing in a child")
        require_equal("CG604", subject, after, before, advice)
    return told


def _in_child(other: Subject, inputs: Inputs) -> dict[str, Any]:
    before = dict((other.stats() or {}).get("fallbacks", {}))

    def forward(_: Forward, __: Any) -> Any:
        raise _ReachedEager

    error = "the call returned without reaching the module"
    with other.observe() as seen, around_forward(other, forward):
        try:
            other.raw(inputs)
        except _ReachedEager:
            error = ""
        except Exception as raised:
            error = f"the call raised {type(raised).__name__}: {raised}"
    statistics = other.stats()
    counted = None if statistics is None else statistics["fallbacks"]
    fallbacks = None if counted is None else {k: n - before.get(k, 0) for k, n in counted.items() if n != before.get(k)}
    if not error:
        try:
            other.close_runner()
        except Exception as raised:
            error = f"close raised {type(raised).__name__}: {raised}"
    return {"error": error, "replays": seen.replays, "fallbacks": fallbacks}
