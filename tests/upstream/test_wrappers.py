"""vllm-omni's own wrappers, not a line of them changed, on the emulated device."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from conformance.emulation import emulated_cuda
from tests.upstream.modules import UPSTREAM, Upstream

pytestmark = pytest.mark.vllm
BY_NAME = {upstream.name: upstream for upstream in UPSTREAM}


@pytest.fixture(scope="module", autouse=True)
def imported_first() -> None:
    """Inside the emulation, vllm would look for a device that it then cannot open."""
    importlib.import_module("vllm_omni")


@pytest.fixture(params=BY_NAME)
def upstream(request: pytest.FixtureRequest) -> Upstream:
    return BY_NAME[request.param]


@pytest.fixture
def cuda() -> Iterator[None]:
    with emulated_cuda(), torch.no_grad():
        yield


def on_device(upstream: Upstream) -> Any:
    torch.manual_seed(0)
    return upstream.build().to("cuda")


def request_of(upstream: Upstream, module: Any, size: int) -> list[torch.Tensor]:
    return [tensor.cuda() for tensor in upstream.inputs(module, size)]


@pytest.mark.usefixtures("cuda")
def test_a_wrapper_captures_and_equals_its_packages_eager_path(upstream: Upstream) -> None:
    module = on_device(upstream)
    wrapper = upstream.wrap(module, upstream.sizes)
    graphs = upstream.graphs(wrapper)
    assert len(graphs) >= len(upstream.sizes)
    for size in (*upstream.sizes, *upstream.sizes):
        request = request_of(upstream, module, size)
        torch.cuda.manual_seed(size)
        expected = upstream.eager(module, *request)
        replays = sum(graph.replays for graph in graphs.values())
        torch.cuda.manual_seed(size)
        found = upstream.call(wrapper, *request)
        assert sum(graph.replays for graph in graphs.values()) == replays + 1
        assert expected[0].double().abs().max() > 0.1
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


@pytest.mark.usefixtures("cuda")
def test_mimo_replays_in_an_outer_capture_and_fails_as_on_a_gpu() -> None:
    mimo = BY_NAME["mimo"]
    module = on_device(mimo)
    wrapper = mimo.wrap(module, mimo.sizes)
    request = request_of(mimo, module, mimo.sizes[0])
    refused = pytest.raises(RuntimeError, match="Cannot prepare for replay during capturing stage")
    with refused, torch.cuda.graph(torch.cuda.CUDAGraph()):
        mimo.call(wrapper, *request)


@pytest.mark.usefixtures("cuda")
def test_mimo_is_wrong_in_a_padded_bucket_as_on_a_gpu() -> None:
    mimo = BY_NAME["mimo"]
    module = on_device(mimo)
    wrapper = mimo.wrap(module, (8, 16))
    for frames in (5, 7, 13):
        request = request_of(mimo, module, frames)
        (expected,), (found,) = mimo.eager(module, *request), mimo.call(wrapper, *request)
        assert (found - expected).abs().max() > 0.05 * expected.abs().max()


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("name", ["qwen3_tts", "qwen3_omni", "bigvgan", "voxtral"])
def test_the_others_run_eagerly_in_an_outer_capture(name: str) -> None:
    upstream = BY_NAME[name]
    module = on_device(upstream)
    wrapper = upstream.wrap(module, upstream.sizes)
    if name == "voxtral":
        wrapper.model.compute_mm_logits = lambda hidden, cfg_alpha: (
            None,
            {"codes": {"audio": [module(llm_hidden=hidden, cfg_alpha=cfg_alpha).unsqueeze(1)]}},
        )
    request = request_of(upstream, module, upstream.sizes[0])
    torch.cuda.manual_seed(0)
    upstream.eager(module, *request)  # what it makes at first use
    torch.cuda.manual_seed(0)
    expected = upstream.eager(module, *request)
    outer = torch.cuda.CUDAGraph()
    with torch.cuda.graph(outer):
        found = upstream.call(wrapper, *request)
    torch.cuda.manual_seed(0)
    outer.replay()
    assert torch.equal(found[0], expected[0])


def test_vllms_global_pool_is_one_a_time_and_gone_afterwards() -> None:
    from vllm.platforms import current_platform

    before = vars(type(current_platform)).get("_global_graph_pool")
    with emulated_cuda():
        first = current_platform.get_global_graph_pool()
        assert first is current_platform.get_global_graph_pool()
        assert first is not None
    with emulated_cuda():
        assert current_platform.get_global_graph_pool() != first
    assert vars(type(current_platform)).get("_global_graph_pool") == before
