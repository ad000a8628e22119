"""Which line a refusal names."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from conformance.emulation import emulated_cuda


class PassesOn(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


def test_a_refusal_names_the_line_that_asked_and_not_a_mode_that_passed_it_on() -> None:
    with emulated_cuda():
        numbers, mask = torch.arange(4, device="cuda"), torch.ones(4, dtype=torch.bool, device="cuda")

        def forward() -> torch.Tensor:
            with PassesOn():
                return numbers[mask]  # the line

        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with pytest.raises(RuntimeError) as refusal, torch.cuda.stream(stream), torch.cuda.graph(graph):
            forward()
    told = str(refusal.value.__context__ or refusal.value) + str(refusal.value)
    assert "in forward: return numbers[mask]  # the line" in told
    assert "in __torch_function__" not in told
