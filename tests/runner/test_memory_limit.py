"""A memory limit: what fits is captured, those given first preferred; the rest runs eagerly, and says why.

Bytes of small modules are those of emulated CUDA, which has no segments: a GPU hands out 2 MiB and more at once.
"""

import gc
from typing import ClassVar

import pytest
import torch
from codecs_for_tests import codes

from conformance.emulation import emulated_cuda
from runner import PADDED, AxisMode, ConfigError, GraphAdapter, GraphConfig, GraphRunner, InputSpec, OutputSpec

SMALL, MEDIUM, LARGE = {"batch": 1, "frames": 8}, {"batch": 2, "frames": 8}, {"batch": 4, "frames": 16}


@pytest.fixture
def cuda():
    with emulated_cuda():
        yield torch.device("cuda", 0)


def limited(adapter, device, buckets, limit):
    runner = GraphRunner(adapter, buckets, device=device, config=GraphConfig(memory_limit_bytes=limit))
    runner.warmup()
    return runner


def taken(adapter, device, *buckets):
    before = torch.cuda.memory_reserved()
    runner = GraphRunner(adapter, buckets, device=device)
    runner.warmup()
    found = torch.cuda.memory_reserved() - before
    runner.close()
    return found


def labels(runner):
    return [str(bucket) for bucket in runner.captured]


def test_what_does_not_fit_falls_back_with_its_reason(adapter, cuda):
    limit = taken(adapter, cuda, SMALL, MEDIUM)
    before = torch.cuda.memory_reserved()
    runner = limited(adapter, cuda, [SMALL, MEDIUM, LARGE], limit)
    assert labels(runner) == ["b1-f8", "b2-f8"]
    assert torch.cuda.memory_reserved() - before <= limit
    tensor = codes(4, 16)
    assert torch.allclose(runner(tensor), adapter.module(tensor), atol=1e-4)
    assert dict(runner.statistics.fallbacks) == {"memory_limit": 1}
    snapshot = runner.statistics.snapshot()
    assert (snapshot["graphs_captured"], snapshot["graphs_requested"]) == (2, 3)
    assert snapshot["capture_bytes"].keys() == {"b1-f8", "b2-f8"}


def test_buckets_given_first_are_preferred_and_one_that_is_too_large_does_not_end_the_search(adapter, cuda):
    limit = taken(adapter, cuda, SMALL, MEDIUM)
    assert labels(limited(adapter, cuda, [LARGE, MEDIUM, SMALL], limit)) == ["b1-f8", "b2-f8"]
    assert labels(limited(adapter, cuda, [LARGE, SMALL], taken(adapter, cuda, LARGE))) == ["b4-f16"]


def test_a_limit_that_holds_everything_changes_nothing(adapter, cuda):
    assert len(limited(adapter, cuda, [SMALL, MEDIUM, LARGE], 2**30).captured) == 3


def test_a_limit_below_one_bucket_is_an_error_with_what_is_needed(adapter, cuda):
    needed = taken(adapter, cuda, SMALL)
    with pytest.raises(ConfigError, match=f"memory_limit_bytes must be at least {needed}, .*; found {needed - 1}"):
        limited(adapter, cuda, [LARGE, SMALL], needed - 1)


def test_a_bucket_that_cannot_be_captured_is_failed_and_not_over_the_limit(adapter, cuda):
    forward = adapter.forward

    def failing(tensor):
        if torch.cuda.is_current_stream_capturing() and tensor.shape[0] == 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(tensor)

    adapter.forward = failing
    runner = limited(adapter, cuda, [SMALL, MEDIUM], 2**30)
    runner(codes(2, 8))
    assert (labels(runner), dict(runner.statistics.fallbacks)) == (["b1-f8"], {"capture_failed": 1})


def test_close_gives_back_what_trying_took(adapter, cuda):
    before = torch.cuda.memory_reserved()
    runner = limited(adapter, cuda, [SMALL, MEDIUM, LARGE], taken(adapter, cuda, SMALL, MEDIUM))
    runner.close()
    gc.collect()
    assert torch.cuda.memory_reserved() == before


def test_a_limit_goes_with_a_pool_of_the_runners_own(adapter, cuda):
    config = GraphConfig(memory_limit_bytes=1)
    with pytest.raises(ConfigError, match="pool of the runner's own"):
        GraphRunner(adapter, [SMALL], device=cuda, config=config, pool=torch.cuda.graph_pool_handle())


class Scratch(GraphAdapter):
    """16 MiB of intermediate memory a row."""

    inputs = (InputSpec("x", torch.float32, ("batch",)),)
    outputs = (OutputSpec("y", ("batch",)),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED}

    def forward(self, x):
        return (x[:, None] + torch.zeros(2**22, device=x.device)).amax(dim=1)


@pytest.mark.gpu
def test_a_gpu_gives_no_more_than_the_limit_and_takes_it_back():
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    torch.cuda.empty_cache()
    before, limit = torch.cuda.memory_reserved(), 400 * 2**20
    runner = limited(Scratch(), "cuda", [{"batch": rows} for rows in (2, 32, 8)], limit)
    torch.cuda.empty_cache()
    assert labels(runner) == ["b2", "b8"]
    assert 8 * 2**24 <= torch.cuda.memory_reserved() - before <= limit
    x = torch.rand(32, device="cuda")
    assert torch.equal(runner(x), x)
    assert torch.equal(runner(x[:7]), x[:7])
    assert (dict(runner.statistics.fallbacks), runner.statistics.snapshot()["hits"]) == ({"memory_limit": 1}, 1)
    del x
    runner.close()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == before
