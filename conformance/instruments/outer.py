"""A real outer capture around a call, as vLLM's full graph mode puts one around a submodule."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from conformance.catalogue import CheckFailed
from conformance.subject import Inputs, Outputs, Subject


@dataclass(frozen=True)
class OuterCapture:
    """The outer graph, and the call's result inside it: memory that each replay of the graph writes."""

    graph: torch.cuda.CUDAGraph
    outputs: Outputs


@contextlib.contextmanager
def outer_capture(subject: Subject, code: str, inputs: Inputs) -> Iterator[OuterCapture]:
    """Capture one call on `inputs` from outside, after the eager warm-up that a capture needs.

    Raises :class:`CheckFailed` where the call breaks the capture, or replays or captures inside it. The current stream
    is put back: torch leaves the capture's stream current when an operation was refused.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.stream(side):
            subject.eager(inputs)
            torch.cuda.synchronize()
            with subject.observe() as seen, torch.cuda.graph(graph, stream=side):
                outputs = subject(inputs)
    except Exception as error:
        raise CheckFailed(
            code,
            f"the call broke an outer capture: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}",
            likely="no guard: an inner graph is replayed, captured or waited for while a capture is open  (class F)",
            cure="ask torch.cuda.is_current_stream_capturing() before every replay and capture, and run eagerly then",
            evidence={"exception": repr(error)},
        ) from error
    if seen.replays or seen.captures != 1:
        raise CheckFailed(
            code,
            f"{seen.replays} replays and {seen.captures - 1} captures were observed inside an outer capture",
            likely="no guard: an inner graph is replayed or captured while a capture is open  (class F)",
            cure="ask torch.cuda.is_current_stream_capturing() before every replay and capture, and run eagerly then",
        )
    torch.cuda.current_stream().wait_stream(side)
    yield OuterCapture(graph, outputs)
    graph.reset()
