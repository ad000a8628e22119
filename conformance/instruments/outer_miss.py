"""Outer captures around what no graph can serve: a miss, a cold call, a warm-up."""

from __future__ import annotations

import torch

from conformance.cases import Sizes
from conformance.catalogue import CheckFailed
from conformance.compare import Advice, require_equal
from conformance.evidence import located
from conformance.instruments.outer import outer_capture
from conformance.subject import Subject


def require_outer_right(subject: Subject, sizes: Sizes, what: str) -> None:
    """An outer capture around `what`, replayed with another input, gives what eager gives for that."""
    inputs, fresh = subject.draw(sizes, "CG404 captured"), subject.draw(sizes, "CG404 replayed")
    advice = Advice(
        "the outer graph holds only part of the module's work, or reads other memory than the caller's  (class F)",
        "run the module eagerly on the caller's own tensors while a capture is open",
    )
    with located(what), outer_capture(subject, "CG404", inputs) as outer:
        for name, tensor in inputs.items():
            tensor.copy_(fresh[name])
        subject.fresh_start()
        outer.graph.replay()
        require_equal("CG404", subject, outer.outputs, subject.eager(fresh), advice)


def warm_inside(cold: Subject, sizes: Sizes) -> str:
    """Warm `cold` up inside an outer capture. Returns the refusal's type, empty where there was none."""
    inputs, refusal = cold.draw(sizes, "CG404 warm"), ""
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(side):
            cold.eager(inputs)
            torch.cuda.synchronize()
            with cold.observe() as seen, torch.cuda.graph(graph, stream=side):
                outputs = cold.eager(inputs)
                try:
                    cold.warmup()
                except Exception as error:
                    refusal = type(error).__name__
        cold.fresh_start()
        graph.replay()
        intact = all(
            torch.equal(a, b)
            for name, rows in cold.eager(inputs).items()
            for a, b in zip(outputs[name], rows, strict=True)
        )
    except Exception as error:
        raise _ended(f"a warm-up inside an outer capture ended it: {type(error).__name__}") from error
    if seen.captures > 1 or not intact:
        raise _ended(f"a warm-up inside an outer capture made {seen.captures - 1} captures, or changed the outer graph")
    torch.cuda.current_stream().wait_stream(side)
    graph.reset()
    return refusal


def _ended(found: str) -> CheckFailed:
    return CheckFailed(
        "CG404",
        found,
        likely="warm-up does not ask whether a capture is open  (class F)",
        cure="raise from warmup() while torch.cuda.is_current_stream_capturing(), before doing anything else",
    )
