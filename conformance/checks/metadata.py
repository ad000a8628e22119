"""CG9: what can be said of a call without listening to it is the same every time, and is eager's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from conformance import cases
from conformance.cases import Sizes
from conformance.catalogue import Case, CheckFailed, Evidence, check
from conformance.evidence import raw_call
from conformance.spec import AdapterSpec
from conformance.subject import Subject


def _sizes(spec: AdapterSpec) -> Iterator[Case]:
    """Every bucket filled, padded sizes, and sizes that no bucket holds."""
    tried: set[str] = set()
    for family in (cases.exact, cases.around_frames, cases.around_rows, cases.outside):
        for case in family(spec):
            name = cases.label(spec, case.arguments["sizes"])
            if name not in tried:
                tried.add(name)
                yield Case(name, case.arguments)


@check(
    "CG901",
    "metadata",
    "structure, dtypes, lengths and path of a call are the same every time, and eager's",
    cases=_sizes,
)
def metadata(subject: Subject, sizes: Sizes) -> Evidence:
    """Contract: for one size, every call takes the same path and returns the same structure, names, dtypes, shapes and
    memory layout; and a caller cannot tell from the structure whether a graph served it.

    Why it matters: code behind the module is written against one path's result: a list for a tuple, a tensor that
    cannot be written to, or a layout that changes from call to call breaks it on the other path, in production.
    https://github.com/vllm-project/vllm-omni/issues/4924

    How it is checked: two calls at each size, described without their samples: the type of every container and leaf,
    dtype, shape, strides, device, and whether autograd may use it; then eager's result, described likewise but for its
    extent, which CG2 judges. A replay must be observed exactly where a bucket holds the size.

    If it fails: unload into the structure of the module's own result, with fresh contiguous clones, on both paths.
    """
    inputs = subject.draw(sizes, "CG901")
    passes = [_described(subject, subject.draw(sizes, f"CG901 {turn}")) for turn in range(2)]
    if passes[0] != passes[1]:
        raise _differs(sizes, "two calls", *passes)
    expected = "replay" if subject.bucket_for(sizes) else "eager"
    if passes[0]["path"] != expected:
        raise CheckFailed(
            "CG901",
            f"a call at {sizes} took the path {passes[0]['path']!r}; the bucket table says {expected!r}",
            likely="the lookup misses a bucket that holds the call, or finds one that does not  (class N)",
            cure="replay exactly where a captured bucket holds the call",
            evidence=passes[0],
        )
    eager = _description(subject.raw_eager(inputs))
    graphed = {key: value for key, value in passes[0].items() if key != "path"}
    if _without_extent(graphed) != _without_extent(eager):
        raise _differs(sizes, "the call and eager", _without_extent(graphed), _without_extent(eager))
    return {"outputs": [spec.name for spec in subject.adapter.outputs], **passes[0]}


def _differs(sizes: Sizes, what: str, one: dict[str, Any], other: dict[str, Any]) -> CheckFailed:
    key = next(key for key in one if one[key] != other.get(key))
    return CheckFailed(
        "CG901",
        f"at {sizes} {what} differ in {key}: {one[key]} and {other.get(key)}",
        likely="one path builds its result in its own way, or a call depends on the one before it  (class I, U)",
        cure="unload into the structure of the module's own result, with fresh clones, on both paths",
        evidence={"one": one, "other": other},
    )


def _described(subject: Subject, inputs: dict[str, torch.Tensor]) -> dict[str, Any]:
    result, seen = raw_call(subject, "CG901", inputs)
    return {"path": "replay" if seen.replays else "eager", **_description(result)}


def _description(result: Any) -> dict[str, Any]:
    """A result without its samples, in JSON-ready words."""
    leaves, structure = tree_flatten(result)
    return {
        "structure": str(structure),
        "leaves": [
            {
                "type": type(leaf).__name__,
                "dtype": str(leaf.dtype),
                "shape": list(leaf.shape),
                "strides": list(leaf.stride()),
                "device": leaf.device.type,
                "inference": leaf.is_inference(),
                "requires_grad": leaf.requires_grad,
            }
            for leaf in leaves
        ],
    }


def _without_extent(description: dict[str, Any]) -> dict[str, Any]:
    leaves = [
        {key: value for key, value in leaf.items() if key not in ("shape", "strides")} for leaf in description["leaves"]
    ]
    return {**description, "leaves": leaves}
