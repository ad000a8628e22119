"""CG2: what a caller may hand over, and what kind of thing comes back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from conformance import cases
from conformance.cases import Sizes
from conformance.catalogue import Case, CheckFailed, Evidence, check
from conformance.compare import Advice, require_equal
from conformance.evidence import call, graphed_call, located
from conformance.instruments.layouts import LAYOUTS
from conformance.instruments.precision import autocast, in_precision, low_precision_noise
from conformance.instruments.sweeps import full_and_padded, largest, padded, require_parity
from conformance.spec import AdapterSpec
from conformance.subject import Inputs, Subject


def _one(_: AdapterSpec) -> Iterator[Case]:
    yield Case("")


_DENSE, _STRIDED = ", contiguous, ", ", not contiguous, "


@check("CG209", "structure", "a replay's result has the structure, dtype and layout of the fallback's", cases=_one)
def structure(subject: Subject) -> Evidence:
    """Contract: tuples, dicts, dataclasses and None, dtype, device, layout, contiguity and requires_grad of a result
    are the same whether a graph or the fallback made it. A clone may be contiguous where the module gave a view.

    Why it matters: callers meet whichever path served them; a dtype that depends on the bucket breaks the next module
    only under load. https://github.com/vllm-project/vllm-omni/pull/4341

    How it is checked: the same call, at every bucket filled and padded, on the subject and on a runner of the same
    module that was never warmed up; the two results are compared leaf by leaf.

    If it fails: rebuild the module's own structure around the clones, and let a clone keep its source's dtype.
    """
    compared = 0
    with subject.sibling(warm=False) as fallback:
        for sizes in full_and_padded(subject.spec):
            inputs = subject.draw(sizes, "CG209")
            with located(cases.label(subject.spec, sizes)):
                graphed_call(subject, "CG209", inputs)
                found, expected = list(_shape_of(subject.raw(inputs))), list(_shape_of(fallback.raw(inputs)))
                for got, wanted in zip(found, expected, strict=False):
                    if got not in (wanted, wanted.replace(_STRIDED, _DENSE)):
                        raise _other_structure(got, wanted)
                if len(found) != len(expected):
                    raise _other_structure(f"{len(found)} parts", f"{len(expected)} parts")
                compared += len(found)
    return {"parts_compared": compared}


def _shape_of(value: Any, path: str = "result") -> Iterator[str]:
    """One line for each part of a result: its place, type, and for a tensor all but its values."""
    if isinstance(value, torch.Tensor):
        contiguous = _DENSE if value.is_contiguous() else _STRIDED
        yield (
            f"{path}: {value.dtype} of {value.dim()} axes on {value.device}, {value.layout}{contiguous}"
            f"requires_grad={value.requires_grad}"
        )
        return
    yield f"{path}: {type(value).__name__}" + (
        "" if value is None or isinstance(value, _CONTAINERS) else f" {value!r:.40}"
    )
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _shape_of(item, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _shape_of(item, f"{path}[{index}]")


_CONTAINERS = (Mapping, list, tuple)


def _other_structure(found: str, expected: str) -> CheckFailed:
    return CheckFailed(
        "CG209",
        f"a replay gives {found}; the fallback gives {expected}",
        likely="the result was rebuilt, cast or kept as a view on one of the two paths alone  (class I)",
        cure="clone each leaf as the module returned it, and put the leaves back into the module's own structure",
        evidence={"found": found, "expected": expected},
    )


_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def _dtypes(_: AdapterSpec) -> Iterator[Case]:
    for name in _DTYPES:
        yield Case(name, {"dtype": name})


def _low_precision_planned(spec: AdapterSpec) -> str | None:
    return cases.planned(spec, "low_precision")


@check(
    "CG210",
    "low-precision",
    "the module in bfloat16 and float16 gives graphed what it gives eagerly",
    cases=_dtypes,
    not_applicable=_low_precision_planned,
)
def low_precision(subject: Subject, dtype: str) -> Evidence:
    """Contract: with the module's weights in bfloat16 or float16, a replay has eager's dtype and eager's values.

    Why it matters: buffers fixed at float32 cast silently: memory and speed of one precision, the sound of another.
    https://github.com/sgl-project/sglang/pull/3431

    How it is checked: the adapter is built anew, its module cast, and calls padded and filled are compared with eager,
    within noise measured in that dtype. Where the capability is not claimed, a call may raise as eager does or run
    eagerly, but may not give another dtype or other values than eager.

    If it fails: take every buffer's dtype from the module or from the tensor that is copied into it.
    """
    claimed = subject.spec.capabilities.low_precision.supported
    advice = Advice(
        "something on the graph path has a dtype of its own: a static buffer, a cast, a constant  (class I)",
        "take every buffer's dtype from the module's output or from the input that is copied into it",
    )
    bucket = largest(subject.spec)
    with in_precision(subject, _DTYPES[dtype]) as low:
        try:
            low.eager(low.draw(bucket, "CG210 first"))
        except Exception as error:
            if claimed:
                raise CheckFailed(
                    "CG210",
                    f"eager itself raises {type(error).__name__} with the module in {dtype}: {error}",
                    likely="part of the module has a fixed dtype  (class I)",
                    cure="declare low_precision=unsupported(reason), or let the module compute in its weights' dtype",
                ) from error
            return _refuses(low, bucket, dtype)
        low.warmup()
        low.measured(low_precision_noise(low, _DTYPES[dtype]))
        replays = 0
        for sizes in (bucket, padded(subject.spec, bucket), *map(dict, subject.spec.buckets[:1])):
            inputs = low.draw(sizes, "CG210")
            with located(f"{dtype} {cases.label(subject.spec, sizes)}"):
                found, seen = (graphed_call if claimed else call)(low, "CG210", inputs)
                require_equal("CG210", low, found, low.eager(inputs), advice)
            replays += seen.replays
    return {"dtype": dtype, "replays": replays}


def _refuses(low: Subject, sizes: Sizes, dtype: str) -> Evidence:
    """Eager raises in this dtype: so must the call, whatever was captured."""
    try:
        low.warmup()
        result = low.raw(low.draw(sizes, "CG210 first"))
    except Exception as error:
        return {"dtype": dtype, "refused_with": type(error).__name__}
    raise CheckFailed(
        "CG210",
        f"a call returned {next(iter(_shape_of(result)))} with the module in {dtype}, where eager raises",
        likely="the weights or the inputs were cast silently on the graph path  (class I)",
        cure="capture and call the module as it is; refuse what it refuses",
    )


@check("CG211", "autocast", "a call under autocast gives what eager gives under the same autocast", cases=_one)
def under_autocast(subject: Subject) -> Evidence:
    """Contract: under `torch.autocast`, a call gives what the module gives eagerly under it; or it is refused loudly.

    Why it matters: a graph is captured in one precision; replayed under autocast it returns the old one, and no one is
    told. https://github.com/vllm-project/vllm-omni/pull/4341

    How it is checked: calls under autocast to bfloat16, filled and padded, against eager under the same autocast; then
    a call outside, which must be eager's too. Where the capability is not claimed, a call under autocast may raise, and
    must where eager does.

    If it fails: run eagerly, with a reason, while `torch.is_autocast_enabled("cuda")` differs from what was captured.
    """
    advice = Advice(
        "the graph replays in the precision that it was captured in, though autocast asks for another  (class I)",
        'fall back to eager while torch.is_autocast_enabled("cuda") is not what it was at capture',
    )
    bucket = largest(subject.spec)
    claimed = subject.spec.capabilities.autocast.supported
    refused = 0
    for sizes in (bucket, padded(subject.spec, bucket)):
        inputs = subject.draw(sizes, "CG211")
        with autocast(subject, torch.bfloat16), located(f"under autocast {cases.label(subject.spec, sizes)}"):
            try:
                expected = subject.eager(inputs)
            except Exception as error:
                _require_refusal_under_autocast(subject, inputs, error, claimed)
                refused += 1
                continue
            try:
                found = call(subject, "CG211", inputs)[0]
            except CheckFailed:
                if claimed:
                    raise
                refused += 1
                continue
        require_equal("CG211", subject, found, expected, advice)
    return {"refused": refused, **require_parity(subject, "CG211", [bucket], advice, salt="after")}


def _require_refusal_under_autocast(subject: Subject, inputs: Inputs, error: Exception, claimed: bool) -> None:
    if claimed:
        raise CheckFailed(
            "CG211",
            f"eager itself raises {type(error).__name__}: {error}",
            likely="part of the module has a fixed dtype  (class I)",
            cure="declare autocast=unsupported(reason), or let the module compute in the dtype that autocast gives",
        ) from error
    try:
        subject.raw(inputs)
    except Exception:
        return
    raise CheckFailed(
        "CG211",
        f"the call returned a result where eager raises {type(error).__name__}",
        likely="the graph replays in the precision that it was captured in, and nobody asks for autocast  (class I)",
        cure='fall back to eager while torch.is_autocast_enabled("cuda") is not what it was at capture',
    )


def _layouts(_: AdapterSpec) -> Iterator[Case]:
    for name in LAYOUTS:
        yield Case(name, {"layout": name})


@check("CG212", "layouts", "inputs of any memory layout are served as plain ones are", cases=_layouts)
def layouts(subject: Subject, layout: str) -> Evidence:
    """Contract: transposed, sliced, strided, expanded, flipped and offset inputs are served as fresh copies are.

    Why it matters: a copy by address or by flat view reads another request's codes out of a larger tensor.
    https://github.com/pytorch/pytorch/pull/184699

    How it is checked: each bucket, padded and filled, with every device input in the layout of the case, against a call
    with contiguous copies of the same values.

    If it fails: copy with `Tensor.copy_`, which follows strides; never by pointer, `view(-1)` or storage.
    """
    advice = Advice(
        "an input was copied by its storage and not by its strides  (class P)",
        "use buffer.copy_(tensor), or make the tensor contiguous first",
    )
    device = {spec.name for spec in subject.adapter.device_inputs()}
    for sizes in full_and_padded(subject.spec):
        drawn = subject.draw(sizes, "CG212")
        inputs: Inputs = {name: LAYOUTS[layout](value) if name in device else value for name, value in drawn.items()}
        plain: Inputs = {name: value.contiguous().clone() for name, value in inputs.items()}
        with located(cases.label(subject.spec, sizes)):
            expected = call(subject, "CG212", plain)[0]
            require_equal("CG212", subject, graphed_call(subject, "CG212", inputs)[0], expected, advice)
    return {"layout": layout, "sizes": len(full_and_padded(subject.spec))}
