"""Many sizes within one case of a check, each compared with eager, and what a small call is in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from conformance.cases import ROWS, Sizes, label, time_axis
from conformance.catalogue import CheckFailed
from conformance.compare import Advice, require_equal
from conformance.evidence import call, graphed_call, located
from conformance.spec import AdapterSpec
from conformance.subject import Inputs, Outputs, Subject
from runner import PADDED

EVERY = 64  # sizes up to here are all tried, and larger ones around each bucket's edge


def sizes_along(spec: AdapterSpec, axis: str) -> list[int]:
    """Every size of `axis` up to the largest bucket's; past :data:`EVERY`, those around each bucket's edge."""
    edges = {bucket[axis] for bucket in spec.buckets}
    near = {edge + step for edge in edges for step in (-1, 0, 1)}
    return [size for size in range(1, max(edges) + 1) if size <= EVERY or size in near]


def smallest(spec: AdapterSpec) -> Sizes:
    """The least size of each axis among the buckets."""
    return {axis: min(bucket[axis] for bucket in spec.buckets) for axis in spec.adapter.axes}


def largest(spec: AdapterSpec) -> Sizes:
    """The bucket of most work."""
    return max((dict(bucket) for bucket in spec.buckets), key=lambda sizes: [prod(sizes.values()), *sizes.values()])


def padded(spec: AdapterSpec, bucket: Mapping[str, int]) -> Sizes:
    """`bucket` with one frame less than it holds, where its frames can be padded, and otherwise one row less."""
    for axis in (time_axis(spec), ROWS):
        if axis is not None and axis in spec.adapter.axes and spec.adapter.axes[axis] is PADDED and bucket[axis] > 1:
            return {**bucket, axis: bucket[axis] - 1}
    return dict(bucket)


def full_and_padded(spec: AdapterSpec) -> list[Sizes]:
    """Each bucket filled, and each with one frame less; no size twice."""
    wanted = [size for bucket in spec.buckets for size in (dict(bucket), padded(spec, bucket))]
    return [size for position, size in enumerate(wanted) if size not in wanted[:position]]


def require_parity(
    subject: Subject, code: str, sizes: Iterable[Sizes], advice: Advice, salt: str = "", *, context: bool = False
) -> Mapping[str, object]:
    """Call at each of the sizes, and require what eager gives; a replay too, where a bucket holds them.

    A size that eager itself cannot serve is left out, and counted. `context` says that the calls before are what is
    tested: where a runner that nobody has called is wrong as well, the failure says so instead of blaming them.
    `by_size` holds the bucket that served each size, or "" for none, and the greatest error there.
    """
    calls = replays = refused = 0
    by_size: dict[str, tuple[str, float]] = {}
    for number, size in enumerate(sizes):
        inputs = subject.draw(size, f"{code} {salt} {number}")
        try:
            expected = subject.eager(inputs)
        except Exception:
            refused += 1
            continue
        name, bucket = label(subject.spec, size), subject.bucket_for(size)
        with located(name):
            found, seen = (call if bucket is None else graphed_call)(subject, code, inputs)
            padded_frames = subject.padded_frames(size)
            try:
                agreement = require_equal(code, subject, found, expected, advice, padded_frames=padded_frames)
            except CheckFailed as failed:
                if context and _wrong_at_first(subject, code, inputs, expected):
                    raise _innocent(failed) from failed
                raise
        _, known = by_size.get(name, ("", 0.0))
        served = "" if bucket is None else label(subject.spec, bucket)
        by_size[name] = (served, max(known, agreement.max_error))
        calls, replays = calls + 1, replays + seen.replays
    worst = max((error for _, error in by_size.values()), default=0.0)
    return {"calls": calls, "replays": replays, "eager_refused": refused, "max_error": worst, "by_size": by_size}


def _wrong_at_first(subject: Subject, code: str, inputs: Inputs, expected: Outputs) -> bool:
    """Whether the same call is not eager's as the first one of a runner of its own either."""
    with subject.sibling() as other:
        try:
            require_equal(code, other, other(inputs), expected, Advice("", ""))
        except CheckFailed:
            return True
    return False


def _innocent(failed: CheckFailed) -> CheckFailed:
    return CheckFailed(
        failed.code,
        failed.found,
        likely="what came before is not to blame: the first call of a fresh runner is as wrong at this size",
        cure="look at CG201 and CG203, which say why, and mend that first",
        evidence=failed.evidence,
    )
