"""Calls that no graph serves, with their reasons, and failures that cost no more than their bucket."""

import gc
import os
import weakref

import pytest
import torch
from codecs_for_tests import BUCKETS, HOP, CodecAdapter, codes, fail_at, only_fallback, raise_error, warm

from runner import EXACT, AdapterError, GraphConfig, GraphRunner

# Fallback


def test_calls_before_warm_up_are_eager(adapter, cuda):
    runner = GraphRunner(adapter, BUCKETS, device=cuda)
    runner(codes(1, 8))
    assert only_fallback(runner) == "not_captured"


def test_calls_during_warm_up_are_eager(adapter, cuda):
    runner = GraphRunner(adapter, BUCKETS, device=cuda)
    forward, seen = adapter.forward, []

    def calling(tensor):
        seen.append(runner.captured)
        return forward(tensor)

    adapter.forward = calling
    runner.warmup()
    assert set(seen) == {()}
    assert len(runner.captured) == 3


@pytest.mark.parametrize("config", [{"enabled": False}, {"enforce_eager": True}, {"cudagraph_mode": "NONE"}])
def test_a_switch_means_no_capture_at_all(adapter, cuda, config):
    runner = warm(adapter, cuda, config=GraphConfig(**config))
    assert adapter.forwards == 0
    runner(codes(1, 8))
    assert (runner.enabled, only_fallback(runner), runner.captured) == (False, "disabled", ())


def test_graphs_that_are_turned_off_later_serve_no_call_from_then_on(runner, adapter):
    runner(codes(1, 8))
    runner.enabled = False
    runner(codes(1, 8))
    assert (only_fallback(runner), runner.statistics.snapshot()["hits"]) == ("disabled", 1)


def test_an_override_is_logged(adapter, cuda, caplog):
    assert GraphRunner(adapter, BUCKETS, device=cuda, config=GraphConfig(enabled=True, enforce_eager=True)).enabled
    assert "enabled=True overrides enforce_eager=True" in caplog.text


def test_a_cpu_device_runs_eagerly_and_needs_no_cuda():
    runner = warm(CodecAdapter("cpu"), "cpu")
    assert runner(codes(1, 8, "cpu")).shape == (1, 1, 8 * HOP - 2)
    assert only_fallback(runner) == "disabled"


def test_a_call_inside_an_outer_capture_is_captured_eagerly_and_later_calls_replay(runner, adapter):
    tensor, outer = codes(1, 8), torch.cuda.CUDAGraph()
    with torch.cuda.graph(outer):
        inner = runner(tensor)
    outer.replay()
    assert torch.allclose(inner, adapter.module(tensor), atol=1e-4)
    assert only_fallback(runner) == "outer_capture"
    runner(tensor)
    assert runner.statistics.snapshot()["hits_per_bucket"] == {"b1-f8": 1}


def test_warm_up_inside_an_outer_capture_is_refused_with_the_cure(adapter, cuda):
    runner = GraphRunner(adapter, BUCKETS, device=cuda)
    with torch.cuda.graph(torch.cuda.CUDAGraph()), pytest.raises(RuntimeError, match="before the capture begins"):
        runner.warmup()
    runner.warmup()
    assert len(runner.captured) == 3


def test_a_size_that_no_bucket_holds_is_eager(runner):
    runner(codes(1, 17))
    assert only_fallback(runner) == "no_bucket"


def test_an_exact_axis_is_never_padded(cuda):
    class Exact(CodecAdapter):
        axes = {"batch": EXACT, "frames": EXACT}  # noqa: RUF012

    runner = warm(Exact(cuda), cuda)
    runner(codes(1, 7))
    assert only_fallback(runner) == "no_bucket"


def test_a_contradicting_input_runs_what_eager_runs(runner):
    assert runner(codes(1, 8).int()).shape == (1, 1, 8 * HOP - 2)
    assert only_fallback(runner) == "ineligible:dtype"


def test_an_adapters_own_word_is_the_reason(adapter, cuda):
    adapter.ineligible = lambda codes: "streaming"
    runner = warm(adapter, cuda)
    runner(codes(1, 8))
    assert only_fallback(runner) == "ineligible:streaming"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_runs_eagerly(runner):
    runner(codes(1, 8))
    if not (child := os.fork()):
        runner(codes(1, 8))
        os._exit(dict(runner.statistics.fallbacks) != {"forked": 1})
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    runner(codes(1, 8))
    assert runner.statistics.snapshot()["hits"] == 2


# Failure


@pytest.mark.parametrize("fault", [raise_error(RuntimeError("boom")), lambda tensor: tensor.sum().item()])
def test_a_failed_capture_degrades_its_bucket_alone(adapter, cuda, caplog, fault):
    fail_at(adapter, 4, fault)
    before = torch.cuda.current_stream()
    runner = warm(adapter, cuda)
    assert torch.cuda.current_stream() == before
    assert [str(bucket) for bucket in runner.captured] == ["b1-f8", "b2-f8"]
    assert [str(bucket) for bucket in runner.failed] == ["b4-f16"]
    assert "capture of bucket b4-f16 failed" in caplog.text
    assert torch.allclose(runner(codes(1, 5)), adapter.module(codes(1, 5)), atol=1e-4)
    assert torch.allclose(runner(codes(4, 9)), adapter.module(codes(4, 9)), atol=1e-4)
    snapshot = runner.statistics.snapshot()
    assert (snapshot["hits"], snapshot["fallbacks"]) == (1, {"capture_failed": 1})
    assert (snapshot["graphs_captured"], snapshot["graphs_requested"]) == (2, 3)
    assert list(snapshot["capture_failures"]) == ["b4-f16"]


def test_a_larger_captured_bucket_serves_the_sizes_of_a_failed_one(adapter, cuda):
    fail_at(adapter, 1, raise_error(RuntimeError("boom")))
    runner = warm(adapter, cuda)
    runner(codes(1, 8))
    assert runner.statistics.snapshot()["hits_per_bucket"] == {"b2-f8": 1}


def test_all_captures_failed_is_visible(adapter, cuda):
    for batch in (1, 2, 4):
        fail_at(adapter, batch, raise_error(RuntimeError("boom")))
    runner = warm(adapter, cuda)
    runner(codes(1, 8))
    assert (runner.captured, only_fallback(runner)) == ((), "capture_failed")
    assert set(runner.failed.values()) == {"RuntimeError: boom"}


def test_running_out_of_memory_in_a_capture_leaves_only_that_bucket_eager(adapter, cuda):
    fail_at(adapter, 4, raise_error(torch.OutOfMemoryError("CUDA out of memory")))
    runner = warm(adapter, cuda)
    runner(codes(4, 16))
    assert only_fallback(runner) == "capture_failed"
    assert [str(bucket) for bucket in runner.failed] == [
        str(bucket) for bucket in runner.failed if bucket["batch"] == 4
    ]


def test_a_failed_capture_keeps_no_static_buffer(adapter, cuda):
    seen = []
    fail_at(adapter, 4, lambda tensor: (seen.append(weakref.ref(tensor)), tensor.sum().item()))
    warm(adapter, cuda)
    gc.collect()
    assert [reference() for reference in seen] == [None]


def test_a_shape_that_the_declaration_does_not_promise_fails_its_capture(adapter, cuda):
    adapter.module.forward = lambda tensor: tensor.new_zeros(tensor.shape[0], 2, 9)
    runner = warm(adapter, cuda, buckets=BUCKETS[:1])
    assert "expected [[1, 1, 'samples']], found [[1, 2, 9]]" in next(iter(runner.failed.values()))


@pytest.mark.parametrize("step", ["load", "unload"])
def test_an_error_in_a_replay_propagates_and_is_counted(runner, adapter, step):
    def broken(*_):
        raise ValueError("broken")

    setattr(adapter, step, broken)
    with pytest.raises(ValueError, match="broken"):
        runner(codes(1, 8))
    snapshot = runner.statistics.snapshot()
    assert (snapshot["calls"], snapshot["replay_errors"], snapshot["hits"], snapshot["fallbacks"]) == (1, 1, 0, {})


def test_an_error_on_the_way_to_a_replay_propagates_and_is_counted(adapter, cuda):
    def broken(**_):
        raise ValueError("broken")

    adapter.ineligible = broken
    runner = warm(adapter, cuda)
    with pytest.raises(ValueError, match="broken"):
        runner(codes(1, 8))
    snapshot = runner.statistics.snapshot()
    assert (snapshot["calls"], snapshot["replay_errors"], snapshot["hits"], snapshot["fallbacks"]) == (1, 1, 0, {})


def test_an_adapter_whose_sizes_are_missing_is_refused_at_construction(adapter, cuda):
    adapter.sizes = {}
    with pytest.raises(AdapterError, match="n_vq"):
        GraphRunner(adapter, BUCKETS, device=cuda)


# What is remembered of a size


class Lookalike:
    """Has what a tensor is known by, and is none."""

    def __init__(self, tensor):
        self.shape, self.dtype, self.device = tensor.shape, tensor.dtype, tensor.device


@pytest.mark.parametrize("first", [True, False])
def test_what_only_looks_like_a_tensor_is_ineligible_and_spoils_nothing(runner, adapter, first):
    adapter.forward = lambda tensor: tensor
    calls = [codes(1, 8), codes(1, 8)]
    calls.insert(0 if first else 1, Lookalike(codes(1, 8)))
    for call in calls:
        runner(call)
    assert (only_fallback(runner), runner.statistics.snapshot()["hits"]) == ("ineligible:not_a_tensor", 2)


def test_sizes_without_a_bucket_take_the_place_of_no_plan(runner, adapter):
    adapter.forward = lambda tensor: tensor
    for frames in range(17, 17 + 2100):
        runner(codes(1, 1).expand(1, -1, frames))
    runner(codes(1, 8))
    plan = runner._decide((codes(1, 8),))
    assert runner._decide((codes(1, 8),)) is plan


def test_a_word_of_the_moment_is_asked_for_again(runner, adapter):
    measure = adapter.measure
    adapter.measure = lambda *arguments: "busy"
    runner(codes(1, 8))
    adapter.measure = measure
    runner(codes(1, 8))
    assert (only_fallback(runner), runner.statistics.snapshot()["hits"]) == ("ineligible:busy", 1)


def test_a_part_of_another_dtype_is_given_at_every_size(adapter, cuda):
    kept = adapter.kept
    adapter.kept = lambda *arguments: {name: part.view(torch.int32) for name, part in kept(*arguments).items()}
    runner = warm(adapter, cuda)
    assert {runner(codes(1, frames)).dtype for frames in (5, 8)} == {torch.int32}
    assert runner.statistics.snapshot()["hits"] == 2
