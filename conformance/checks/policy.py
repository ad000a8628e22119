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
from conformance.instruments.sweeps import full_and_padded
from conformance.spec import AdapterSpec
from conformance.subject import Inputs, Subject
from runner import GraphConfig

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
            with located("after the warm-up" if refused else "after a warm-up inside an outer capture"):
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
    base = subject.apart()
    with _counted_forward(subject, base) as counts, base.sibling(warm=False, same_module=True) as other:
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
def _counted_forward(*subjects: Subject) -> Iterator[dict[str, int]]:
    counts = {"eager": 0, "captured": 0}

    def counted(forward: Any, tensors: tuple[torch.Tensor, ...]) -> Any:
        counts["captured" if torch.cuda.is_current_stream_capturing() else "eager"] += 1
        return forward(*tensors)

    with contextlib.ExitStack() as listening:
        for one in {id(subject.adapter): subject for subject in subjects}.values():
            listening.enter_context(around_forward(one, counted))
        yield counts


def _other_callable(found: str) -> CheckFailed:
    return CheckFailed(
        "CG408",
        found,
        likely="the fallback or the capture runs another callable than the adapter's forward  (class U)",
        cure="call adapter.forward in both places, and nothing in its stead",
    )
