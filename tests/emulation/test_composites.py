"""Functions of torch whose C++ asks for a dtype "as that tensor has it", and so for its device."""

from __future__ import annotations

import pytest
import torch

from conformance.emulation import emulated_cuda


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_norm_in_any_precision_stays_on_the_device(dtype: torch.dtype) -> None:
    host = torch.randn(2, 3, 8).to(dtype)
    weight = torch.rand(8).to(dtype)
    with emulated_cuda():
        found = torch.nn.functional.rms_norm(host.cuda(), (8,), weight.cuda(), 1e-5)
        assert found.device == torch.device("cuda", 0)
        assert found.dtype == dtype
        assert torch.equal(found.cpu(), torch.nn.functional.rms_norm(host, (8,), weight, 1e-5))


def test_type_as_moves_to_where_the_other_tensor_is() -> None:
    host = torch.arange(3)
    with emulated_cuda():
        other = torch.ones(1, device="cuda")
        assert (moved := host.type_as(other)).device == torch.device("cuda", 0)
        assert moved.dtype == torch.float32
        assert other.long().type_as(other).device == torch.device("cuda", 0)
        assert other.type_as(host).device == torch.device("cpu")


def test_type_as_of_a_host_tensor_is_refused_in_a_capture() -> None:
    with emulated_cuda():
        host, other = torch.arange(3), torch.ones(1, device="cuda")
        stream = torch.cuda.Stream()
        with pytest.raises(RuntimeError), torch.cuda.stream(stream), torch.cuda.graph(torch.cuda.CUDAGraph()):
            host.type_as(other)
