"""What a row's program is given to work with. The same on the emulation and on a GPU: it asks nobody where it is."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

T = TypeVar("T")


class Stage:
    """A few small tensors on the device, and captures that leave nothing behind."""

    def __init__(self) -> None:
        self.x = torch.tensor([0.5, -1.5, 2.5, 3.5, -4.5, 5.5], device="cuda")
        self.square = torch.tensor([[2.0, 1.0], [1.0, 3.0]], device="cuda")
        self.mask = torch.tensor([True, False, True, False, False, True], device="cuda")
        self.index = torch.tensor([4, 0, 2], device="cuda")
        self.codes = torch.tensor([1, 0, 2, 2, 1, 0], device="cuda")
        self.scalar = torch.tensor(2, device="cuda")
        self.host_index = torch.tensor([4, 0, 2])
        self.host_scalar = torch.tensor(2)
        self.host = torch.arange(6.0)
        self.pinned = torch.arange(6.0).pin_memory()
        self.graph = torch.cuda.CUDAGraph()

    def warm_up(self, body: Callable[[], object]) -> None:
        """Run `body` once eagerly on a side stream, so that no library is loaded during a capture."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            body()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()

    def capture(
        self, body: Callable[[], T], *, graph: torch.cuda.CUDAGraph | None = None, warm: bool = True, **options: Any
    ) -> T:
        """Capture `body` into `graph`, or into :attr:`graph`, and return what it returned: tensors nothing has filled.

        Without `warm`, `body` runs in the capture alone.
        """
        if warm:
            self.warm_up(body)
        with torch.cuda.graph(graph if graph is not None else self.graph, **options):
            result = body()
        return result  # noqa: RET504 (the capture ends first)

    def replay(self, graph: torch.cuda.CUDAGraph | None = None) -> None:
        """Replay and wait."""
        (graph if graph is not None else self.graph).replay()
        torch.cuda.synchronize()

    def failing_capture(self, **options: Any) -> None:
        """A capture that ends in a refused operation; its error is swallowed."""
        with contextlib.suppress(RuntimeError):
            self.capture(lambda: self.x[0].item(), graph=torch.cuda.CUDAGraph(), **options)

    def agrees(self, body: Callable[[], torch.Tensor]) -> bool:
        """Whether a replay of `body` on inputs that changed after the capture equals `body` run eagerly on them."""
        result = self.capture(body)
        self.x.copy_(torch.tensor([6.5, 1.5, -0.5, 2.25, 7.5, -3.5]))
        self.replay()
        return bool(torch.allclose(result.float(), body().float(), rtol=1e-4, atol=1e-5))


@contextlib.contextmanager
def open_stage() -> Iterator[Stage]:
    """A stage for one row, after which streams, seeds and the autograd mode are as before."""
    with warnings.catch_warnings(), torch.cuda.stream(torch.cuda.current_stream()):
        warnings.simplefilter("ignore")
        yield Stage()
