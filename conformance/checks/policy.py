"""CG4: which calls may be graphed at all, by which bucket, and how much of real traffic is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from conformance import cases
from conformance.cases import Sizes
from conformance.catalogue import Case, CheckFailed, Evidence, check
from conformance.compare import Advice, require_equal
from conformance.evidence import call, graphed_call, located
from conformance.instruments.graphlog import around_forward
from conformance.instruments.malformed import malformed_inputs
from conformance.instruments.outer_miss import require_outer_right, warm_inside
from conformance.instruments.sweeps import full_and_padded, sizes_along
from conformance.planner import coverage
from conformance.spec import AdapterSpec
from conformance.subject import Inputs, Subject
from conformance.traces import Trace
from runner import Bucket, GraphConfig

_SWITCHES = {
    "enforce-eager": GraphConfig(enforce_eager=True),
    "cudagraph-mode-none": GraphConfig(cudagraph_mode="NONE"),
    "enabled-false": GraphConfig(enabled=False),
    "enabled-overrides": GraphConfig(enabled=True, enforce_eager=True, cudagraph_mode="NONE"),
}


def _one(_: AdapterSpec) -> Iterator[Case]:
    yield Case("")


def _switches(_: AdapterSpec) -> Iterator[Case]:
    for name in _SWITCHES:
        yield Case(name, {"switch": name})


@check("CG403", "switches", "each switch turns graphs off: no capture and no replay happens", cases=_switches)
def switches(subject: Subject, switch: str) -> Evidence:
    """Contract: `enforce_eager`, `cudagraph_mode=NONE` and the component's own `enabled=False` each leave no capture
    and no replay; `enabled=True` alone overrides the first two.

    Why it matters: an operator who turns graphs off to find a fault, or to save memory, must not get them all the same.
    https://github.com/vllm-project/vllm-omni/pull/3732

    How it is checked: a second runner is made with each switch, warmed up and called at every bucket; captures and
    replays are observed, eager results compared with eager's, and the reason looked up in the statistics.

    If it fails: decide once, at construction, from all the switches, and ask that decision before capture and replay.
    """
    wanted = switch == "enabled-overrides"
    advice = Advice("the eager path is not the module's", "run the module on the caller's own tensors")
    with subject.sibling(_SWITCHES[switch], warm=False) as other:
        captures = other.warmup().captures
        replays = calls = 0
        for sizes in full_and_padded(subject.spec):
            inputs = other.draw(sizes, "CG403")
            found, seen = call(other, "CG403", inputs)
            if not seen.replays:
                require_equal("CG403", other, found, other.eager(inputs), advice)
            captures, replays, calls = captures + seen.captures, replays + seen.replays, calls + 1
        if bool(captures) != wanted or (replays == calls) != wanted or (not wanted and replays):
            raise CheckFailed(
                "CG403",
                f"{switch}: {captures} captures and {replays} replays in {calls} calls",
                likely="a switch is not read, or is read on one of the two paths alone  (class Q)",
                cure="decide once at construction from all switches, and ask that decision before capture and replay",
            )
        fallbacks = dict((other.stats() or {}).get("fallbacks", {}))
        if not wanted and other.stats() is not None and fallbacks != {"disabled": calls}:
            raise CheckFailed(
                "CG403",
                f"{switch}: the statistics give {fallbacks} as reasons for {calls} eager calls",
                likely="the switch is mistaken for a missing bucket or a failed capture  (class Q)",
                cure="count the reason `disabled` for each call while graphs are off",
            )
    return {"captures": captures, "replays": replays, "calls": calls}


@check("CG404", "outer-capture-miss", "inside an outer capture a miss runs eagerly and nothing is warmed", cases=_one)
def outer_capture_miss(subject: Subject) -> Evidence:
    """Contract: inside an outer capture a call that no bucket holds, or that comes before warm-up, runs eagerly and is
    captured rightly; a warm-up there is refused, or at least leaves the outer capture intact.

    Why it matters: guards are written for the hit; the miss and the lazy capture end vLLM's own capture at start-up.
    https://github.com/vllm-project/vllm-omni/pull/6639

    How it is checked: real outer captures around a call past every bucket, a call on a runner that was never warmed up,
    and a warm-up; each outer graph is replayed with another input and compared with eager. The runner must warm up and
    replay afterwards.

    If it fails: ask `torch.cuda.is_current_stream_capturing()` first, on every path: hit, miss, lazy capture, warm-up.
    """
    sizes = dict(subject.spec.buckets[0])
    outside: list[Sizes] = [case.arguments["sizes"] for case in cases.outside(subject.spec)][:1]
    inputs = subject.draw(sizes, "CG404")
    before = graphed_call(subject, "CG404", inputs)[0]
    for size in outside:
        require_outer_right(subject, size, "a call that no bucket holds")
    with subject.sibling(warm=False) as cold:
        require_outer_right(cold, sizes, "a call before warm-up")
        refused = warm_inside(cold, sizes)
        if not refused or cold.warmup().captures:
            for bucket in subject.spec.buckets:
                graphed_call(cold, "CG404", cold.draw(bucket, "CG404 after"))
    again = Advice("the outer capture left the inner path in another state  (class F)", "touch nothing meanwhile")
    after, seen = graphed_call(subject, "CG404", inputs)
    require_equal("CG404", subject, after, before, again)
    return {"warmup_refused": refused, "replays_after": seen.replays}


@check("CG405", "bad-input", "an input that eager refuses is refused, and none is cast or broadcast", cases=_one)
def bad_input(subject: Subject) -> Evidence:
    """Contract: wrong dtype, rank, device, number of code rows or disagreeing sizes raise where the fallback raises,
    and otherwise give what it gives; a good call afterwards replays as before.

    Why it matters: `copy_` into a static buffer casts floats and broadcasts one code row without a word, and the caller
    hears noise instead of reading an error. https://github.com/vllm-project/vllm/issues/43145

    How it is checked: each kind of bad input, after a good call, on a second runner and on one of the same module that
    was never warmed up; eager's own refusal counts as well. A last good call must replay, if the first one did.

    If it fails: compare dtype, device, rank and every fixed size before the copy, and send what differs to eager.
    """
    sizes = dict(subject.spec.buckets[-1])
    good = subject.draw(sizes, "CG405")
    tried, raised = 0, 0
    with subject.sibling(warm=False) as fallback, subject.sibling() as served:
        fallback.eager(good)
        before = call(served, "CG405", good)[1]
        for kind, inputs in malformed_inputs(subject.adapter, good):
            served(good)
            tensors = [inputs[spec.name] for spec in subject.adapter.device_inputs()]
            refusal = _raises(subject.adapter.forward, *tensors) or _raises(fallback.raw, inputs)
            tried += 1
            if refusal:
                raised += 1
                if not _raises(served.raw, inputs):
                    raise CheckFailed(
                        "CG405",
                        f"{kind}: the call returned a result where eager raises {refusal}",
                        likely="copy_ into a static buffer casts and broadcasts silently  (class N, I)",
                        cure="compare dtype, device, rank and fixed sizes before the copy, and send the rest to eager",
                    )
                continue
            advice = Advice("the input was cast, cut or broadcast on the graph path  (class N, I)", "send it to eager")
            with located(kind):
                fallback.fresh_start()
                expected = fallback.proceed(inputs)
                require_equal("CG405", served, call(served, "CG405", inputs)[0], expected, advice)
        after = call(served, "CG405", good)[1]
    if before.replays and not after.replays:
        raise CheckFailed(
            "CG405",
            "after bad inputs a good call no longer replays",
            likely="a bad input was captured, and the graphs were given up when that failed  (class L, N)",
            cure="refuse bad input before anything is captured, and let one failure cost one size",
        )
    return {"kinds": tried, "refused": raised}


def _raises(function: Callable[..., Any], *arguments: Any) -> str:
    """The name of what `function` raises, empty where it returns."""
    try:
        with torch.no_grad():
            function(*arguments)
    except Exception as error:
        return type(error).__name__
    return ""


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


@check("CG408", "deployed-callable", "what is captured, what the fallback runs and the reference are one", cases=_one)
def deployed_callable(subject: Subject) -> Evidence:
    """Contract: capture and fallback call the adapter's `forward`, which is the kit's reference: one callable, one
    truth.

    Why it matters: a graph compared with another path than users fall back to can be right in every test and differ in
    production, by 0.027 in one case. https://github.com/sgl-project/sglang-omni/pull/1209

    How it is checked: `forward` of the adapter is counted while a second runner is warmed up, and while calls that no
    bucket holds, and calls before warm-up, run eagerly.

    If it fails: call `adapter.forward` in both places, and nothing in its stead.
    """
    outside: list[Sizes] = [case.arguments["sizes"] for case in cases.outside(subject.spec)][:2]
    what = subject.spec.captured(subject.adapter)[1]
    with _counted_forward(subject) as counts, subject.sibling(warm=False) as other:
        for who, sizes in [(other, dict(subject.spec.buckets[0])), *((subject, sizes) for sizes in outside)]:
            inputs: Inputs = who.draw(sizes, "CG408")
            expected = who.eager(inputs)
            before = counts["eager"]
            found, _ = call(who, "CG408", inputs)
            if counts["eager"] - before != 1:
                times = counts["eager"] - before
                raise _other_callable(f"graphs capture {what!r}, and the fallback at {sizes} called it {times} times")
            advice = Advice("the fallback changes what forward gives  (class U)", "return forward's own result")
            require_equal("CG408", who, found, expected, advice)
        captured = other.warmup().captures
        if counts["captured"] < captured:
            raise _other_callable(
                f"{captured} graphs were captured, and {what!r} was captured {counts['captured']} times"
            )
    return {"captured": counts["captured"], "fallbacks": 1 + len(outside)}


@contextlib.contextmanager
def _counted_forward(subject: Subject) -> Iterator[dict[str, int]]:
    counts = {"eager": 0, "captured": 0}

    def counted(forward: Any, tensors: tuple[torch.Tensor, ...]) -> Any:
        counts["captured" if torch.cuda.is_current_stream_capturing() else "eager"] += 1
        return forward(*tensors)

    with around_forward(subject, counted):
        yield counts


def _other_callable(found: str) -> CheckFailed:
    return CheckFailed(
        "CG408",
        found,
        likely="the fallback or the capture runs another callable than the adapter's forward  (class U)",
        cure="call adapter.forward in both places, and nothing in its stead",
    )
