"""The runner inside vLLM's own CUDAGraphWrapper in FULL mode: eager there, captured rightly, and replaying afterwards.

Forward context, batch descriptor and wrapper are vLLM's. Where there is no GPU, graphs are emulated and two things are
replaced, which need vLLM's CUDA build or a second stream: `weak_ref_tensors` and vLLM's idea of the current stream.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from conformance.device import open_device
from conformance.registry import spec_of
from runner import GraphConfig, GraphRunner

SIZES = {"batch": 1, "frames": 8}


@pytest.fixture(scope="module", autouse=True)
def imported_first() -> None:
    """Inside the emulation, vllm would look for a device that it then cannot open."""
    importlib.import_module("vllm.compilation.cuda_graph")


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    with open_device(request.param):
        if request.param == "emulated":
            import vllm.compilation.cuda_graph as outer

            monkeypatch.setattr(outer, "weak_ref_tensors", lambda tensors: tensors)
            monkeypatch.setattr(outer, "current_stream", torch.cuda.current_stream)
        yield torch.device("cuda", 0)


@pytest.mark.vllm
@pytest.mark.parametrize(
    "config", [GraphConfig(), GraphConfig(lazy=True, max_lazy_graphs=2)], ids=["at-warm-up", "lazy"]
)
def test_the_runner_is_right_inside_vllms_full_graph_and_after_it(device: torch.device, config: GraphConfig) -> None:
    from vllm.compilation.cuda_graph import CUDAGraphWrapper
    from vllm.compilation.monitor import set_cudagraph_capturing_enabled
    from vllm.config import CompilationConfig, CUDAGraphMode
    from vllm.forward_context import BatchDescriptor, ForwardContext, override_forward_context

    spec = spec_of("reference")
    torch.manual_seed(0)
    adapter: Any = spec.build(device, None)
    runner = GraphRunner(adapter, [SIZES], device=device, config=config)
    runner.warmup()

    def codes(seed: int) -> torch.Tensor:
        return spec.make_inputs(adapter, SIZES, torch.Generator().manual_seed(seed))["codes"].to(device)

    def eager(tensor: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return adapter.forward(tensor)

    vllm_config = type("Config", (), {"compilation_config": CompilationConfig(cudagraph_mode="FULL")})()
    wrapper = CUDAGraphWrapper(lambda tensor: runner(tensor), vllm_config, CUDAGraphMode.FULL)
    context = ForwardContext(
        no_compile_layers={},
        attn_metadata={},
        slot_mapping={},
        cudagraph_runtime_mode=CUDAGraphMode.FULL,
        batch_descriptor=BatchDescriptor(num_tokens=SIZES["frames"], num_reqs=1, uniform=True),
    )
    tensor, side = codes(1), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(side), override_forward_context(context):
        adapter.forward(tensor)  # what a capture needs to have been made before
        torch.cuda.synchronize()
        set_cudagraph_capturing_enabled(True)
        try:
            wrapper(tensor)
        finally:
            set_cudagraph_capturing_enabled(False)
        assert dict(runner.statistics.fallbacks) == {"outer_capture": 1}
        for seed in (2, 3):
            tensor.copy_(codes(seed))
            found = wrapper(tensor)
            torch.cuda.synchronize()
            assert torch.allclose(found, eager(codes(seed)), atol=1e-5)
    torch.cuda.current_stream().wait_stream(side)
    assert dict(runner.statistics.fallbacks) == {"outer_capture": 1}, "vLLM's replay runs no Python"
    assert not runner.statistics.snapshot()["hits_per_bucket"]
    assert torch.allclose(runner(codes(4)), eager(codes(4)), atol=1e-5)
    assert runner.statistics.snapshot()["hits_per_bucket"] == {"b1-f8": 1}
    wrapper.clear_graphs()
