"""CG3: addresses that a graph captured, state that a module keeps, and Python that a replay does not run."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from conformance import cases
from conformance.cases import Sizes
from conformance.catalogue import Case, CheckFailed, Evidence, check
from conformance.compare import Advice, require_equal
from conformance.evidence import call, graphed_call, located
from conformance.instruments.sweeps import full_and_padded, largest, require_parity
from conformance.spec import AdapterSpec
from conformance.subject import Inputs, Outputs, Subject, snapshot


def _one(_: AdapterSpec) -> Iterator[Case]:
    yield Case("")


@check("CG305", "addresses", "replays outlive their caller's tensors, and see weights updated in place", cases=_one)
def addresses(subject: Subject) -> Evidence:
    """Contract: a graph reads static memory and the module's own weights, and nothing that a caller may free.

    Why it matters: a graph holds addresses. A tensor freed after capture is another tensor by the time of the replay;
    weights copied for the capture are the old ones after an update.
    https://github.com/vllm-project/vllm-omni/issues/6457

    How it is checked: inputs and results are dropped, memory is collected and filled with other tensors of the same
    sizes, then every bucket replays, and must give what it gave. Then every weight is scaled in place: replays and
    eager must agree again. The weights are put back bit for bit.

    If it fails: hold whatever the graph reads, capture the module itself, and write new weights into the old tensors.
    """
    everything = full_and_padded(subject.spec)
    freed = Advice(
        "the graph reads memory that was freed: an input of an earlier call, or a temporary of the capture  (class E)",
        "keep whatever the graph reads in attributes that live as long as the graph",
    )
    shapes, before = [], []
    for sizes in everything:
        inputs = subject.draw(sizes, "CG305 dropped")
        before.append(snapshot(graphed_call(subject, "CG305", inputs)[0]))
        shapes += [(tensor.shape, tensor.dtype, tensor.device) for tensor in inputs.values()]
    del inputs
    gc.collect()
    churn = [torch.ones(shape, dtype=dtype, device=device) for shape, dtype, device in shapes * 8]
    for sizes, expected in zip(everything, before, strict=True):
        found, _ = graphed_call(subject, "CG305", subject.draw(sizes, "CG305 dropped"))
        require_equal("CG305", subject, found, expected, freed)
    stale = Advice(
        "the graph reads a copy of the weights, or a value computed from them before the update  (class E)",
        "capture the module itself; compute what depends on weights inside the captured call",
    )
    with _scaled_weights(subject.module) as weights, located("after the weights were updated in place"):
        require_parity(subject, "CG305", everything, stale, salt="updated", context=True)
    return {"weights_updated": weights, "calls": 2 * len(everything), "other_tensors": len(churn)}


@contextlib.contextmanager
def _scaled_weights(module: nn.Module) -> Iterator[int]:
    weights = [weight for weight in module.parameters() if weight.is_floating_point()]
    kept = [weight.detach().clone() for weight in weights]
    with torch.no_grad():
        try:
            for weight in weights:
                weight.mul_(0.75)
            yield len(weights)
        finally:
            for weight, before in zip(weights, kept, strict=True):
                weight.copy_(before)


def _planned(spec: AdapterSpec) -> str | None:
    return cases.planned(spec, "state")


@check(
    "CG306",
    "state",
    "state goes on through replays as through eager calls, and nothing else is kept",
    cases=_one,
    not_applicable=_planned,
)
def state(subject: Subject) -> Evidence:
    """Contract: where a module keeps state, N steps give what N eager steps give, graphed and eager in any mixture;
    where it keeps none, calls change no parameter and no buffer, and their order does not matter.

    Why it matters: state rebound instead of written in place is lost at each replay, or read from one of two copies in
    turn: right at even steps, wrong at odd ones. https://github.com/vllm-project/vllm-omni/pull/4929

    How it is checked: with state claimed, up to five steps from one start, all graphed, and every other one eager.
    Otherwise twenty calls forth and back, with results and every parameter and buffer compared, bit for bit.

    If it fails: write state in place into buffers that live as long as the graph, and claim state=supported().
    """
    sizes = largest(subject.spec)
    if not subject.spec.capabilities.state.supported:
        return _keeps_nothing(subject)
    steps = [subject.draw(sizes, f"CG306 step {step}") for step in range(5)]
    subject.fresh_start()
    expected = [snapshot(subject.eager_proceed(step)) for step in steps]
    advice = Advice(
        "a replay does not go on from where the last call left the state: it was rebound, doubled or reset  (class J)",
        "write state in place, into one buffer that eager and graph share and that lives as long as the graph",
    )
    replays = 0
    for pattern, eager_steps in (("all graphed", ()), ("odd steps eager", (1, 3)), ("even steps eager", (0, 2, 4))):
        subject.fresh_start()
        for step, inputs in enumerate(steps):
            with located(f"step {step}, {pattern}"):
                if step in eager_steps:
                    found = subject.eager_proceed(inputs)
                else:
                    with subject.observe() as seen:
                        found = subject.proceed(inputs)
                    replays += seen.replays
                require_equal("CG306", subject, found, expected[step], advice)
    subject.fresh_start()
    if not replays:
        graphed_call(subject, "CG306", steps[0])
    return {"steps": len(steps), "replays": replays}


def _keeps_nothing(subject: Subject) -> Evidence:
    tensors = {**dict(subject.module.named_parameters()), **dict(subject.module.named_buffers())}
    before = snapshot(tensors)
    everything = full_and_padded(subject.spec)
    calls: list[tuple[Sizes, Inputs, Outputs]] = []
    for step in range(10):
        sizes = everything[step % len(everything)]
        inputs = subject.draw(sizes, f"CG306 {step}")
        calls.append((sizes, inputs, snapshot(call(subject, "CG306", inputs)[0])))
    advice = Advice(
        "a result depends on the calls before it, though the spec claims no state  (class J)",
        "keep nothing between calls; or write it in place into a buffer, and claim state=supported()",
    )
    for sizes, inputs, first in reversed(calls):
        with located(f"{cases.label(subject.spec, sizes)} called again in reverse order"):
            require_equal("CG306", subject, call(subject, "CG306", inputs)[0], first, advice)
    for name, tensor in tensors.items():
        if not torch.equal(tensor, before[name]):
            raise CheckFailed(
                "CG306",
                f"{name!r} of the module is not what it was 20 calls ago, though the spec claims no state",
                likely="the module counts, caches or averages in a buffer while it is called  (class J)",
                cure="put the module into eval mode and keep nothing; or claim state=supported()",
            )
    return {"calls": 20, "tensors_watched": len(tensors)}


@check("CG307", "side-effects", "Python values of the module are after a replay what they are after eager", cases=_one)
def side_effects(subject: Subject) -> Evidence:
    """Contract: whatever plain Python values a call leaves in the module's attributes, a replayed call leaves as well.

    Why it matters: a replay runs no Python, so a counter, a last length or a hook's flag stays what capture left there,
    and the code that reads it works on another call's value. https://github.com/pytorch/pytorch/issues/114844

    How it is checked: numbers, strings and containers of them in every submodule's attributes are read before and after
    an eager call, put back, and read after a graphed call at the same sizes; padded sizes too. Tables that an eager
    call has filled in for these sizes before count as filled: what is computed once and looked up again is no effect.

    If it fails: set the value outside the captured call from the caller's own inputs, or keep it on the device.
    """
    watched = 0
    for sizes in full_and_padded(subject.spec):
        inputs = subject.draw(sizes, "CG307")
        start = _tables_filled(subject, inputs)
        subject.eager(inputs)
        eager = _values(subject.module)
        _put_back(subject.module, start)
        call(subject, "CG307", inputs)
        graphed = _values(subject.module)
        _put_back(subject.module, start)
        watched = len(start)
        for place in eager.keys() | graphed.keys():
            if eager.get(place) != graphed.get(place):
                raise CheckFailed(
                    "CG307",
                    f"{cases.label(subject.spec, sizes)}: {'.'.join(place)} is {graphed.get(place)!r} after a graphed "
                    f"call and {eager.get(place)!r} after an eager one",
                    likely="the module or a hook sets it in Python, which a replay does not run  (class O)",
                    cure="set it outside the captured call from the caller's inputs, or keep it in a device buffer",
                )
    return {"values_watched": watched}


def _values(module: nn.Module) -> dict[tuple[str, str], Any]:
    """Plain values among the attributes of every submodule, by path and name; torch's own bookkeeping left out."""
    bookkeeping = set(vars(nn.Module()))
    return {
        (path or "module", name): _copied(value)
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if name not in bookkeeping and _plain(value)
    }


def _tables_filled(subject: Subject, inputs: Inputs) -> dict[tuple[str, str], Any]:
    """The values once an eager call has added entries to tables; whatever else it changed is put back."""
    before = _values(subject.module)
    subject.eager(inputs)
    values = _values(subject.module)
    for place, value in before.items():
        now = values.get(place)
        values[place] = {**now, **value} if isinstance(now, dict) and isinstance(value, dict) else value
    _put_back(subject.module, values)
    return values


def _plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_plain, value.keys())) and all(map(_plain, value.values()))
    if isinstance(value, (list, tuple, set)):
        return all(map(_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, (dict, list, set)) else value


def _put_back(module: nn.Module, values: Mapping[tuple[str, str], Any]) -> None:
    """Values that a call rebound or changed, as they were. A container is refilled, since others may hold it."""
    parts = {path or "module": part for path, part in module.named_modules()}
    for (path, name), value in values.items():
        current = vars(parts[path]).get(name)
        if current == value and type(current) is type(value):
            continue
        if isinstance(value, dict) and isinstance(current, dict):
            current.clear()
            current.update(value)
        elif isinstance(value, list) and isinstance(current, list):
            current[:] = value
        else:
            setattr(parts[path], name, _copied(value))
