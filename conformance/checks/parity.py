"""CG2: a replay gives what eager gives, sample for sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conformance import cases
from conformance.cases import Sizes
from conformance.catalogue import Case, Evidence, check
from conformance.compare import Advice, require_equal
from conformance.evidence import call, graphed_call
from conformance.spec import AdapterSpec
from conformance.subject import Subject


@check(
    "CG201", "exact-bucket", "a replay of an exactly filled bucket equals eager, sample for sample", cases=cases.exact
)
def exact_bucket(subject: Subject, sizes: Sizes) -> Evidence:
    """Contract: a call whose sizes are a bucket's is served by a replay, and its result is eager's.

    Why it matters: an exact hit has no padding to blame, so a difference means that the replay did not see this call's
    input, or saw it partly. https://github.com/vllm-project/vllm-omni/issues/4571

    How it is checked: two calls with different inputs at each bucket, each compared with the module run eagerly on the
    same input; the replay must be observed at `torch.cuda.CUDAGraph`.

    If it fails: copy every input into its static buffer before each replay, all of it, and read the outputs after.
    """
    advice = Advice(
        "the replay read an input that was not, or not wholly, copied into its static buffer  (class E, N)",
        "copy every input over the whole of its static buffer before each replay",
    )
    return _parity(subject, "CG201", sizes, advice, calls=2)


@check(
    "CG202",
    "batch",
    "every row of a batch is eager's row, for every batch size up to the largest bucket's",
    cases=cases.around_rows,
    not_applicable=cases.no_rows,
)
def batch(subject: Subject, sizes: Sizes) -> Evidence:
    """Contract: a batch of several rows is served by a replay; each row is eager's row, in eager's order and number.

    Why it matters: wrappers written for one row return rows of the padding, or go wrong only above some batch size.
    https://github.com/vllm-project/vllm-omni/pull/4606

    How it is checked: every bucket of several rows filled exactly, and batches just under and over each edge of the
    batch axis, with the other axes filled exactly; rows are counted, then compared one by one.

    If it fails: pad the batch axis of every input, slice the batch axis of every output, and keep rows apart in the
    module (no reduction over the batch).
    """
    advice = Advice(
        "a row of the batch was computed from another row, or from the rows that only pad the batch  (class C)",
        "keep rows apart: no reduction or normalisation over the batch, and every padded row reset before each replay",
    )
    return _parity(subject, "CG202", sizes, advice)


@check(
    "CG203",
    "padded-bucket",
    "a padded replay equals eager, sample for sample",
    cases=cases.around_frames,
    not_applicable=cases.no_padded_frames,
)
def padded_bucket(subject: Subject, sizes: Sizes) -> Evidence:
    """Contract: a call shorter than its bucket is served by a replay, and its result is eager's in length and samples.

    Why it matters: a trim by the nominal length leaves surplus samples, 46 ms a ramp chunk in one public case, and a
    module that attends or normalises over time lets padding reach real samples.
    https://github.com/vllm-project/vllm-omni/issues/4466

    How it is checked: lengths of 1 and just over and under each bucket's edge, and one that leaves rows and frames of
    the bucket unfilled at once. A full call of the same bucket goes
    first, so that the pads hold a longer call's frames unless the subject resets them.

    If it fails: declare the length contract that matches the module, reset the pads before each replay, and declare the
    axis exact when the module is not causal.
    """
    bucket = subject.bucket_for(sizes)
    if bucket is not None:
        call(subject, "CG203", subject.draw(bucket, "CG203 longer call before"))
    advice = Advice(
        "padded frames reach real ones: something normalises or attends over time, or pads kept an earlier call's "
        "frames  (class B)",
        "reset the pads before each replay; declare the axis exact, or mask the padding before it is normalised",
    )
    return _parity(subject, "CG203", sizes, advice)


def _staircases(spec: AdapterSpec) -> Sequence[Case]:
    """Rows of unequal length in each bucket of several rows: longest first, and longest last."""
    axis = cases.time_axis(spec)
    found = []
    for case in cases.exact_with_rows(spec) if axis else ():
        sizes: Mapping[str, int] = case.arguments["sizes"]
        rows, frames = sizes[cases.ROWS], sizes[axis or ""]
        falling = [max(1, frames - (frames * row) // rows) for row in range(rows)]
        for order, lengths in (("falling", falling), ("rising", falling[::-1])):
            found.append(Case(f"{case.id}-{order}", {"sizes": sizes, "lengths": lengths}))
    return found


@check(
    "CG204",
    "variable-length-batch",
    "each row of a batch of unequal lengths is what that row alone gives",
    cases=_staircases,
    not_applicable=cases.no_variable_length,
)
def variable_length_batch(subject: Subject, sizes: Sizes, lengths: Sequence[int]) -> Evidence:
    """Contract: in a batch whose rows end at different frames, each row is what the same request gives when run alone.

    Why it matters: a request's audio must not depend on whom it was batched with; rows trimmed to the longest row's
    length end in noise. https://github.com/vllm-project/vllm-omni/issues/2115

    How it is checked: each bucket of several rows with lengths from full to a fraction, in both orders. Every row is
    compared with the module run eagerly on that row alone, unpadded. Where the adapter trims rows, lengths must agree;
    where it returns one tensor, the row's part of it must.

    If it fails: give each row its own length to the trim, and keep rows from seeing one another's padding.
    """
    inputs = subject.shorten_rows(subject.draw(sizes, "CG204"), lengths)
    found, seen = graphed_call(subject, "CG204", inputs)
    advice = Advice(
        "the row heard its own padding or another row: lengths were not applied row by row  (class A, C)",
        "trim every row by its own length, and mask or reset what lies behind each row's end",
    )
    worst, padded = 0.0, subject.padded_frames(sizes)
    for row, length in enumerate(lengths):
        alone = subject.eager_row(inputs, row, length)
        mine = {name: [rows[row]] for name, rows in found.items() if row < len(rows)}
        one_tensor = {name for name, trimmed in subject.rows_are_trimmed().items() if not trimmed}
        for name in subject.lasting_outputs():
            agreement = require_equal(
                "CG204",
                subject,
                {name: mine.get(name, [])},
                {name: alone[name]},
                advice,
                prefix=name in one_tensor,
                padded_frames=None if padded is None else padded + max(lengths) - length,
            )
            worst = max(worst, agreement.max_error)
    return {"lengths": list(lengths), "replays": seen.replays, "max_error": worst}


def _parity(subject: Subject, code: str, sizes: Sizes, advice: Advice, calls: int = 1) -> Evidence:
    evidence: Evidence = {}
    filled = dict(subject.bucket_for(sizes) or {}) == sizes
    for number in range(calls):
        inputs = subject.draw(sizes, f"{code} call {number}")
        found, seen = graphed_call(subject, code, inputs)
        expected, padded = subject.eager(inputs), subject.padded_frames(sizes)
        agreement = require_equal(code, subject, found, expected, advice, same_shape=filled, padded_frames=padded)
        evidence = {"calls": calls, "replays": seen.replays, **agreement.evidence()}
    return evidence
