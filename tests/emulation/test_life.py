"""The emulation comes, refuses what it cannot do, and goes without a trace."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Iterator

import pytest
import torch
from torch.overrides import TorchFunctionMode

from conformance.emulation import EmulationError, UseAfterFree, active_device, emulated_cuda

OWNERS = (torch, torch.cuda, torch.accelerator, torch.Tensor, torch.UntypedStorage, torch._C)


def everything() -> dict[tuple[int, str], object]:
    return {(number, name): value for number, owner in enumerate(OWNERS) for name, value in vars(owner).items()}


@pytest.fixture
def modules() -> Iterator[tuple[types.ModuleType, types.ModuleType]]:
    """Two importable modules: one that took its names before the test."""
    early, late = types.ModuleType("took_early"), types.ModuleType("took_late")
    sys.modules |= {"took_early": early, "took_late": late}
    exec("from torch.cuda import CUDAGraph, graph_pool_handle", vars(early))
    yield early, late
    del sys.modules["took_early"], sys.modules["took_late"]


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_put_back(fails: bool) -> None:
    with emulated_cuda():  # what torch makes at first use is there from now on
        torch.ones(1, device="cuda").cpu()
    before = everything()
    try:
        with emulated_cuda():
            assert everything() != before
            torch.ones(1, device="cuda").cpu()
            if fails:
                raise KeyError
    except KeyError:
        pass
    after = everything()
    assert {key for key in before.keys() | after.keys() if before.get(key) is not after.get(key)} == set()
    assert active_device() is None


def test_a_device_context_rules_the_same_functions_before_during_and_after() -> None:
    """Torch remembers these functions; remembered during an emulation, `torch.tensor` would be a stand-in for ever."""

    def made() -> list[str]:
        functions = (torch.tensor, torch.empty, torch.ones, torch.arange, torch.rand, torch.as_tensor)
        return [function(1).device.type for function in functions]

    from torch.utils._device import _device_constructors

    _device_constructors.cache_clear()
    with emulated_cuda():
        with torch.device("cuda"):
            assert made() == ["cuda"] * 6
        with torch.device("meta"):
            assert made() == ["meta"] * 6
    with torch.device("meta"):
        assert made() == ["meta"] * 6
    with emulated_cuda(), torch.device("cuda"):
        assert made() == ["cuda"] * 6


def test_an_exception_in_a_capture_leaves_no_capture_open() -> None:
    with pytest.raises(KeyError), emulated_cuda(), torch.cuda.graph(torch.cuda.CUDAGraph()):
        raise KeyError
    with emulated_cuda():
        assert not torch.cuda.is_current_stream_capturing()
        assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_what_torch_asks_its_own_library_has_the_same_answer() -> None:
    with emulated_cuda():
        assert not torch._C._cuda_isCurrentStreamCapturing()
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            assert torch._C._cuda_isCurrentStreamCapturing()
            assert torch._C._cuda_getCurrentRawStream(0) == torch.cuda.current_stream().cuda_stream


def test_names_taken_before_and_during_are_covered_and_given_back(
    modules: tuple[types.ModuleType, types.ModuleType],
) -> None:
    early, late = modules
    real = torch.cuda.CUDAGraph
    with emulated_cuda():
        exec("from torch.cuda import CUDAGraph, graph_pool_handle", vars(late))
        assert early.CUDAGraph is late.CUDAGraph is torch.cuda.CUDAGraph is not real
        assert early.graph_pool_handle is late.graph_pool_handle
    assert early.CUDAGraph is late.CUDAGraph is torch.cuda.CUDAGraph is real


def test_emulation_inside_emulation_is_refused_and_harmless() -> None:
    with emulated_cuda() as device:
        with pytest.raises(EmulationError, match="on already"), emulated_cuda():
            pass
        assert active_device() is device
        assert torch.ones(1, device="cuda").is_cuda


def test_an_operator_without_a_host_kernel_is_named() -> None:
    with emulated_cuda():
        x = torch.ones(4, 4, device="cuda")
        with pytest.raises(EmulationError, match=r"aten::_fused_rms_norm_backward|aten::_cudnn_rnn_flatten_weight"):
            torch.ops.aten._cudnn_rnn_flatten_weight([x], 1, 4, 2, 4, 0, 1, False, False)


def test_a_custom_operator_for_cuda_alone_is_named() -> None:
    with torch.library._scoped_library("audiograph_test", "FRAGMENT") as library:
        library.define("on_cuda(Tensor x) -> Tensor")
        library.impl("on_cuda", lambda x: x, "CUDA")
        with emulated_cuda():
            x = torch.ones(2, device="cuda")
            with pytest.raises(EmulationError, match=r"audiograph_test::on_cuda at .*test_life"):
                torch.ops.audiograph_test.on_cuda(x)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real device here, and the operator finds it")
def test_a_custom_operator_that_asks_for_a_real_device_is_named() -> None:
    with torch.library._scoped_library("audiograph_test", "FRAGMENT") as library:
        library.define("makes_cuda(Tensor x) -> Tensor")
        library.impl("makes_cuda", lambda x: torch.zeros(2, device="cuda"), "CPU")
        with emulated_cuda():
            x = torch.ones(2, device="cuda")
            with pytest.raises(EmulationError, match=r"audiograph_test::makes_cuda at .*test_life"):
                torch.ops.audiograph_test.makes_cuda(x)


def test_a_triton_kernel_is_named() -> None:
    triton = pytest.importorskip("triton")

    def halve(x):  # type: ignore[no-untyped-def]
        pass

    kernel = triton.runtime.jit.JITFunction(halve)
    with emulated_cuda(), pytest.raises(EmulationError, match="Triton kernel halve"):
        kernel[(1,)](torch.ones(2, device="cuda"))


@pytest.mark.parametrize("captured_in_inference_mode", [False, True])
def test_a_capture_replays_in_the_other_inference_mode(captured_in_inference_mode: bool) -> None:
    with emulated_cuda():
        with torch.inference_mode(captured_in_inference_mode):
            weight = torch.ones(3, device="cuda")
            x = torch.zeros(2, 3, device="cuda")
            graph = torch.cuda.CUDAGraph()
            with torch.no_grad(), torch.cuda.graph(graph):
                y = (x * weight).t().contiguous()
                y[0] += 1
        for mode in (not captured_in_inference_mode, captured_in_inference_mode) * 2:
            with torch.inference_mode(mode):
                graph.replay()
        with torch.inference_mode():
            x.fill_(2)
        graph.replay()
        assert y.tolist() == [[3, 3], [2, 2], [2, 2]]


def test_a_replay_calls_no_torch_function_mode() -> None:
    class Counts(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            Counts.calls += 1
            return func(*args, **(kwargs or {}))

    with emulated_cuda():
        x = torch.ones(3, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = torch.cat([x + 1, x]).view(2, 3) @ x
        with Counts():
            graph.replay()
        assert Counts.calls == 0
        assert y.tolist() == [6, 3]


def test_a_rebound_attribute_is_read_at_its_old_address_while_something_holds_it() -> None:
    with emulated_cuda():
        module = torch.nn.Linear(2, 2, bias=False).to("cuda")
        x = torch.ones(1, 2, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            y = module(x)
        old = module.weight.data
        module.weight.data = old + 1
        graph.replay()
        assert torch.equal(y, x @ old.t())
        del old
        with pytest.raises(UseAfterFree, match="test_life"):
            graph.replay()


def test_memory_that_was_resized_away_is_not_read() -> None:
    with emulated_cuda():
        x = torch.ones(4, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x + 1
        x.untyped_storage().resize_(0)
        with pytest.raises(UseAfterFree):
            graph.replay()
        assert y.isnan().all()


@pytest.mark.slow
def test_dynamo_can_be_imported_inside_and_compiles_outside() -> None:
    program = """
import torch
from conformance.emulation import emulated_cuda
with emulated_cuda():
    import torch._dynamo
    x = torch.ones(2, device="cuda") + 1
compiled = torch.compile(lambda x: x * 2 + 1, backend="eager", fullgraph=True)
assert compiled(torch.ones(2)).tolist() == [3, 3]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize("grad", [False, True])
def test_a_replay_runs_the_kernels_that_the_grad_mode_of_its_capture_chose(grad: bool) -> None:
    """The host's LSTM rounds otherwise where a gradient may be asked for."""
    with emulated_cuda():
        lstm = torch.nn.LSTM(16, 16, num_layers=2).to("cuda").requires_grad_(False)
        x = torch.randn(9, 4, 16, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.set_grad_enabled(grad):
            expected = lstm(x)[0]
            with torch.cuda.graph(graph):
                found = lstm(x)[0]
        with torch.set_grad_enabled(not grad):
            graph.replay()
        assert torch.equal(found, expected)
