"""CG9: what the adapter gave once, kept beside it, and gives still."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from conformance import cases
from conformance.cases import Sizes
from conformance.catalogue import Case, CheckFailed, Evidence, Level, check
from conformance.evidence import graphed_call, raw_call
from conformance.observe import Seen
from conformance.snapshots.files import SnapshotError, decode, fitting_record
from conformance.snapshots.judgement import Judgement, judge, unheard
from conformance.snapshots.record import spread
from conformance.snapshots.store import Unused
from conformance.snapshots.structure import changed_lines, describe, to_amber
from conformance.snapshots.terms import SEED, why_no_output, why_no_structure
from conformance.spec import AdapterSpec
from conformance.subject import Subject

MAX_BUCKETS = 6
"""Of which outputs are kept, filled exactly and one short: twelve files an adapter at most."""
BUCKETS = "buckets"
UNUSED = "unused"
"""The case of what is kept and no other case stands for."""


def _calls(spec: AdapterSpec) -> Iterator[Case]:
    """The bucket table; then each bucket filled, one short of it, sizes that no bucket holds, and what is unused."""
    yield Case(BUCKETS, {"name": BUCKETS, "sizes": {}})
    for family in (cases.exact, cases.one_short, cases.outside):
        for case in family(spec):
            yield Case(case.id, {"name": case.id, "sizes": case.arguments["sizes"]})
    yield Case(UNUSED, {"name": UNUSED, "sizes": {}})


def _heard(spec: AdapterSpec) -> Iterator[Case]:
    """Some buckets filled exactly, for each of them the call that is one short of it, and what is unused."""
    kept = [dict(spec.buckets[index]) for index in spread(len(spec.buckets), MAX_BUCKETS)]
    for case in (*cases.exact(spec), *cases.one_short(spec)):
        if case.arguments.get("bucket", case.arguments["sizes"]) in kept:
            yield Case(case.id, {"name": case.id, "sizes": case.arguments["sizes"]})
    yield Case(UNUSED, {"name": UNUSED, "sizes": {}})


@check(
    "CG902",
    "structure",
    "buckets, the path of each call, and the structure, dtypes and shapes of its result are those of the snapshot",
    cases=_calls,
    level=Level.EXTENDED,
    not_applicable=why_no_structure,
)
def structure(subject: Subject, name: str, sizes: Sizes) -> Evidence:
    """Contract: the buckets and axes are those of the snapshot; and so, for each size, are the path that a call takes
    (which bucket's graph, or eager and why), the structure of its result, its dtypes and its shapes.

    Why it matters: all other checks hold a subject against itself. One that lost a bucket, or gives other lengths on
    both paths, is consistent, and its users hear it. https://github.com/sgl-project/sglang-omni/pull/886

    How it is checked: text in `snapshots/structure.ambr` beside the adapter, equal on every device. A call's replay is
    told by its graph: the one that replays when its bucket is filled exactly. `--snapshot-update` writes what differs,
    and deletes what no case stands for: the case `unused` fails while there is any.

    If it fails: where the change is meant, run again with `--snapshot-update` and look at what it changes; where it is
    not, the lines that differ say what was lost.
    """
    if name == UNUSED:
        return _none_unused("CG902", subject.snapshots.unused_structures(_ids(_calls(subject.spec))))
    found = _table(subject.spec) if name == BUCKETS else _described(subject, sizes)
    kept = subject.snapshots.structure(name, found)
    text = to_amber(found)
    try:
        snapshot = kept.require(str)
    except SnapshotError as error:
        raise _unreadable("CG902", error) from error
    if text != snapshot:
        lines = changed_lines(text, snapshot)
        raise CheckFailed(
            "CG902",
            f"{name} differs from its snapshot in {len(lines)} lines, - snapshot, + call",
            likely="a bucket was lost or changed, a lookup finds another one, or the module gives another shape",
            cure="mend what changed; where it is meant, `--snapshot-update`, and look at the change",
            evidence={"table": lines},
        )
    return {"file": kept.path.name, "written": kept.written}


def _table(spec: AdapterSpec) -> Mapping[str, Any]:
    return {
        "axes": {axis: mode.value for axis, mode in spec.adapter.axes.items()},
        "buckets": [cases.label(spec, bucket) for bucket in spec.buckets],
    }


def _described(subject: Subject, sizes: Sizes) -> Mapping[str, Any]:
    inputs = subject.draw(sizes, "snapshot", SEED)
    before = _fallbacks(subject)
    result, seen = raw_call(subject, "CG902", inputs)
    reasons = sorted((_fallbacks(subject) - before).elements())
    return {"sizes": dict(sizes), "path": _path(subject, sizes, seen, reasons), "result": describe(result)}


def _fallbacks(subject: Subject) -> Counter[str]:
    return Counter((subject.stats() or {}).get("fallbacks") or {})


def _path(subject: Subject, sizes: Sizes, seen: Seen, reasons: list[str]) -> str:
    if not seen.replays:
        return f"eager: {', '.join(reasons)}" if reasons else "eager"
    bucket = subject.bucket_for(sizes)
    if bucket is None:
        return "a replay, where no bucket holds the call"
    _, filled = raw_call(subject, "CG902", subject.draw(dict(bucket), "snapshot", SEED))
    name = cases.label(subject.spec, bucket)
    return f"replay of {name}" if filled.replayed == seen.replayed else f"replay of another graph than {name}'s"


@check(
    "CG903",
    "output",
    "what is heard is what the snapshot holds, within its limits",
    cases=_heard,
    level=Level.EXTENDED,
    not_applicable=why_no_output,
)
def output(subject: Subject, name: str, sizes: Sizes) -> Evidence:
    """Contract: a graphed call gives the dtype, shapes and lengths of the snapshot exactly, and its signal within the
    limits that the snapshot records: largest error 1e-4 of the peak, energy of the error 1e-4, log-mel distance
    0.01 dB.

    Why it matters: parity with eager says nothing of a module that drifted on both paths: another torch, another
    kernel, a gain or a sample changed in the model's own code. https://github.com/vllm-project/vllm-omni/issues/4309

    How it is checked: one file a case in `snapshots/DEVICE-CLASS/` beside the adapter, of the tiny weights and inputs
    of seed 0: head, tail, a seeded sample, and log-mel bands of every row. A CPU's kernels vary by 4e-6. A snapshot of
    another device class is held to the loose limits that it records too, 1e-3 and 0.1 dB, and the evidence says so.
    NaN and silence never match. A file that no case stands for fails the case `unused`.

    If it fails: the table says which metric is over its limit. Where the change is meant, listen, then run again with
    `--snapshot-update`, which writes only what is over its limits.
    """
    if name == UNUSED:
        return _none_unused("CG903", subject.snapshots.unused_outputs(_ids(_heard(subject.spec))))
    inputs = subject.draw(sizes, "snapshot")
    outputs, _ = graphed_call(subject, "CG903", inputs)
    found = fitting_record(subject, name, inputs, outputs)
    lost = unheard(found)
    if lost:
        raise CheckFailed(
            "CG903",
            lost[0],
            likely="the module gives NaN or silence on both paths, which parity with eager cannot tell from sound",
            cure="mend the module; neither is ever kept as a snapshot",
            evidence={"table": lost},
        )
    kept = subject.snapshots.output(name, found)
    try:
        judgement = judge(found, decode(kept.require(bytes), kept.path))
    except SnapshotError as error:
        raise _unreadable("CG903", error) from error
    if not judgement.matches:
        raise _drifted(judgement)
    return {"file": f"{kept.path.parent.name}/{kept.path.name}", "written": kept.written, **judgement.evidence()}


def _ids(listed: Iterable[Case]) -> frozenset[str]:
    return frozenset(case.id for case in listed if case.id != UNUSED)


def _none_unused(code: str, unused: Unused) -> Evidence:
    if unused.names and not unused.deleted:
        count = f"{len(unused.names)} snapshots stand" if len(unused.names) > 1 else "a snapshot stands"
        raise CheckFailed(
            code,
            f"{count} for no case any more: {', '.join(unused.names)}",
            likely="a bucket was lost, or the cases of the adapter are others now",
            cure="bring the bucket back; where it is meant, `--snapshot-update` deletes them",
            evidence={"unused": list(unused.names)},
        )
    return {"deleted": list(unused.names)}


def _drifted(judgement: Judgement) -> CheckFailed:
    over = next((one for one in judgement.measures if not one.holds), None)
    told = judgement.problems[0] if judgement.problems else ""
    if over is not None and not told:
        told = f"{over.metric} of row {over.row} of {over.output!r} is {over.found:.2g}; at most {over.limit:.2g}"
    weights = "the weights differ: their initialisation, or the module's construction, changed"
    drift = "the module computes something else than it did, on both paths: its code, torch, or a kernel changed"
    return CheckFailed(
        "CG903",
        f"{told} ({judgement.tier.value} limits, against {judgement.against})",
        likely=weights if judgement.other_weights else drift,
        cure="mend what changed; where it is meant, listen, then `--snapshot-update`",
        evidence={**judgement.evidence(), "table": judgement.table()},
    )


def _unreadable(code: str, error: SnapshotError) -> CheckFailed:
    return CheckFailed(
        code,
        str(error),
        likely="a new case, a file that was not committed, or one that was damaged or put there by something else",
        cure="run again with `--snapshot-update`, look at what it writes, and commit it",
    )
