"""CG3: what a call returned is the caller's own, and what a caller handed over stays theirs."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from conformance import cases
from conformance.catalogue import Case, CheckFailed, Evidence, check
from conformance.compare import Advice, require_equal
from conformance.evidence import call, graphed_call, located
from conformance.instruments.static_memory import overwrite
from conformance.instruments.sweeps import full_and_padded
from conformance.spec import AdapterSpec
from conformance.subject import Inputs, Outputs, Subject, snapshot


def _one(_: AdapterSpec) -> Iterator[Case]:
    yield Case("")


@check("CG302", "survive", "results survive a second runner on the same pool, its close and a collection", cases=_one)
def survive(subject: Subject) -> Evidence:
    """Contract: a result, and the runner that made it, outlive another runner that shares pool and module: its warm-up,
    calls and close.

    Why it matters: one component's unload frees or overwrites memory that another one's graphs still read: 485 of 500
    requests were corrupt. https://github.com/sgl-project/sglang/issues/29216

    How it is checked: results of every bucket from one runner are kept; a second runner on the same pool and module
    warms up, serves every bucket and is closed; memory is collected and churned. The results must be what they were,
    and the first runner must still replay, to the same samples.

    If it fails: clone results out of the pool, and keep every tensor that a graph reads alive as long as the graph.
    """
    import gc

    everything = full_and_padded(subject.spec)
    pool = torch.cuda.graph_pool_handle()
    with subject.sibling(pool=pool) as first:
        drawn = [first.draw(sizes, "CG302 kept") for sizes in everything]
        results = [graphed_call(first, "CG302", inputs)[0] for inputs in drawn]
        copies = [snapshot(result) for result in results]
        with first.sibling(pool=pool, same_module=True) as second:
            _require_kept(everything, results, copies, "a second runner on the same pool was warmed up")
            for sizes in everything:
                graphed_call(second, "CG302", second.draw(sizes, "CG302 second"))
            _require_kept(everything, results, copies, "a second runner on the same pool was called")
        gc.collect()
        torch.cuda.empty_cache()
        churn = [torch.full_like(row, 3.0) for result in copies for rows in result.values() for row in rows]
        _require_kept(everything, results, copies, "a second runner on the same pool was closed")
        advice = Advice(
            "the runner's graphs read memory that the other runner's close freed  (class E)",
            "keep every tensor that a graph reads alive as long as the graph; free nothing of a pool that is shared",
        )
        for inputs, copy in zip(drawn, copies, strict=True):
            require_equal("CG302", first, graphed_call(first, "CG302", inputs)[0], copy, advice)
    return {"results_kept": len(results), "churned_tensors": len(churn)}


def _require_kept(sizes: list[cases.Sizes], results: list[Outputs], copies: list[Outputs], when: str) -> None:
    for size, result, copy in zip(sizes, results, copies, strict=True):
        for name, rows in result.items():
            for row, (found, before) in enumerate(zip(rows, copy[name], strict=True)):
                if not torch.equal(found, before):
                    raise CheckFailed(
                        "CG302",
                        f"row {row} of {name!r}, returned at {size}, changed when {when}",
                        likely="the result is memory of the shared pool  (class D)",
                        cure="clone every output leaf before returning it",
                    )


@check("CG303", "caller-writes", "what a caller writes into a result is not heard in later calls", cases=_one)
def caller_writes(subject: Subject) -> Evidence:
    """Contract: a result may be overwritten by its caller; no later call hears that.

    Why it matters: callers fade, mix and normalise audio in place; if the result is also the runner's cache, tail or
    constant, the next request starts from it. https://github.com/pytorch/pytorch/issues/181723

    How it is checked: at every bucket, filled and padded, and on the eager path, each row of a result is filled with
    loud junk, and the same call is made again and compared with a copy of what it gave at first.

    If it fails: clone every output leaf, also those that the graph does not write anew at each replay.
    """
    advice = Advice(
        "a result shares memory with something that later calls read: a cache, an overlap, a part of the static output "
        "that no replay writes  (class D)",
        "clone every output leaf before returning it, on every path",
    )
    written = 0
    outside = [case.arguments["sizes"] for case in cases.outside(subject.spec)][:1]
    for sizes in (*full_and_padded(subject.spec), *outside):
        inputs = subject.draw(sizes, "CG303")
        with located(cases.label(subject.spec, sizes)):
            first, _ = call(subject, "CG303", inputs)
            before = snapshot(first)
            for rows in first.values():
                for row in rows:
                    overwrite(row, torch.full_like(row, 7.0))
                    written += row.numel()
            again, _ = call(subject, "CG303", inputs)
            require_equal("CG303", subject, again, before, advice)
    return {"samples_written": written}


@check("CG304", "inputs-unchanged", "inputs are unchanged by a call, and share no memory with its result", cases=_one)
def inputs_unchanged(subject: Subject) -> Evidence:
    """Contract: a call leaves its inputs bit for bit as they were, and its result is other memory than its inputs.

    Why it matters: the caller's codes are kept for the next chunk's left context; padded or clamped in place, they are
    another request's. https://github.com/pytorch/pytorch/pull/184699

    How it is checked: calls that fill a bucket, are padded, and run eagerly; every input is compared with a copy of it,
    and its memory with the result's.

    If it fails: copy inputs into static buffers and work there; never pad, clamp or mask in the caller's tensor.
    """
    calls = 0
    outside = [case.arguments["sizes"] for case in cases.outside(subject.spec)][:2]
    for sizes in (*full_and_padded(subject.spec), *outside):
        inputs = subject.draw(sizes, "CG304")
        before = snapshot(inputs)
        found, seen = call(subject, "CG304", inputs)
        path = "a replay" if seen.replays else "the fallback"
        for name, tensor in inputs.items():
            if not torch.equal(tensor, before[name]):
                changed = int((tensor != before[name]).sum())
                raise CheckFailed(
                    "CG304",
                    f"{cases.label(subject.spec, sizes)}: {changed} of {tensor.numel()} elements of the input {name!r} "
                    f"were changed by {path}",
                    likely="the call pads, clamps or masks in the caller's own tensor  (class P)",
                    cure="copy inputs into static buffers and work there, or on a clone",
                )
        if seen.replays and _storages(inputs) & {
            row.untyped_storage().data_ptr() for rows in found.values() for row in rows
        }:
            raise CheckFailed(
                "CG304",
                f"{cases.label(subject.spec, sizes)}: the result of a replay shares memory with an input",
                likely="an input was passed through as output without a copy  (class P)",
                cure="clone every output leaf before returning it",
            )
        calls += 1
    return {"calls": calls}


def _storages(inputs: Inputs) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in inputs.values() if tensor.numel()}
