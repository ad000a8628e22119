"""Mistakes that need several operations in a row."""

from __future__ import annotations

from typing import Any, ClassVar

from runner import GraphRunner
from tests.mutants.base import Mutant, with_runner


class _RemembersAFailure(GraphRunner):
    """A failed capture, of any runner, leaves what a runner of a shared pool trips over at its next replay."""

    failure: ClassVar[bool] = False

    def __init__(self, *args: Any, pool: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, pool=pool, **kwargs)
        self.shares = pool is not None
        if self.shares:
            type(self).failure = False

    def warmup(self) -> None:
        super().warmup()
        type(self).failure = self.failure or bool(self.failed)

    def _replay(self, *args: Any) -> Any:
        result = super()._replay(*args)
        return result + 0.5 if self.shares and self.failure else result


MUTANTS = (
    Mutant(
        with_runner(
            _RemembersAFailure,
            "RemembersAFailure",
            "A failed capture leaves half a state in the pool. https://github.com/pytorch/pytorch/pull/190348",
        ),
        frozenset({"CG308"}),
    ),
)
