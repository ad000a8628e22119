"""Which sizes a check tries: every declared bucket, and sizes around each of its edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from conformance.capabilities import Claim, Support
from conformance.catalogue import Case
from conformance.spec import AdapterSpec, sizes_label
from runner import EXACT, BucketTable, PerRowLengths

Sizes = dict[str, int]
ROWS = "batch"


def time_axis(spec: AdapterSpec) -> str | None:
    """The axis that the outputs' lengths depend on."""
    return next((output.of for output in spec.adapter.outputs if output.length is not None), None)


def label(spec: AdapterSpec, sizes: Mapping[str, int]) -> str:
    return sizes_label(sizes, spec.adapter.axes)


def exact(spec: AdapterSpec) -> Iterator[Case]:
    """Each declared bucket, filled exactly."""
    for bucket in spec.buckets:
        yield Case(label(spec, bucket), {"sizes": dict(bucket)})


def exact_with_rows(spec: AdapterSpec) -> Iterator[Case]:
    """Each bucket of more than one row, filled exactly."""
    for bucket in spec.buckets:
        if bucket.get(ROWS, 1) > 1:
            yield Case(label(spec, bucket), {"sizes": dict(bucket)})


def _around_edges(spec: AdapterSpec, axis: str) -> Iterator[Case]:
    """Sizes along `axis`, if it is one, just under and just over each bucket's edge, the other axes filled exactly."""
    if axis not in spec.adapter.axes:
        return
    table = BucketTable(spec.buckets, spec.adapter.axes)
    tried: set[str] = set()
    for bucket in spec.buckets:
        edge = bucket[axis]
        below = max((other[axis] for other in spec.buckets if other[axis] < edge), default=0)
        for size in sorted({1, below + 1, (below + 1 + edge) // 2, edge - 1}):
            sizes = {**bucket, axis: size}
            served = table.lookup(sizes) if size > 0 else None
            if served is None or dict(served) == sizes:
                continue
            name = f"{label(spec, sizes)}-in-{label(spec, served)}"
            if name not in tried:
                tried.add(name)
                yield Case(name, {"sizes": sizes})


def around_frames(spec: AdapterSpec) -> Iterator[Case]:
    """Padded sizes along every axis but the batch, and one along all axes at once for each bucket of several rows."""
    for axis in spec.adapter.axes:
        if axis != ROWS:
            yield from _around_edges(spec, axis)
    for case in one_short(spec):
        sizes, bucket = case.arguments["sizes"], case.arguments["bucket"]
        if sizes.get(ROWS) != bucket.get(ROWS) and any(sizes[axis] != bucket[axis] for axis in sizes if axis != ROWS):
            yield Case(case.id, {"sizes": sizes})


def one_short(spec: AdapterSpec) -> Iterator[Case]:
    """For each bucket, the call that is one short of it along every padded axis, where that bucket serves it."""
    table = BucketTable(spec.buckets, spec.adapter.axes)
    for bucket in spec.buckets:
        sizes = {
            axis: size - 1 if size > 1 and spec.adapter.axes[axis] is not EXACT else size
            for axis, size in bucket.items()
        }
        served = table.lookup(sizes)
        if sizes != dict(bucket) and served is not None and dict(served) == dict(bucket):
            name = f"{label(spec, sizes)}-in-{label(spec, bucket)}"
            yield Case(name, {"sizes": sizes, "bucket": dict(bucket)})


def exact_and_padded(spec: AdapterSpec) -> Iterator[Case]:
    """Each declared bucket filled exactly, and padded lengths around each of its edges."""
    yield from exact(spec)
    yield from around_frames(spec)


def around_rows(spec: AdapterSpec) -> Iterator[Case]:
    """More than one row: each bucket of several rows filled, and batches around its edge."""
    yield from exact_with_rows(spec)
    for case in _around_edges(spec, ROWS) if ROWS in spec.adapter.axes else ():
        if case.arguments["sizes"][ROWS] > 1:
            yield case


def outside(spec: AdapterSpec) -> Iterator[Case]:
    """Sizes that no bucket serves: one past the largest along each axis, and between buckets of an exact axis."""
    table = BucketTable(spec.buckets, spec.adapter.axes)
    for axis, mode in spec.adapter.axes.items():
        largest = max(spec.buckets, key=lambda bucket: bucket[axis])
        wanted = {largest[axis] + 1, largest[axis] * 2}
        if mode is EXACT:
            wanted |= {max(1, bucket[axis] - 1) for bucket in spec.buckets}
        limit = spec.limits.get(axis)
        for size in sorted(wanted):
            sizes = {**largest, axis: size}
            if table.lookup(sizes) is None and (limit is None or size <= limit):
                yield Case(label(spec, sizes), {"sizes": sizes})


def no_rows(spec: AdapterSpec) -> str | None:
    """Why a check of several rows does not apply, if it does not."""
    if ROWS not in spec.adapter.axes:
        return f"{spec.name} has no {ROWS!r} axis"
    if all(bucket[ROWS] == 1 for bucket in spec.buckets):
        return f"{spec.name} declares no bucket of more than one row"
    return None


def no_padded_frames(spec: AdapterSpec) -> str | None:
    """Why a check of padded lengths does not apply, if it does not."""
    if not any(True for _ in around_frames(spec)):
        return f"{spec.name} pads no axis but the batch: every other axis is exact"
    return None


def no_variable_length(spec: AdapterSpec) -> str | None:
    """Why a check of rows of unequal length does not apply, if it does not."""
    return no_rows(spec) or unclaimed(spec, "variable_length")


def unclaimed(spec: AdapterSpec, capability: str) -> str | None:
    """Why a check of a capability does not apply: it is not claimed, with the spec's own reason."""
    claim: Claim = getattr(spec.capabilities, capability)
    return None if claim.supported else f"{capability} is {claim.support.value}: {claim.reason}"


def planned(spec: AdapterSpec, capability: str) -> str | None:
    """Why neither a check of a capability nor its twin applies: it is planned, with the spec's issue."""
    claim: Claim = getattr(spec.capabilities, capability)
    return f"{capability} is planned: {claim.reason}" if claim.support is Support.NOT_IMPLEMENTED else None


def trims_rows(spec: AdapterSpec) -> bool:
    """Whether an output comes as rows of their own lengths, which the caller gives."""
    given = {declared.name for declared in spec.adapter.inputs}
    contracts = [output.length for output in spec.adapter.outputs]
    return any(isinstance(contract, PerRowLengths) and contract.lengths in given for contract in contracts)
