"""Captures and replays, counted at `torch.cuda.CUDAGraph` and never asked of the code under test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from conformance import activity


@dataclass(eq=False)
class Seen:
    """What happened at `torch.cuda.CUDAGraph` while it was watched. Only calls that succeeded count."""

    captures: int = 0
    replays: int = 0
    module_calls: int = 0  # of torch modules, from Python: a replay makes none
    replayed: list[int] = field(default_factory=list)
    """Which graph objects replayed, by identity and in order."""


class Observer:
    """Watches the `CUDAGraph` class that is in force, the emulation's or torch's own."""

    def __init__(self) -> None:
        self._watching: list[Seen] = []
        self._originals: list[tuple[type, str, Any]] = []
        self._hook: RemovableHandle | None = None

    def install(self) -> None:
        self._count("capture_end", "captures")
        self._count("replay", "replays")
        self._hook = register_module_forward_pre_hook(self._module_called)

    @contextlib.contextmanager
    def without_module_counts(self) -> Iterator[None]:
        """Count no module calls for a while: the hook costs every one of them time."""
        hook, self._hook = self._hook, None
        if hook is not None:
            hook.remove()
        try:
            yield
        finally:
            if hook is not None:
                self._hook = register_module_forward_pre_hook(self._module_called)

    def _module_called(self, module: torch.nn.Module, inputs: Any) -> None:
        for seen in self._watching:
            seen.module_calls += 1

    def remove(self) -> None:
        for owner, name, original in reversed(self._originals):
            setattr(owner, name, original)
        self._originals.clear()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _count(self, method: str, counter: str) -> None:
        owner: type = torch.cuda.CUDAGraph
        original = getattr(owner, method)
        watching = self._watching

        def counted(graph: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(graph, *args, **kwargs)
            if counter == "captures":
                activity.captured()
            for seen in watching:
                setattr(seen, counter, getattr(seen, counter) + 1)
                if counter == "replays":
                    seen.replayed.append(id(graph))
            return result

        self._originals.append((owner, method, vars(owner)[method]))
        setattr(owner, method, counted)

    @contextlib.contextmanager
    def watch(self) -> Iterator[Seen]:
        seen = Seen()
        self._watching.append(seen)
        try:
            yield seen
        finally:
            self._watching.remove(seen)
