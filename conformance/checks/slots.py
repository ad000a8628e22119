"""CG3: state that is kept in slots, one a stream: who moves it on, and what a slot is after it was another stream's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from conformance import cases
from conformance.cases import ROWS, Sizes
from conformance.catalogue import Case, CheckFailed, Evidence, check
from conformance.compare import Advice, require_equal
from conformance.evidence import graphed_call, located
from conformance.instruments.sweeps import largest
from conformance.spec import AdapterSpec
from conformance.subject import Inputs, Outputs, Subject, snapshot
from runner import BucketTable

State = Mapping[str, torch.Tensor]


def _no_slots(spec: AdapterSpec) -> str | None:
    return None if spec.slots_input else f"{spec.name} keeps no state in slots that an input names"


def _filled_and_short_of_rows(spec: AdapterSpec) -> Iterator[Case]:
    """Each bucket filled, and each with rows left that only pad it."""
    yield from cases.exact(spec)
    table = BucketTable(spec.buckets, spec.adapter.axes)
    for bucket in spec.buckets:
        sizes = {**bucket, ROWS: bucket.get(ROWS, 1) - 1}
        if sizes[ROWS] and table.lookup(sizes) == table.lookup(bucket):
            yield Case(f"{cases.label(spec, sizes)}-in-{cases.label(spec, bucket)}", {"sizes": sizes})


@check(
    "CG309",
    "slots",
    "a call moves on the state of its own rows' slots, and no other slot changes by a bit",
    cases=_filled_and_short_of_rows,
    not_applicable=_no_slots,
)
def slots(subject: Subject, sizes: Sizes) -> Evidence:
    """Contract: after a replay the slots of its rows hold what eager leaves there; every other slot, of a stream that
    is not in this batch, holds what it held before.

    Why it matters: rows that only pad the batch have a slot too. Where that is a live one, a stream that waits for its
    next chunk goes on from another's past. https://github.com/NVIDIA/TensorRT-LLM/pull/13151

    How it is checked: the state is copied, a call replays, filled and with rows that only pad it, and the state is
    compared slot by slot: bit for bit outside the call, and with what an eager call leaves inside it.

    If it fails: give padding rows slots of their own that no stream is ever given, and write state back by the rows'
    slots alone, never the whole pool.
    """
    inputs = subject.draw(sizes, "CG309")
    own = _slots_of(subject, inputs)
    subject.fresh_start()
    before = _state_of(subject)
    subject.eager(inputs)
    eager = _state_of(subject)
    _, seen = graphed_call(subject, "CG309", inputs)
    graphed = _state_of(subject)
    for who, after in (("an eager call", eager), ("a replay", graphed)):
        _require_unchanged("CG309", f"{who} of slots {own}", before, after, own)
    if not any(_changed_slots(before[name], eager[name]) for name in before):
        raise _mixed_up("CG309", "an eager call moves the state of none of its slots on")
    advice = Advice(
        "a replay leaves other state behind than eager: written to another slot, or not at all  (class J)",
        "write state in place, by the rows' slots as this call gives them",
    )
    for slot in own:
        with located(f"the state of slot {slot}"):
            require_equal("CG309", subject, _as_outputs(graphed, slot), _as_outputs(eager, slot), advice)
    return {"own_slots": len(own), "slots": len(next(iter(before.values()))), "replays": seen.replays}


def _slots_of(subject: Subject, inputs: Inputs) -> list[int]:
    found: list[int] = inputs[str(subject.spec.slots_input)].tolist()
    return found


def _state_of(subject: Subject) -> State:
    copied: State = snapshot(dict(subject.state))
    return copied


def _as_outputs(state: State, slot: int) -> Outputs:
    return {name: [tensor[slot].reshape(-1)] for name, tensor in state.items()}


def _changed_slots(before: torch.Tensor, after: torch.Tensor) -> list[int]:
    found: list[int] = (before != after).reshape(len(before), -1).any(1).nonzero().flatten().tolist()
    return found


def _require_unchanged(code: str, who: str, before: State, after: State, own: Sequence[int]) -> None:
    """No slot but the `own` ones differs."""
    for name, tensor in before.items():
        others = sorted(set(_changed_slots(tensor, after[name])) - set(own))
        if others:
            raise _mixed_up(code, f"{who} changed {name!r} of slots {others} as well")


def _mixed_up(code: str, found: str) -> CheckFailed:
    return CheckFailed(
        code,
        found,
        likely="rows that only pad the batch use a live slot, or the whole pool is written  (class J)",
        cure="give padding rows slots of their own that no stream is given, and write by the slots given alone",
    )


def _no_reuse(spec: AdapterSpec) -> str | None:
    return _no_slots(spec) or (None if _rows_together(spec) else f"{spec.name} has no bucket for one row or two")


def _rows_together(spec: AdapterSpec) -> int:
    """How many streams share a call: two where a bucket holds them, else one; 0 where none holds one either."""
    table, most = BucketTable(spec.buckets, spec.adapter.axes), largest(spec)
    return next((rows for rows in (2, 1) if table.lookup({**most, ROWS: rows})), 0)


def _one(_: AdapterSpec) -> Iterator[Case]:
    yield Case("")


STEPS = ("AB", "BA", "A", "AB", "BC", "CB", "B", "BC")
"""Which streams each step serves, in the order of its rows; who is missing waits. C begins in the slot that A left."""


@check(
    "CG310",
    "slot-reuse",
    "a slot that was reset is as new for its next stream, and the streams beside it play on",
    cases=_one,
    not_applicable=_no_reuse,
)
def slot_reuse(subject: Subject) -> Evidence:
    """Contract: streams that share batches each give what they give alone, graphed and eager in any mixture and in any
    order of rows; a slot that was reset gives its next stream what any other reset slot gives.

    Why it matters: a reset that makes new tensors, or that graphs do not see, lets the next request begin in the last
    one's past. https://github.com/sgl-project/sglang/pull/30986

    How it is checked: two streams go on step by step, change places in the batch and wait for each other; one ends, its
    slot is reset, which must change no other slot, and a third stream begins in it: all graphed, then every other step
    eager. Each step of each stream is compared with that stream run alone and eagerly; the third also with itself in
    another slot.

    If it fails: reset state in place, in the very tensors that the graphs read, and all of it that a new stream reads.
    """
    one_row = {**largest(subject.spec), ROWS: 1}
    left, kept, other = _slots_of(subject, subject.draw({**one_row, ROWS: 3}, "CG310 slots"))
    drawn = {
        stream: [
            _in_slot(subject, subject.draw(one_row, f"CG310 {stream} {turn}"), slot)
            for turn in range("".join(STEPS).count(stream))
        ]
        for stream, slot in (("A", left), ("B", kept), ("C", left))
    }
    truth = {
        "A": _alone(subject, drawn["A"]),
        "B": _alone(subject, drawn["B"]),
        "C": _alone(subject, drawn["C"], reset=left),
    }
    _require_new(subject, truth["C"], _alone(subject, [_in_slot(subject, c, other) for c in drawn["C"]], reset=other))
    replays = 0
    turns = range(len(STEPS))
    for pattern, eager_steps in (
        ("all graphed", ()),
        ("odd steps eager", turns[1::2]),
        ("even steps eager", turns[::2]),
    ):
        with located(pattern):
            replays += _play(subject, drawn, truth, left, eager_steps)
    return {"streams": len(drawn), "steps": 3 * len(STEPS), "replays": replays}


def _play(
    subject: Subject,
    drawn: Mapping[str, Sequence[Inputs]],
    truth: Mapping[str, Sequence[Outputs]],
    left: int,
    eager_steps: Sequence[int],
) -> int:
    """All steps from the subject's start, each compared with its streams alone. Gives the number of replays."""
    advice = Advice(
        "a stream does not go on from where its own last step left its slot, whoever shared the batch  (class J)",
        "read and write state in place by the rows' slots, in the one pool that eager, graph and reset share",
    )
    subject.fresh_start()
    replays, turns = 0, dict.fromkeys(drawn, 0)
    for number, streams in enumerate(STEPS):
        if "C" in streams and not turns["C"]:
            _reset(subject, left)
        for served in [streams] if _rows_together(subject.spec) == 2 else list(streams):
            inputs = _batched(subject, [drawn[stream][turns[stream]] for stream in served])
            with located(f"step {number} of {'the streams ' if len(served) > 1 else 'stream '}{' and '.join(served)}"):
                if number in eager_steps:
                    found = subject.eager_proceed(inputs)
                else:
                    found, seen = graphed_call(subject, "CG310", inputs, proceed=True)
                    replays += seen.replays
                for row, stream in enumerate(served):
                    mine = {name: [rows[row]] for name, rows in found.items()}
                    require_equal("CG310", subject, mine, truth[stream][turns[stream]], advice)
                    turns[stream] += 1
    return replays


def _require_new(subject: Subject, one: Sequence[Outputs], other: Sequence[Outputs]) -> None:
    advice = Advice(
        "a reset leaves something of the stream before in the slot  (class J)",
        "reset all state that a new stream reads",
    )
    for step, (found, expected) in enumerate(zip(other, one, strict=True)):
        with located(f"step {step} of one stream in two slots that were reset, both eager"):
            require_equal("CG310", subject, found, expected, advice)


def _in_slot(subject: Subject, inputs: Inputs, slot: int) -> Inputs:
    name = str(subject.spec.slots_input)
    return {**inputs, name: torch.full_like(inputs[name], slot)}


def _batched(subject: Subject, rows: Sequence[Inputs]) -> Inputs:
    """Inputs of one row each as one batch."""
    batch = dict(rows[0])
    for spec in subject.adapter.inputs:
        if ROWS in spec.axes:
            batch[spec.name] = torch.cat([row[spec.name] for row in rows], dim=spec.axes.index(ROWS))
    return batch


def _alone(subject: Subject, steps: Sequence[Inputs], reset: int | None = None) -> list[Outputs]:
    """What a stream gives step by step, eagerly and alone, from the subject's start or in a slot that was reset."""
    subject.fresh_start()
    if reset is not None:
        _reset(subject, reset)
    return [snapshot(subject.eager_proceed(inputs)) for inputs in steps]


def _reset(subject: Subject, slot: int) -> None:
    before = _state_of(subject)
    subject.spec.reset_slots(subject.adapter, torch.full((1,), slot, device=subject.device))
    _require_unchanged("CG310", f"a reset of slot {slot}", before, _state_of(subject), [slot])
