"""CG2: what a stream of calls gives: chunks that join, the empty ones too, and random numbers that go on."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from conformance import cases
from conformance.cases import ROWS
from conformance.catalogue import Case, CheckFailed, Evidence, check
from conformance.compare import Advice, require_equal
from conformance.evidence import call, graphed_call, located
from conformance.instruments.sweeps import largest, smallest
from conformance.spec import AdapterSpec
from conformance.subject import Inputs, Outputs, Subject
from runner import PerRowLengths


def _chunks(spec: AdapterSpec) -> Iterator[Case]:
    """Chunks of one frame, of a few, and as long as the largest bucket holds beside the left context."""
    time = cases.time_axis(spec)
    room = max(bucket[time] for bucket in spec.buckets) - spec.left_context if time else 0
    for size in sorted({1, 3, max(1, room // 2), room}):
        if 0 < size <= room:
            yield Case(f"chunks-of-{size}", {"chunk": size})


def _no_streaming(spec: AdapterSpec) -> str | None:
    if cases.time_axis(spec) is None:
        return f"{spec.name} has no output whose length follows an axis"
    return cases.unclaimed(spec, "streaming")


@check(
    "CG214",
    "streaming",
    "chunks with left context, joined, are what one call gives",
    cases=_chunks,
    not_applicable=_no_streaming,
)
def streaming(subject: Subject, chunk: int) -> Evidence:
    """Contract: a stream decoded chunk by chunk, each with its left context, joins to what the whole gives in one call.

    Why it matters: a surplus or a gap of some samples at each chunk's end is heard as a click, chunk after chunk.
    https://github.com/vllm-project/vllm-omni/issues/4466

    How it is checked: one row of twice the largest bucket's frames and three, decoded eagerly at once and then through
    the subject in chunks of several sizes; from each result the samples past the joined end are taken. A subject that
    keeps state and declares no left context goes on from chunk to chunk.

    If it fails: return as many samples as eager for the chunk's own frames, and declare the left context that the
    module's receptive field needs.
    """
    time, hop, context = subject.time_axis or "", subject.spec.hop, subject.spec.left_context
    frames = 2 * max(bucket[time] for bucket in subject.spec.buckets) + 3
    row = smallest(subject.spec)
    inputs = subject.draw({**row, time: frames}, "CG214")
    whole = subject.eager(inputs)
    timed = {spec.name for spec in subject.adapter.outputs if spec.length is not None and spec.of == time}
    joined: Outputs = {name: [rows[0][..., :0]] for name, rows in whole.items() if name in timed}
    replays = calls = 0
    proceed = subject.spec.capabilities.state.supported and not context
    subject.fresh_start()
    for start in range(0, frames, chunk):
        first, stop = max(0, start - context), min(frames, start + chunk)
        part = _window(subject, inputs, first, stop)
        with located(f"frames {first} to {stop}"):
            served = subject.bucket_for({**row, time: stop - first}) is not None
            found, seen = (graphed_call if served else call)(subject, "CG214", part, proceed=proceed)
        calls, replays = calls + 1, replays + seen.replays
        for name, so_far in joined.items():
            done = so_far[0].shape[-1]
            joined[name] = [torch.cat([so_far[0], found[name][0][..., max(0, done - first * hop) :]], dim=-1)]
    advice = Advice(
        "a chunk is cut or padded otherwise than the whole, or needs more left context than was declared  (class A)",
        "trim each chunk by its own frames; set left_context to the module's receptive field",
    )
    agreement = require_equal("CG214", subject, joined, {name: whole[name][:1] for name in joined}, advice)
    return {"chunk": chunk, "calls": calls, "replays": replays, **agreement.evidence()}


def _window(subject: Subject, inputs: Inputs, first: int, stop: int) -> Inputs:
    """Frames `first` to `stop` of the first row, saying so where lengths are asked."""
    asked = {spec.length.lengths for spec in subject.adapter.outputs if isinstance(spec.length, PerRowLengths)}
    part: Inputs = {}
    for spec in subject.adapter.inputs:
        tensor = inputs[spec.name]
        if subject.time_axis in spec.axes:
            tensor = tensor.narrow(spec.axes.index(subject.time_axis), first, stop - first).contiguous()
        part[spec.name] = torch.full_like(tensor, stop - first) if spec.name in asked else tensor
    return part


def _one(_: AdapterSpec) -> Iterator[Case]:
    yield Case("")


def _planned(spec: AdapterSpec) -> str | None:
    return cases.planned(spec, "randomness")


@check(
    "CG215",
    "randomness",
    "replays draw as eager draws: anew each time, and again from the same seed",
    cases=_one,
    not_applicable=_planned,
)
def randomness(subject: Subject) -> Evidence:
    """Contract: a module that draws random numbers draws new ones at each replay, the same after the same seed, and
    those that eager draws; a module that draws none leaves the generators where they were.

    Why it matters: a generator frozen into the graph says the same noise for ever, or one that nobody seeds breaks the
    promise of a repeatable request. https://github.com/pytorch/pytorch/issues/84614

    How it is checked: two replays of one input, the same after `torch.manual_seed`, and eager after the same seed.
    Where randomness is not claimed: the states of the default generators, host and device, before and after calls.

    If it fails: draw from the default generator or register yours with the graph, at the caller's sizes; draw on the
    device, never on the host.
    """
    sizes = largest(subject.spec)
    inputs = subject.draw(sizes, "CG215")
    first, seen = graphed_call(subject, "CG215", inputs)
    if not subject.spec.capabilities.randomness.supported:
        return _draws_nothing(subject, inputs)
    second = subject.proceed(inputs)
    if all(torch.equal(a, b) for name in first for a, b in zip(first[name], second[name], strict=True)):
        raise _frozen("two replays of one input gave the same bits, though the module draws")
    advice = Advice(
        "the draws do not follow the seed: a generator of its own, or numbers drawn at capture or for the whole "
        "bucket  (class H)",
        "draw from the default generator, inside the captured call, at the caller's sizes",
    )
    again, _ = graphed_call(subject, "CG215", inputs)
    with located("replay after the same seed"):
        require_equal("CG215", subject, again, first, advice)
    with located("replay against eager after the same seed"):
        require_equal("CG215", subject, again, subject.eager(inputs), advice)
    return {"replays": seen.replays + 2}


def _draws_nothing(subject: Subject, inputs: Inputs) -> Evidence:
    for path, function in (("an eager call", subject.eager), ("a replay", subject.proceed)):
        before = torch.get_rng_state(), torch.cuda.get_rng_state(subject.device)
        function(inputs)
        after = torch.get_rng_state(), torch.cuda.get_rng_state(subject.device)
        for place, old, new in zip(("host", "device"), before, after, strict=True):
            if not torch.equal(old, new):
                raise _frozen(f"{path} advanced the {place}'s default generator, and randomness is not claimed")
    return {"generators_unchanged": True}


def _frozen(found: str) -> CheckFailed:
    return CheckFailed(
        "CG215",
        found,
        likely="random numbers are drawn where the caller does not expect them, or were frozen at capture  (class H)",
        cure="draw on the device from the default generator inside the captured call, and claim randomness=supported()",
    )


def _empty(spec: AdapterSpec) -> Iterator[Case]:
    for axis in spec.adapter.axes:
        if all(bucket[axis] for bucket in spec.buckets):  # a bucket of size 0 serves empty calls as any others
            yield Case(f"no-{axis}", {"axis": axis})
    if any(True for _ in cases.exact_with_rows(spec)) and cases.trims_rows(spec):
        yield Case("one-empty-row", {"axis": None})


@check("CG213", "zero-length", "an empty call is refused, or is what eager gives, and replays nothing", cases=_empty)
def zero_length(subject: Subject, axis: str | None) -> Evidence:
    """Contract: a call of no frames or of no rows raises where eager raises and equals eager where it does not; a row
    of no frames among others is empty. No graph replays for an empty call, and the next full call replays as before.

    Why it matters: nothing is copied in, so a replay returns the last caller's audio; and a runner that tries to
    capture the empty call, and gives up its graphs when that fails, is eager from one bad request on.
    https://github.com/vllm-project/vllm/pull/49302

    How it is checked: on a second runner, inputs cut to nothing along each axis between two full calls; and, where rows
    are trimmed, a batch with one empty row. Where the capability is not claimed, the call may also raise though eager
    does not.

    If it fails: send empty calls to eager before any lookup.
    """
    claimed = subject.spec.capabilities.zero_length.supported
    if axis is None:
        return _one_empty_row(subject, claimed)
    full = subject.draw(largest(subject.spec), "CG213")
    with subject.sibling() as other:
        with other.observe() as before:
            other(full)
        evidence = _empty_call(other, axis, full, claimed)
        with other.observe() as after:
            other(full)
    if before.replays and not after.replays:
        raise _stale(f"after a call of no {axis} a full call no longer replays")
    return evidence


def _empty_call(subject: Subject, axis: str, full: Inputs, claimed: bool) -> Evidence:
    inputs = {
        spec.name: full[spec.name].narrow(spec.axes.index(axis), 0, 0) if axis in spec.axes else full[spec.name]
        for spec in subject.adapter.inputs
    }
    if axis == subject.time_axis:
        inputs = subject.shorten_rows(inputs, [0] * (largest(subject.spec).get(ROWS, 1)))
    expected: Outputs | None = None
    try:
        expected = subject.eager(inputs)
    except Exception:
        expected = None
    with subject.observe() as seen:
        try:
            found = subject(inputs)
        except Exception as error:
            if expected is None or not claimed:
                return {"refused_with": type(error).__name__}
            raise _stale(f"a call of no {axis} raised {type(error).__name__} where eager succeeds") from error
    samples = sum(row.numel() for rows in found.values() for row in rows)
    if seen.replays:
        raise _stale(f"{seen.replays} replays were observed for a call of no {axis}; {samples} samples came back")
    if expected is None:
        if samples or claimed:
            raise _stale(f"a call of no {axis} returned {samples} samples where eager raises")
        return {"samples": samples}
    advice = Advice("an empty call is not the module's own  (class S)", "send empty calls to eager before any lookup")
    return require_equal("CG213", subject, found, expected, advice).evidence()


def _one_empty_row(subject: Subject, claimed: bool) -> Evidence:
    sizes = next(cases.exact_with_rows(subject.spec)).arguments["sizes"]
    time = sizes[subject.time_axis]
    lengths = [time if row != 1 else 0 for row in range(sizes[ROWS])]
    full = subject.draw(sizes, "CG213")
    subject(full)
    inputs = subject.shorten_rows(full, lengths)
    try:
        found = call(subject, "CG213", inputs)[0]
    except CheckFailed:
        if claimed:
            raise
        return {"refused": True}
    advice = Advice("an empty row changed its neighbours  (class S)", "trim every row by its own length")
    for name, rows in found.items():
        for row, length in enumerate(lengths):
            if not length and rows[row].numel():
                raise _stale(f"the empty row {row} of {name!r} came back with {rows[row].numel()} samples")
            if length:
                expected = subject.eager_row(inputs, row, length)
                require_equal("CG213", subject, {name: [rows[row]]}, {name: expected[name]}, advice)
    return {"lengths": lengths}


def _stale(found: str) -> CheckFailed:
    return CheckFailed(
        "CG213",
        found,
        likely="an empty call was padded to a bucket and replayed, or its length was taken as missing  (class S)",
        cure="send empty calls to eager before any lookup, and treat a length of 0 as a length",
    )
