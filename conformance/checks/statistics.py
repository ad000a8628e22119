"""CG7: what a subject counts is what happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

import torch

from conformance import cases
from conformance.cases import Sizes
from conformance.catalogue import Case, CheckFailed, Evidence, check
from conformance.evidence import call
from conformance.instruments.graphlog import GraphLog, log_graphs
from conformance.instruments.outer import outer_capture
from conformance.spec import AdapterSpec
from conformance.subject import Inputs, Subject
from runner import GraphConfig

_OTHER_DTYPE = {torch.long: torch.int32, torch.int32: torch.long, torch.float32: torch.float64}


def _scripts(_: AdapterSpec) -> Iterator[Case]:
    """One script of calls a case: what it makes happen, and so what must be counted."""
    for script in ("hits", "outside", "outer-capture", "ineligible", "disabled", "not-captured", "closed", "mixed"):
        yield Case(script, {"script": script})


@check("CG701", "statistics", "the statistics say what was observed, reason by reason", cases=_scripts)
def statistics(subject: Subject, script: str) -> Evidence:
    """Contract: calls are hits, fallbacks and errors, and nothing else; hits are the replays that were observed, each
    under its bucket; every eager call has its one reason; padding and captured graphs are as observed.

    Why it matters: a dashboard of hit rates is how operators see a silent fallback, and a counter that lies hides it.
    https://github.com/FastCrest/tether/issues/283

    How it is checked: a second runner serves a script of calls whose outcome is known: hits of every bucket, filled and
    padded, calls that no bucket holds, inside an outer capture, of another dtype, on a runner that is disabled, not
    warmed up or closed, and all of them in turn. Its own counts are held against what was observed. A subject that
    keeps no statistics passes, and the evidence says so.

    If it fails: count one outcome on every path, where it happens, and not where it is planned.
    """
    if subject.stats() is None:
        return {"statistics": "none are kept"}
    disabled = GraphConfig(enabled=False) if script == "disabled" else None
    with subject.sibling(disabled, warm=False) as other, log_graphs(other) as log:
        if script not in ("disabled", "not-captured"):
            other.warmup()
        captured = log.alive() if subject.spec.limited else len(log.sizes)  # under a limit others are tried and let go
        expected = _Expected(subject, captured)
        if subject.spec.lazy and script not in ("disabled", "not-captured"):
            for bucket in subject.spec.buckets:
                expected.hit(bucket)  # the first calls
        _SCRIPTS[script](other, expected)
        counted = other.stats() or {}
    for name, found, right in expected.against(counted, log):
        if found != right:
            raise CheckFailed(
                "CG701",
                f"after {script}: the statistics say {name} = {found}, and it was {right}",
                likely="a path is not counted, counted twice, or under another name  (class T)",
                cure="count one outcome on every path, where it happens",
                evidence={"statistics": dict(counted), "expected": right},
            )
    return {"calls": expected.calls, "hits": sum(expected.hits.values()), "fallbacks": dict(expected.fallbacks)}


class _Expected:
    """What a script made happen."""

    def __init__(self, subject: Subject, captured: int) -> None:
        self.captured = captured
        self.table = subject.table
        self.spec = subject.spec
        self.calls = 0
        self.hits: Counter[str] = Counter()
        self.fallbacks: Counter[str] = Counter()
        self.computed = self.padded = 0

    def hit(self, sizes: Mapping[str, int]) -> None:
        bucket = self.table.lookup(sizes)
        if bucket is None:
            raise LookupError(f"the script calls {dict(sizes)} as a hit, and no bucket holds it")
        self.calls += 1
        self.hits[cases.label(self.spec, bucket)] += 1
        self.computed += bucket.work
        self.padded += bucket.work - prod(sizes[axis] for axis in bucket)

    def fallback(self, reason: str) -> None:
        self.calls += 1
        self.fallbacks[reason] += 1

    def against(self, counted: Mapping[str, Any], log: GraphLog) -> Iterator[tuple[str, Any, Any]]:
        """Each figure that a subject keeps: its name, what it says, and what it was."""
        replayed = Counter(cases.label(self.spec, sizes) for sizes in log.replayed() if sizes)
        yield "calls", counted.get("calls"), self.calls
        yield "hits", counted.get("hits"), len(log.replays)
        yield "hits, all told", counted.get("hits"), sum(self.hits.values())
        yield "hits_per_bucket", dict(counted.get("hits_per_bucket", {})), dict(self.hits)
        yield "hits_per_bucket (as replayed)", dict(counted.get("hits_per_bucket", {})), dict(replayed)
        yield "fallbacks", _without_details(counted.get("fallbacks", {})), dict(self.fallbacks)
        yield "graphs_captured", counted.get("graphs_captured"), self.captured
        share = self.padded / max(self.computed, 1)
        yield "padded_share", round(float(counted.get("padded_share", -1.0)), 9), round(share, 9)
        total = counted.get("hits", 0) + sum(counted.get("fallbacks", {}).values()) + counted.get("replay_errors", 0)
        yield "calls (hits + fallbacks + errors)", counted.get("calls"), total


def _without_details(fallbacks: Mapping[str, int]) -> dict[str, int]:
    """`ineligible:dtype` as `ineligible`: the word after the colon is the adapter's own."""
    counts: Counter[str] = Counter()
    for reason, count in fallbacks.items():
        counts[reason.partition(":")[0]] += count
    return dict(counts)


def _hits(other: Subject, expected: _Expected) -> None:
    for family in (cases.exact, cases.around_frames, cases.around_rows):
        for case in family(other.spec):
            _call(other, case.arguments["sizes"])
            expected.hit(case.arguments["sizes"])


def _outside(other: Subject, expected: _Expected) -> None:
    for case in cases.outside(other.spec):
        _call(other, case.arguments["sizes"])
        expected.fallback("memory_limit" if other.is_left_out(case.arguments["sizes"]) else "no_bucket")


def _outer_capture(other: Subject, expected: _Expected) -> None:
    inputs = other.draw(_smallest(other), "CG701")
    with outer_capture(other, "CG701", inputs):
        expected.fallback("outer_capture")
    call(other, "CG701", inputs)
    expected.hit(_smallest(other))


def _ineligible(other: Subject, expected: _Expected) -> None:
    """The first input in another dtype; where eager refuses it, so may the call, and it counts all the same."""
    inputs = other.draw(_smallest(other), "CG701")
    first = next((s for s in other.adapter.device_inputs() if s.dtype in _OTHER_DTYPE), None)
    if first is None:
        return
    changed: Inputs = {**inputs, first.name: inputs[first.name].to(_OTHER_DTYPE[first.dtype])}
    try:
        other.raw_eager(changed)
    except Exception:
        return
    call(other, "CG701", changed)
    expected.fallback("ineligible")


def _always(reason: str) -> Callable[[Subject, _Expected], None]:
    def run(other: Subject, expected: _Expected) -> None:
        if reason == "closed":
            other.close_runner()
        for case in cases.exact(other.spec):
            _call(other, case.arguments["sizes"])
            expected.fallback(reason)

    return run


def _mixed(other: Subject, expected: _Expected) -> None:
    for script in (_hits, _outside, _outer_capture, _ineligible, _hits, _always("closed")):
        script(other, expected)


def _call(other: Subject, sizes: Sizes) -> None:
    call(other, "CG701", other.draw(sizes, "CG701"))


def _smallest(other: Subject) -> Sizes:
    return dict(other.table.buckets[0])


_SCRIPTS: Mapping[str, Callable[[Subject, _Expected], None]] = {
    "hits": _hits,
    "outside": _outside,
    "outer-capture": _outer_capture,
    "ineligible": _ineligible,
    "disabled": _always("disabled"),
    "not-captured": _always("not_captured"),
    "closed": _always("closed"),
    "mixed": _mixed,
}
