"""CG0: the declaration is true, the subject can be heard, and it captures in a process that has done nothing yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from conformance import cases
from conformance.cases import Sizes
from conformance.catalogue import Case, CheckFailed, Evidence, check
from conformance.compare import QUIETEST
from conformance.instruments.fresh import door_of, first_calls, in_fresh_process
from conformance.spec import AdapterSpec
from conformance.subject import Inputs, Subject
from runner import PADDED, AdapterError, OutputSpec, PerRowLengths


@check("CG001", "manifest", "what the adapter declares is what its module takes and gives", cases=cases.exact)
def manifest(subject: Subject, sizes: Sizes) -> Evidence:
    """Contract: inputs come with the declared names, dtypes and axes; outputs with the declared number, axes and one
    dtype; each length contract gives eager's length from the captured one; and the module takes its own padding.

    Why it matters: a runner trims, pads and looks up by the declaration alone, so a wrong formula cuts audio in every
    call. https://github.com/vllm-project/vllm-omni/pull/3687

    How it is checked: at each bucket the module runs eagerly on inputs of the spec and on padding alone; then, for
    lengths of one, half and one less than the bucket's, the contract's formula is held against the length eager gives.

    If it fails: correct the declaration that the message names; no graph is involved.
    """
    inputs = subject.draw(sizes, "CG001")
    _require_inputs(subject, sizes, inputs)
    outputs = _require_outputs(subject, sizes, inputs)
    smallest = dict(subject.table.buckets[0])
    for name, tensor in _require_outputs(subject, smallest, subject.draw(smallest, "CG001")).items():
        if tensor.dtype != outputs[name].dtype:
            raise CheckFailed(
                "CG001",
                f"output {name!r} is {outputs[name].dtype} at {sizes} and {tensor.dtype} at {smallest}",
                likely="the module promotes its result at some sizes only  (class I)",
                cure="return one dtype at every size",
            )
    _require_padding(subject, sizes, inputs)
    lengths = {
        spec.name: _require_contract(subject, spec, sizes, outputs[spec.name])
        for spec in subject.adapter.outputs
        if spec.length is not None
    }
    return {"dtypes": {name: str(tensor.dtype) for name, tensor in outputs.items()}, "lengths": lengths}


def _untrue(found: str, cure: str, likely: str = "the declaration and the module disagree  (class A)") -> CheckFailed:
    return CheckFailed("CG001", found, likely=likely, cure=cure)


def _require_inputs(subject: Subject, sizes: Sizes, inputs: Inputs) -> None:
    declared = {spec.name: spec for spec in subject.adapter.inputs}
    if inputs.keys() != declared.keys():
        raise _untrue(
            f"make_inputs gives {sorted(inputs)}; `inputs` declares {sorted(declared)}",
            "give one tensor for each InputSpec, by its name",
        )
    known = {**subject.adapter.fixed_sizes(), **sizes}
    for name, spec in declared.items():
        tensor = inputs[name]
        shape = [known.get(str(axis), axis) for axis in spec.axes]
        if tensor.dtype != spec.dtype or list(tensor.shape) != shape:
            raise _untrue(
                f"input {name!r} at {sizes} is {tensor.dtype} {list(tensor.shape)}; declared {spec.dtype} {shape}",
                "correct the InputSpec, `sizes`, or make_inputs",
            )
        pad = torch.full((), spec.pad, dtype=spec.dtype).item()
        if pad != spec.pad and not (pad != pad and spec.pad != spec.pad):
            raise _untrue(
                f"input {name!r} declares pad={spec.pad!r}, which {spec.dtype} holds as {pad!r}",
                "declare a pad that the dtype can hold and the module can take",
                "the pad was meant for another input  (class B)",
            )


def _require_outputs(subject: Subject, sizes: Mapping[str, int], inputs: Inputs) -> Mapping[str, torch.Tensor]:
    adapter = subject.adapter
    with torch.no_grad():
        result = adapter.forward(*(inputs[spec.name] for spec in adapter.device_inputs()))
    try:
        named, _ = adapter.named_outputs(result, sizes)
    except AdapterError as error:
        raise _untrue(f"at {dict(sizes)}: {error}", "declare one OutputSpec for each tensor, with its axes") from error
    for name, tensor in named.items():
        if tensor.device != subject.device:
            raise _untrue(f"output {name!r} is on {tensor.device}", "return tensors of the device from `forward`")
    return named


def _require_padding(subject: Subject, sizes: Sizes, inputs: Inputs) -> None:
    """Padding alone, which every warm-up feeds to the module as well."""
    adapter = subject.adapter
    padding = [torch.full_like(inputs[spec.name], spec.pad) for spec in adapter.device_inputs()]
    try:
        with torch.no_grad():
            result = adapter.forward(*padding)
    except Exception as error:
        raise _untrue(
            f"the module refuses its own padding at {sizes}: {type(error).__name__}: {error}",
            "declare pad values that the module can take",
            "a pad value lies outside the module's range  (class B)",
        ) from error
    if not all(bool(leaf.isfinite().all()) for leaf in tree_leaves(result)):
        raise _untrue(
            f"padding alone gives NaN or infinity at {sizes}",
            "declare pad values that the module can take",
            "a pad value lies outside the module's range  (class B)",
        )


def _require_contract(subject: Subject, spec: OutputSpec, sizes: Sizes, full: torch.Tensor) -> Mapping[str, int]:
    """Hold the formula against eager at a few lengths. Gives eager's length by the number of `of` units."""
    if spec.length is None:
        return {}
    bucket = sizes[spec.of]
    at = subject.adapter.length_positions(spec)[0]
    captured = full.shape[at]
    tried = {1, (bucket + 1) // 2, bucket - 1, bucket} if subject.adapter.axes[spec.of] is PADDED else {bucket}
    if isinstance(spec.length, PerRowLengths) and spec.length.lengths not in {s.name for s in subject.adapter.inputs}:
        tried = set()  # the module tells the lengths itself
    found: dict[str, int] = {}
    for units in sorted(tried - {0}):
        shorter = {**sizes, spec.of: units}
        eager = _require_outputs(subject, shorter, subject.draw(shorter, "CG001"))[spec.name].shape[at]
        try:
            told = spec.length.trimmed(captured, units, bucket)
        except AdapterError as error:
            raise _untrue(f"output {spec.name!r}: {error}", "correct the contract's scale or formula") from error
        if told != eager:
            raise _untrue(
                f"output {spec.name!r}: {spec.length} gives {told} for {units} of {bucket} {spec.of}, and eager gives "
                f"{eager} (captured: {captured})",
                "a·T − c is CapturedMinusPadding(scale=a), a·T is Nominal(scale=a)",
            )
        found[str(units)] = eager
    return found


@check("CG002", "loud", "outputs are finite, loud, and depend on every part of the input", cases=cases.exact)
def loud(subject: Subject, sizes: Sizes) -> Evidence:
    """Contract: at each bucket eager is finite and changes when any frame's input does; outputs that have a length, or
    else one output, have a peak of at least 1e-3 unless they are of integers.

    Why it matters: silence equals silence: with default-initialised weights, or codebooks of zeros, a wrapper that
    drops the input passes every comparison. https://github.com/vllm-project/vllm-omni/issues/4571

    How it is checked: the module alone, eagerly. Two inputs; then the first input with its first, middle or last frame
    taken from the second. Every row of every output with a length contract must change each time, and any output must.

    If it fails: re-initialise matrices (and codebooks) with a normal of about 0.15 in the spec's `build`, and feed the
    module what it really reads.
    """
    one, other = subject.draw(sizes, "CG002 one"), subject.draw(sizes, "CG002 other")
    truth = subject.eager(one)
    peaks: dict[str, float] = {}
    lasting = subject.lasting_outputs()
    heard = False
    for name, rows in truth.items():
        for row, tensor in enumerate(rows):
            peak = float(tensor.abs().max()) if tensor.numel() else 0.0
            audible = peak >= QUIETEST or not tensor.dtype.is_floating_point  # a code of 0 is a code like any other
            heard = heard or audible
            if not bool(torch.isfinite(tensor).all()) or (name in lasting and not audible):
                raise _inaudible(f"row {row} of {name!r} has a peak of {peak:.1e} at {sizes}")
            peaks[name] = max(peaks.get(name, 0.0), peak)
    if not heard:
        raise _inaudible(f"no output has a peak of more than {max(peaks.values(), default=0.0):.1e} at {sizes}")
    for what, inputs in {"whole input": other, **_one_frame_changed(subject, sizes, one, other)}.items():
        changed = subject.eager(inputs)
        same = {name: list(map(torch.equal, rows, changed[name])) for name, rows in truth.items()}
        for name in subject.lasting_outputs():
            if any(same[name]):
                row = same[name].index(True)
                raise _inaudible(f"row {row} of {name!r} is the same when the {what} changes, at {sizes}")
        if all(map(all, same.values())):
            raise _inaudible(f"every output is the same when the {what} changes, at {sizes}")
    return {"peaks": peaks}


def _inaudible(found: str) -> CheckFailed:
    return CheckFailed(
        "CG002",
        found,
        likely="default-initialised weights, codebooks of zeros, or a module that does not read its input  (class U)",
        cure="re-initialise matrices and codebooks with a normal of about 0.15 in the spec's build()",
    )


def _one_frame_changed(subject: Subject, sizes: Sizes, one: Inputs, other: Inputs) -> Mapping[str, Inputs]:
    axis = subject.time_axis
    if axis is None:
        return {}
    found: dict[str, Inputs] = {}
    for what, frame in {"first": 0, "middle": sizes[axis] // 2, "last": sizes[axis] - 1}.items():
        mixed: Any = {name: tensor.clone() for name, tensor in one.items()}
        for spec in subject.adapter.device_inputs():
            if axis in spec.axes:
                at = spec.axes.index(axis)
                mixed[spec.name].select(at, frame).copy_(other[spec.name].select(at, frame))
        found[f"{what} of {sizes[axis]} {axis}"] = mixed
    return found


def _once(_: AdapterSpec) -> Iterator[Case]:
    yield Case("")


def _no_door(spec: AdapterSpec) -> str | None:
    return (
        None if door_of(spec) else f"{spec.name} is no file and no module's attribute: another process cannot load it"
    )


@check(
    "CG003",
    "fresh-process",
    "a process that has done nothing yet captures every bucket, and its first call is right",
    cases=_once,
    not_applicable=_no_door,
)
def fresh_process(subject: Subject) -> Evidence:
    """Contract: warm-up as the very first device work of a process captures every bucket, and the first call is right.

    Why it matters: kernels, tables and caches made on first use cannot be made inside a capture; where something ran
    the module before, nobody notices. https://github.com/pytorch/pytorch/issues/99397

    How it is checked: a process of its own builds the adapter, warms up without any eager call before, makes one call
    at each bucket, and only then compares with eager. Captures and replays are observed there. What goes wrong in this
    process as well is left to CG1 and CG2.

    If it fails: run the module eagerly on a side stream before every capture (two iterations or more).
    """
    told = in_fresh_process(subject)
    if told.get("problem"):
        with subject.sibling(warm=False) as other:
            here = first_calls(other)
        if here.get("problem"):  # not the fresh process's doing: CG1 and CG2 say what is wrong
            return {**told, "in_this_process": here["problem"]}
        raise CheckFailed(
            "CG003",
            f"in a fresh process: {told['problem']}",
            likely="too little warm-up: something is made on the module's first call, inside the capture  (class R)",
            cure="run the module eagerly on a side stream before every capture; two iterations are the usual number",
            evidence=told,
        )
    return told
