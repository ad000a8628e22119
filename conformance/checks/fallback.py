"""CG4: calls that no graph may serve run eagerly, visibly and rightly."""

from __future__ import annotations

from conformance import cases
from conformance.cases import Sizes
from conformance.catalogue import CheckFailed, Evidence, check
from conformance.compare import Advice, require_equal
from conformance.evidence import call, graphed_call
from conformance.instruments.outer import outer_capture
from conformance.subject import Subject, snapshot


@check("CG401", "eager-fallback", "a call that no bucket holds runs eagerly and equals eager", cases=cases.outside)
def eager_fallback(subject: Subject, sizes: Sizes) -> Evidence:
    """Contract: a call larger than every bucket, or between buckets of an exact axis, runs eagerly: right, and counted.

    Why it matters: such a call cut down to the largest bucket loses audio; refused, it loses the request; replayed or
    captured on the spot, it costs memory that nobody planned. https://github.com/vllm-project/vllm/issues/8068

    How it is checked: sizes one past the largest bucket and twice as large along each axis. No replay and no capture
    may be observed, the result must be eager's, and where the subject keeps statistics one reason must be counted.

    If it fails: run the module on the caller's own tensors, and count the reason.
    """
    inputs = subject.draw(sizes, "CG401")
    before = _fallbacks(subject)
    found, seen = call(subject, "CG401", inputs)
    if seen.replays or seen.captures:
        raise CheckFailed(
            "CG401",
            f"{seen.replays} replays and {seen.captures} captures were observed for {sizes}, which no bucket holds",
            likely="the call was cut down to a bucket, or captured on the spot  (class N)",
            cure="run the module eagerly on the caller's own tensors",
        )
    advice = Advice(
        "the fallback does not run the module on the caller's own tensors",
        "call the same module that was captured, with the inputs as they came",
    )
    agreement = require_equal("CG401", subject, found, subject.eager(inputs), advice, same_shape=True)
    after = _fallbacks(subject)
    _require_one_counted("CG401", before, after)
    reasons = {reason for reason, count in (after or {}).items() if count != (before or {}).get(reason, 0)}
    return {"reasons": sorted(reasons), **agreement.evidence()}


@check(
    "CG402",
    "outer-capture",
    "inside an outer capture a call runs eagerly and is captured rightly",
    cases=cases.exact_and_padded,
)
def active_outer_capture(subject: Subject, sizes: Sizes) -> Evidence:
    """Contract: while another graph is being captured around it, a call runs eagerly; the outer graph then replays
    right with new inputs, and the inner path replays again afterwards.

    Why it matters: a replay inside a capture raises, or leaves the outer graph without the module's work.
    https://github.com/vllm-project/vllm-omni/pull/2910

    How it is checked: a real capture around the call at each bucket, filled and padded. No inner replay or capture may
    be observed in it, and one eager call must be counted where the subject counts; the outer graph is replayed with
    inputs that the subject has never seen, and compared with eager; then a call outside must replay, and give the bits
    that it gave before.

    If it fails: ask `torch.cuda.is_current_stream_capturing()` before every replay and capture, hit or miss, and run
    the module eagerly while it is true.
    """
    inputs = subject.draw(sizes, "CG402 captured")
    inside = subject.draw(sizes, "CG402 inner path")
    before = snapshot(graphed_call(subject, "CG402", inside)[0])
    counted = _fallbacks(subject)
    advice = Advice(
        "the outer graph holds only part of the module's work, or reads other memory than the caller's  (class F)",
        "run the module eagerly on the caller's own tensors while a capture is open",
    )
    with outer_capture(subject, "CG402", inputs) as outer:
        _require_one_counted("CG402", counted, _fallbacks(subject))
        for number in range(2):
            fresh = subject.draw(sizes, f"CG402 replay {number}")
            for name, tensor in inputs.items():
                tensor.copy_(fresh[name])
            subject.fresh_start()
            outer.graph.replay()
            agreement = require_equal("CG402", subject, outer.outputs, subject.eager(fresh), advice, same_shape=True)
    again, seen = graphed_call(subject, "CG402", inside)
    unchanged = Advice(
        "the outer capture left the inner path in another state  (class F, L)",
        "touch no static buffer and no graph while a capture is open",
    )
    require_equal("CG402", subject, again, before, unchanged, same_shape=True)
    return {"outer_captures": 1, "inner_replays_after": seen.replays, **agreement.evidence()}


def _fallbacks(subject: Subject) -> dict[str, int] | None:
    statistics = subject.stats()
    return None if statistics is None else dict(statistics.get("fallbacks", {}))


def _require_one_counted(code: str, before: dict[str, int] | None, after: dict[str, int] | None) -> None:
    """Where the subject keeps statistics, one eager call is one reason more."""
    if before is not None and after is not None and sum(after.values()) - sum(before.values()) != 1:
        raise CheckFailed(
            code,
            f"the statistics count {sum(after.values()) - sum(before.values())} fallbacks for one eager call",
            likely="a path to eager is not counted  (class T)",
            cure="count one reason for each eager call",
        )
