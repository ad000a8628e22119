"""CG1: every declared bucket is captured at warm-up, only there, and a failure leaves nothing half done."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from conformance import cases
from conformance.cases import Sizes
from conformance.catalogue import Case, CheckFailed, Evidence, check
from conformance.compare import Advice, require_equal
from conformance.evidence import call, graphed_call
from conformance.instruments.capture_audit import audit_capture, failing_capture
from conformance.instruments.graphlog import log_graphs
from conformance.instruments.purity import changes, photograph, states_in_use
from conformance.spec import AdapterSpec
from conformance.subject import Subject


def _once(_: AdapterSpec) -> Iterator[Case]:
    yield Case("")


@check("CG101", "every-bucket", "warm-up captures every declared bucket, each once, and each replays", cases=_once)
def every_bucket(subject: Subject) -> Evidence:
    """Contract: warm-up captures one graph for each declared bucket, and a call that fills a bucket replays its graph.

    Why it matters: a bucket that was left out runs eagerly for ever, and nobody sees it but the profiler.
    https://github.com/sgl-project/sglang-omni/pull/886

    How it is checked: captures are counted at `torch.cuda.CUDAGraph` while a second runner warms up; then each bucket
    is called once, filled exactly. Where statistics are kept, they must count the same graphs.

    If it fails: look at the capture errors; capture each bucket once, and leave none to the first request.
    """
    buckets = subject.spec.buckets
    with subject.sibling(warm=False) as other:
        with log_graphs(other) as log:
            seen = other.warmup()
        captures = log.alive() if subject.spec.limited else seen.captures  # under a limit others are tried and let go
        if captures != len(buckets):
            missing = [dict(bucket) for bucket in buckets if dict(bucket) not in log.sizes]
            failures = (other.stats() or {}).get("capture_failures") or {}
            told = "; ".join(f"{bucket}: {str(text).splitlines()[0]}" for bucket, text in failures.items())
            raise CheckFailed(
                "CG101",
                f"{captures} captures were observed for {len(buckets)} buckets"
                + (f"; not captured: {missing}" if missing else "")
                + (f" ({told})" if told else ""),
                likely="a capture failed or was skipped, or buckets are captured more than once  (class N, L, K)",
                cure="capture every declared bucket once at warm-up; CG103 names a line that no capture permits",
                evidence={"captures": captures, "buckets": len(buckets)},
            )
        for bucket in buckets:
            graphed_call(other, "CG101", subject.draw(bucket, "CG101"))
        statistics = other.stats() or {}
        asked = len(buckets) + len(subject.spec.left_out)
        for key, right in {"graphs_requested": asked, "graphs_captured": len(buckets)}.items():
            if statistics.get(key, right) != right:
                raise CheckFailed(
                    "CG101",
                    f"the statistics say {key} = {statistics[key]} where {len(buckets)} captures were observed",
                    likely="graphs are counted where they are planned, not where they are captured  (class T)",
                    cure="count a graph when its capture has ended",
                )
    return {"captures": seen.captures}


@check("CG102", "no-late-capture", "after warm-up no call captures anything", cases=_once)
def no_late_capture(subject: Subject) -> Evidence:
    """Contract: calls of any size, in a bucket, between buckets or past them all, capture nothing after warm-up.

    Why it matters: a capture in the middle of serving stalls every request for its whole duration and takes memory that
    nobody planned. https://github.com/vllm-project/vllm-omni/pull/2059

    How it is checked: one call at every size that the other checks try, inside and outside the buckets. Whether results
    are right is the business of CG2 and CG4; here only captures count, and calls that raise count as calls.

    If it fails: run what no bucket holds eagerly; declare more buckets where that is too slow.
    """
    families = (cases.exact, cases.around_frames, cases.around_rows, cases.outside)
    tried = {case.id: case.arguments["sizes"] for family in families for case in family(subject.spec)}
    for name, sizes in tried.items():
        inputs = subject.draw(sizes, "CG102")
        with subject.observe() as seen:
            try:
                subject(inputs)
            except Exception as error:
                raised: str | None = f"{type(error).__name__}"
            else:
                raised = None
        if seen.captures:
            raise CheckFailed(
                "CG102",
                f"{seen.captures} captures were observed in a call at {name}, after warm-up",
                likely="sizes are captured when they are first seen  (class K)",
                cure="run what no bucket holds eagerly, and capture at warm-up alone",
                evidence={"captures": seen.captures, "raised": raised},
            )
    return {"calls": len(tried)}


@check("CG103", "host-sync", "the module can be captured: nothing in it waits for the device", cases=cases.exact)
def host_sync(subject: Subject, sizes: Sizes) -> Evidence:
    """Contract: the module's forward at each bucket runs inside a capture, without the runner's help.

    Why it matters: `.item()`, a boolean mask or a tensor made from a list is refused in a capture; wrappers swallow the
    refusal and stay eager. https://github.com/vllm-project/vllm-omni/issues/4562

    How it is checked: two eager runs on a side stream, then a real capture around the module on the same inputs, made
    by the kit. The message names the first line of the user's code that was refused.

    If it fails: keep the decision on the device (`torch.where`), or on the host before the call; give every size that
    depends on data a fixed one.
    """
    refusal = audit_capture(subject, subject.draw(sizes, "CG103"), sizes)
    if refusal is not None:
        raise CheckFailed(
            "CG103",
            f"the module cannot be captured at {sizes}: {refusal.what}"
            + (f", at {refusal.line}" if refusal.line else ""),
            likely="the host reads a value from the device, or copies to it, inside forward  (class G)",
            cure=refusal.cure or "keep the decision on the device (torch.where), or make it before the call",
            evidence={"line": refusal.line},
        )
    return {"captured": True}


def _each_bucket(spec: AdapterSpec) -> Iterator[Case]:
    """The number of the capture that is made to fail, in the runner's own order."""
    for number in range(len(spec.buckets)):
        yield Case(f"capture{number + 1}", {"number": number})


@check(
    "CG104",
    "failed-capture",
    "a bucket whose capture fails runs eagerly or elsewhere; the others replay",
    cases=_each_bucket,
)
def failed_capture(subject: Subject, number: int) -> Evidence:
    """Contract: when one capture fails, warm-up goes on: that bucket's calls are right without its graph, the other
    buckets replay, the current stream is what it was, and the statistics name the failure.

    Why it matters: half an entry in a table replays memory that nothing wrote; an exception at start-up takes the
    service down; and silence leaves it eager for ever. https://github.com/pytorch/pytorch/pull/190348

    How it is checked: a second runner warms up while an operation that no capture permits is made in one of its
    captures, for each in turn. Afterwards every bucket is called, and so is the first runner.

    If it fails: publish an entry after its capture has ended; on failure drop it, give later captures another pool, put
    the stream back (torch does not), and count it.
    """
    stream = torch.cuda.current_stream()
    with subject.sibling(warm=False) as other:
        with failing_capture(other, number) as failed:
            try:
                seen = other.warmup()
            except Exception as error:
                raise _half_done(f"warm-up raised {type(error).__name__}: {error}") from error
            finally:
                now, capturing = torch.cuda.current_stream(), torch.cuda.is_current_stream_capturing()
                torch.cuda.set_stream(stream)
        if now != stream or capturing:
            raise _half_done("the capture's stream stayed current after the failure")
        if not failed.sizes:
            raise _half_done(f"warm-up made fewer than {number + 1} captures")
        evidence = _require_right(subject, other, failed.sizes)
        # A runner may make others that hold nothing of the module; under a limit it lets go what it tried.
        captures = len(subject.spec.buckets) if subject.spec.limited else failed.begun
        _require_counted(subject, other, captures - 1)
    graphed_call(subject, "CG104", subject.draw(failed.sizes, "CG104 first runner"))
    return {"failed": failed.sizes, "captures": seen.captures, **evidence}


def _half_done(found: str) -> CheckFailed:
    return CheckFailed(
        "CG104",
        f"one capture was made to fail: {found}",
        likely="a failure is not kept to the bucket that failed  (class L)",
        cure="drop that bucket alone, put the stream back, give later captures a fresh pool, and count the failure",
    )


def _require_right(subject: Subject, other: Subject, failed: Sizes) -> Evidence:
    advice = Advice(
        "an entry was published before its capture had ended, or two captures share a broken pool  (class L)",
        "publish an entry when its capture has ended, and drop the one that failed",
    )
    replays = 0
    for bucket in subject.spec.buckets:
        for attempt in range(2):
            inputs = subject.draw(bucket, f"CG104 {attempt}")
            found, seen = call(other, "CG104", inputs)
            if seen.captures:
                raise _half_done(f"a call at {dict(bucket)} captured")
            if dict(bucket) != failed and not seen.replays:
                raise _half_done(f"{dict(bucket)}, whose own capture succeeded, no longer replays")
            require_equal("CG104", subject, found, subject.eager(inputs), advice)
            replays += seen.replays
    return {"replays": replays}


def _require_counted(subject: Subject, other: Subject, captures: int) -> None:
    statistics = other.stats()
    if statistics is None:
        return
    failures = statistics.get("capture_failures")
    if not failures or len(failures) != 1:
        raise _half_done(f"the statistics name {len(failures or ())} failures")
    if statistics.get("graphs_captured", captures) != captures:
        raise _half_done(f"the statistics say {statistics['graphs_captured']} graphs, and {captures} were captured")
    requested = len(subject.spec.buckets) + len(subject.spec.left_out)
    if statistics.get("graphs_requested", requested) != requested:
        raise _half_done(f"the statistics say {statistics['graphs_requested']} of {requested} graphs were asked for")


@check(
    "CG105", "pure-warm-up", "warm-up leaves weights, buffers, attributes and random numbers as they were", cases=_once
)
def pure_warm_up(subject: Subject) -> Evidence:
    """Contract: warm-up changes no parameter, no buffer, no plain attribute of the module, and no random state.

    Why it matters: a service that warms up must answer like one that did not: a seed that was consumed, or a state that
    advanced on padding, is heard in the first request. https://github.com/pytorch/pytorch/issues/84614

    How it is checked: numbers are drawn, so that no generator is at its seed; then all of it is copied before a second
    runner warms up and compared bit for bit after: parameters, buffers, plain values and tensors among the attributes,
    and torch's, CUDA's and Python's random states.

    If it fails: put the random state and the module's own state back after warm-up.
    """
    with states_in_use():
        base = subject.apart()
        before = photograph(base)
        with base.sibling(same_module=True):
            after = photograph(base)
    changed = changes(before, after)
    if changed:
        raise CheckFailed(
            "CG105",
            f"warm-up changed {', '.join(changed[:5])}" + (f" and {len(changed) - 5} more" if len(changed) > 5 else ""),
            likely="warm-up draws random numbers or advances the module's state, and nobody puts it back  (class H, J)",
            cure="save the random state and the module's state before warm-up, and restore them after",
            evidence={"changed": changed},
        )
    return {"compared": len(before)}
