"""cuBLAS keeps a workspace for each stream, and graphs write to it: it belongs into the memory of the graphs.

A workspace that a warm-up left outside is let go of by whoever captures with torch.compile, and unmapped later:
https://github.com/pytorch/pytorch/issues/193402, https://github.com/vllm-project/vllm-omni/pull/6587.
"""

from typing import ClassVar

import pytest
import torch

from runner import PADDED, AxisMode, GraphAdapter, GraphConfig, GraphRunner, InputSpec, OutputSpec

BUCKETS = [{"batch": 2}, {"batch": 8}]


class Projection(GraphAdapter):
    """One matrix product, which cuBLAS computes; remembers the stream of each of its calls."""

    inputs = (InputSpec("x", torch.float32, ("batch", 512)),)
    outputs = (OutputSpec("y", ("batch", 512)),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED}

    def __init__(self, device):
        self.weight = torch.rand(512, 512).to(device)
        self.captured, self.eager = set(), set()

    def forward(self, x):
        streams = self.captured if torch.cuda.is_current_stream_capturing() else self.eager
        streams.add(torch.cuda.current_stream().cuda_stream)
        return x @ self.weight


@pytest.mark.parametrize("config", [GraphConfig(), GraphConfig(lazy=True, max_lazy_graphs=1)])
def test_nothing_else_computes_on_the_stream_of_captures(cuda, config):
    adapter = Projection(cuda)
    runner = GraphRunner(adapter, BUCKETS, device=cuda, config=config)
    runner.warmup()
    for rows in (2, 8, 9, 2):
        runner(torch.ones(rows, 512).to(cuda))
    assert adapter.captured
    assert not adapter.captured & adapter.eager


def test_a_pool_that_takes_the_place_of_another_comes_with_a_stream_of_its_own(cuda):
    adapter = Projection(cuda)
    runner = GraphRunner(adapter, BUCKETS, device=cuda, config=GraphConfig(memory_limit_bytes=2**32))
    runner.warmup()
    assert len(runner.captured) == 2
    assert len(adapter.captured) == 3, "one for each try, and one for those that fit"


@pytest.mark.gpu
def test_graphs_survive_that_workspaces_are_let_go_of():
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    adapter = Projection("cuda")
    runner = GraphRunner(adapter, BUCKETS, device="cuda")
    runner.warmup()
    x = torch.rand(8, 512, device="cuda")
    expected = runner(x)
    before = outside_of_pools(adapter.captured)
    torch._C._cuda_clearCublasWorkspaces()
    assert outside_of_pools(adapter.captured) == before, "a workspace of the captures' stream lies outside their pool"
    torch.cuda.empty_cache()
    assert torch.equal(runner(x), expected)


def outside_of_pools(streams):
    segments = [s for s in torch.cuda.memory_snapshot() if s["stream"] in streams and s["segment_pool_id"] == (0, 0)]
    return sum(block["size"] for s in segments for block in s["blocks"] if block["state"] == "active_allocated")
