"""Which graph was captured for which sizes, into which pool, and which one each replay ran: seen from outside.

Where :mod:`conformance.observe` counts, this names. Sizes are read from the static buffers that the module is called
with while a capture is open.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from conformance.subject import Subject

Forward = Callable[..., Any]


@dataclass
class GraphLog:
    """`sizes`, `pools` and `graphs` have one entry a successful capture; `replays` holds positions in them."""

    sizes: list[dict[str, int]] = field(default_factory=list)
    pools: list[Any] = field(default_factory=list)
    graphs: list[weakref.ref[Any]] = field(default_factory=list)
    statics: list[weakref.ref[torch.Tensor]] = field(default_factory=list)
    replays: list[int] = field(default_factory=list)

    def alive(self) -> int:
        """How many of the graphs are still held by somebody."""
        return sum(graph() is not None for graph in self.graphs)

    def replayed(self) -> list[dict[str, int] | None]:
        """The sizes of the graph that each replay ran; None for a graph whose capture was not seen."""
        return [self.sizes[position] if position >= 0 else None for position in self.replays]


@contextlib.contextmanager
def around_forward(subject: Subject, around: Callable[[Forward, tuple[Any, ...]], Any]) -> Iterator[None]:
    """Every call of what the subject captures goes through `around(forward, arguments)` meanwhile, eager ones too."""
    owner, name = subject.spec.captured(subject.adapter)
    own = vars(owner).get(name)
    original = getattr(owner, name)

    def listened(*arguments: Any, **named: Any) -> Any:
        return around(functools.partial(original, **named) if named else original, arguments)

    setattr(owner, name, listened)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


@contextlib.contextmanager
def log_graphs(subject: Subject) -> Iterator[GraphLog]:
    """Log what happens at `torch.cuda.CUDAGraph` and in the module meanwhile."""
    log = GraphLog()
    owner: Any = torch.cuda.CUDAGraph
    originals: Mapping[str, Any] = {name: vars(owner)[name] for name in ("capture_end", "replay")}
    captured: dict[str, int] = {}

    def forward(original: Forward, tensors: tuple[Any, ...]) -> Any:
        result = original(*tensors)
        if torch.cuda.is_current_stream_capturing():
            captured.update(subject.spec.captured_sizes(subject.adapter, tensors))
            leaves = torch.utils._pytree.tree_leaves(result)
            log.statics += [weakref.ref(leaf) for leaf in (*tensors, *leaves) if isinstance(leaf, torch.Tensor)]
        return result

    def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
        ended = originals["capture_end"](graph, *args, **kwargs)
        log.sizes.append(dict(captured))
        log.pools.append(tuple(graph.pool()))
        log.graphs.append(weakref.ref(graph))
        return ended

    def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
        done = originals["replay"](graph, *args, **kwargs)
        log.replays.append(next((at for at, known in enumerate(log.graphs) if known() is graph), -1))
        return done

    owner.capture_end, owner.replay = capture_end, replay
    try:
        with around_forward(subject, forward):
            yield log
    finally:
        for name, original in originals.items():
            setattr(owner, name, original)
