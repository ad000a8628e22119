"""Lazy capture: a bucket's graph is made by the first call that needs it, and the least recently used goes."""

import gc
import threading
import weakref

import torch
from codecs_for_tests import codes, fail_at, in_threads, raise_error

from runner import GraphConfig, GraphRunner

BUCKETS = [{"batch": 1, "frames": 8}, {"batch": 2, "frames": 8}, {"batch": 4, "frames": 16}]


def lazy(adapter, device, most=8):
    runner = GraphRunner(adapter, BUCKETS, device=device, config=GraphConfig(lazy=True, max_lazy_graphs=most))
    runner.warmup()
    return runner


def labels(runner):
    return [str(bucket) for bucket in runner.captured]


def right(runner, tensor):
    return torch.allclose(runner(tensor), runner._adapter.module(tensor), atol=1e-4)


def test_warm_up_captures_nothing_and_the_first_call_of_a_bucket_captures_and_replays_it(adapter, cuda):
    runner = lazy(adapter, cuda)
    assert (adapter.forwards, labels(runner)) == (0, [])
    assert right(runner, codes(1, 5))
    assert labels(runner) == ["b1-f8"]
    assert runner.statistics.snapshot()["hits_per_bucket"] == {"b1-f8": 1}
    forwards = adapter.forwards
    assert runner(codes(1, 8)).shape[0] == 1
    assert adapter.forwards == forwards, "a second call captures nothing"


def test_the_result_of_the_call_that_captured_is_the_callers(adapter, cuda):
    runner = lazy(adapter, cuda)
    first = runner(codes(1, 8, seed=1))
    kept = first.clone()
    runner(codes(1, 8, seed=2))
    assert torch.equal(first, kept)


def test_what_no_bucket_holds_is_never_captured(adapter, cuda):
    runner = lazy(adapter, cuda)
    for _ in range(3):
        runner(codes(1, 17))
    assert (labels(runner), dict(runner.statistics.fallbacks)) == ([], {"no_bucket": 3})


def test_nothing_is_captured_inside_an_outer_capture(adapter, cuda):
    runner = lazy(adapter, cuda)
    outer, tensor = torch.cuda.CUDAGraph(), codes(1, 8)
    with torch.cuda.graph(outer):
        inner = runner(tensor)
    outer.replay()
    assert torch.allclose(inner, adapter.module(tensor), atol=1e-4)
    assert (labels(runner), dict(runner.statistics.fallbacks)) == ([], {"outer_capture": 1})
    assert right(runner, tensor)
    assert labels(runner) == ["b1-f8"]


def test_threads_that_need_the_same_graph_capture_it_once(adapter, cuda):
    runner, barrier, wrong = lazy(adapter, cuda), threading.Barrier(4), []
    module, captures = adapter.forward, []

    def counted(tensor):
        captures.append(torch.cuda.is_current_stream_capturing())
        return module(tensor)

    adapter.forward = counted

    def call(seed):
        tensor = codes(1, 8, seed=seed)
        barrier.wait()
        found = runner(tensor)
        if not torch.allclose(found, adapter.module(tensor), atol=1e-4):
            wrong.append(seed)

    in_threads(call, 4)
    assert (sum(captures), wrong) == (1, [])
    assert runner.statistics.snapshot()["hits_per_bucket"] == {"b1-f8": 4}


def test_the_least_recently_used_graph_goes_and_its_memory_with_it(adapter, cuda):
    runner = lazy(adapter, cuda, most=2)
    runner(codes(1, 8))
    runner(codes(2, 8))
    runner(codes(1, 8))  # now b2-f8 is the least recently used
    gone = weakref.ref(runner._graphs[runner._requested.lookup({"batch": 2, "frames": 8})].static["codes"])
    assert right(runner, codes(4, 16))
    gc.collect()
    assert (labels(runner), gone()) == (["b1-f8", "b4-f16"], None)
    snapshot = runner.statistics.snapshot()
    assert (snapshot["evictions"], snapshot["graphs_captured"]) == (1, 2)
    assert right(runner, codes(1, 8))
    assert right(runner, codes(2, 8)), "what went is captured again when it is called for again"
    assert runner.statistics.snapshot()["evictions"] == 2


def test_a_call_whose_graph_went_after_it_was_decided_runs_eagerly(adapter, cuda):
    runner = lazy(adapter, cuda, most=1)
    runner(codes(1, 8))
    decide = runner._decide

    def overtaken(inputs):
        decision = decide(inputs)
        runner._decide = decide
        runner(codes(2, 8))  # another thread's call, which evicts b1-f8
        return decision

    runner._decide = overtaken
    assert right(runner, codes(1, 5))
    assert dict(runner.statistics.fallbacks) == {"not_captured": 1}


def test_threads_and_evictions_never_give_another_calls_samples(adapter, cuda):
    runner, wrong = lazy(adapter, cuda, most=1), []

    def serve(batch):
        for seed in range(15):
            tensor = codes(batch, 8, seed=seed)
            if not torch.allclose(runner(tensor), adapter.module(tensor), atol=1e-4):
                wrong.append((batch, seed))

    threads = [threading.Thread(target=serve, args=(batch,)) for batch in (1, 2, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    snapshot = runner.statistics.snapshot()
    assert (wrong, snapshot["calls"], len(runner.captured)) == ([], 45, 1)


def test_a_bucket_that_failed_is_not_tried_again(adapter, cuda):
    forward, tries = adapter.forward, []

    def failing(tensor):
        if torch.cuda.is_current_stream_capturing():
            tries.append(tensor.shape[0])
            raise RuntimeError("boom")
        return forward(tensor)

    adapter.forward = failing
    runner = lazy(adapter, cuda)
    for _ in range(3):
        assert right(runner, codes(4, 16))
    assert (tries, list(map(str, runner.failed))) == ([4], ["b4-f16"])
    assert dict(runner.statistics.fallbacks) == {"capture_failed": 3}


def test_a_lazy_capture_leaves_random_numbers_as_they_were(adapter, cuda):
    forward = adapter.forward
    adapter.forward = lambda tensor: forward(tensor) + 0 * torch.rand(1).item()
    runner = lazy(adapter, cuda)
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    runner(codes(1, 8))
    assert torch.equal(torch.rand(1), expected)


def test_a_closed_runner_captures_nothing(adapter, cuda):
    runner = lazy(adapter, cuda)
    runner(codes(1, 8))
    runner.close()
    assert right(runner, codes(2, 8))
    assert (labels(runner), dict(runner.statistics.fallbacks)) == ([], {"closed": 1})


def test_what_is_known_of_a_size_holds_until_other_graphs_serve(adapter, cuda):
    runner = lazy(adapter, cuda, most=1)
    for rows in (1, 2, 1, 2):
        assert right(runner, codes(rows, 8))
        assert right(runner, codes(rows, 17))
    assert dict(runner.statistics.fallbacks) == {"no_bucket": 4}
    assert runner.statistics.snapshot()["hits"] == 4
    runner.close()
    runner(codes(1, 8))
    runner(codes(1, 17))
    assert dict(runner.statistics.fallbacks) == {"no_bucket": 4, "closed": 2}


def test_a_size_whose_own_bucket_failed_is_served_by_a_larger_one_from_then_on(adapter, cuda):
    fail_at(adapter, 1, raise_error(RuntimeError("no")))
    runner = lazy(adapter, cuda)
    for _ in range(3):
        runner(codes(1, 8))
    assert dict(runner.statistics.fallbacks) == {"capture_failed": 1}
    assert runner.statistics.snapshot()["hits_per_bucket"] == {"b2-f8": 2}


def test_what_failed_is_copied_for_whoever_reads_it_meanwhile(adapter, cuda):
    fail_at(adapter, 1, raise_error(RuntimeError("no")))
    runner = lazy(adapter, cuda)
    runner(codes(1, 8))
    assert list(map(str, runner.failed)) == ["b1-f8"]
    assert runner.statistics.failed == runner.failed
    assert runner.statistics.failed is not runner.failed


def test_an_ineligible_call_waits_for_no_capture(adapter, cuda):
    runner = lazy(adapter, cuda)
    with runner._lock:  # as during another thread's capture
        runner(codes(1, 8).int())
    assert dict(runner.statistics.fallbacks) == {"ineligible:dtype": 1}
