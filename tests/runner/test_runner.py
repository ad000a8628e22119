"""The life of a runner: warm-up, replay, fallback with its reason, failure, close."""

import gc
import re
import weakref

import pytest
import torch
from codecs_for_tests import (
    HOP,
    N_VQ,
    CodecAdapter,
    CountedRowsAdapter,
    NoisyStreamAdapter,
    RowsAdapter,
    codes,
    in_threads,
    only_fallback,
    warm,
)

from runner import AdapterError, GraphConfig, InputSpec

# Warm-up


def test_warm_up_leaves_the_random_numbers_of_host_and_device_as_they_were(cuda):
    def drawn():
        return torch.rand(1).item(), torch.rand(1, device=cuda).item()

    buckets = [{"batch": 1, "frames": 8, "cached": 0}]
    torch.manual_seed(0)
    expected = drawn()
    for adapter in (NoisyStreamAdapter(cuda), HostNoiseAdapter(cuda)):
        torch.manual_seed(0)
        assert len(warm(adapter, cuda, buckets).captured) == 1
        assert drawn() == expected


class HostNoiseAdapter(NoisyStreamAdapter):
    def forward(self, codes, last):
        torch.rand(1)
        return super().forward(codes, last)


# Replay


@pytest.mark.parametrize("cached", [0, 4])
def test_an_exact_input_may_be_empty_and_still_replays(cuda, cached):
    runner = warm(NoisyStreamAdapter(cuda), cuda, [{"batch": 1, "frames": 8, "cached": size} for size in (0, 4)])
    inputs = codes(1, 8), torch.ones(1, 1, cached, device=cuda)
    torch.manual_seed(0)
    found = runner(*inputs)
    torch.manual_seed(0)
    assert torch.equal(found, runner._adapter.forward(*inputs))
    assert runner.statistics.snapshot()["hits_per_bucket"] == {f"b1-f8-c{cached}": 1}


@pytest.mark.parametrize("batch", [1, 2, 3, 4])
@pytest.mark.parametrize("frames", [1, 5, 7, 8, 9, 16])
def test_a_replay_equals_eager_at_every_size(runner, adapter, batch, frames):
    tensor = codes(batch, frames)
    with torch.no_grad():
        expected = adapter.module(tensor)
    forwards = adapter.forwards
    found = runner(tensor)
    assert found.shape == (batch, 1, frames * HOP - 2)
    assert torch.allclose(found, expected, atol=1e-4)
    assert adapter.forwards == forwards, "a replay runs no Python"


def test_a_short_call_after_a_long_one_sees_no_stale_pad(adapter, cuda):
    adapter.module.forward = lambda tensor: tensor.sum((1, 2), keepdim=True).expand(-1, 1, HOP * tensor.shape[-1] - 2)
    runner = warm(adapter, cuda)
    runner(codes(2, 8))
    short = codes(1, 3)
    assert int(runner(short)[0, 0, 0]) == int(short.sum())


@pytest.mark.parametrize("frames", [8, 5, 17])
def test_no_gradient_is_kept_whoever_serves_the_call(runner, frames):
    runner._adapter.module.kernel.requires_grad_()
    assert runner._adapter.forward(codes(1, frames)).requires_grad
    assert not runner(codes(1, frames)).requires_grad
    assert torch.is_grad_enabled()


def test_results_never_share_memory_with_the_next_replay(runner):
    first = runner(codes(1, 8, seed=1))
    kept = first.clone()
    second = runner(codes(1, 8, seed=2))
    assert torch.equal(first, kept)
    assert not torch.equal(first, second)


def test_inputs_are_left_as_they_were(runner):
    tensor = codes(1, 5)
    kept = tensor.clone()
    runner(tensor)
    assert torch.equal(tensor, kept)


def test_inputs_bind_by_name_and_by_position(runner):
    assert torch.equal(runner(codes=codes(1, 8)), runner(codes(1, 8)))


def test_inputs_of_one_shape_keep_their_names_in_any_order(cuda):
    class Two(CodecAdapter):
        inputs = (*CodecAdapter.inputs, InputSpec("gain", torch.float32, ("batch", "frames")))

        def forward(self, tensor, gain):
            return super().forward(tensor) * gain.mean()

    runner = warm(Two(cuda), cuda)
    tensor, gain = codes(1, 8), torch.full((1, 8), 3.0, device=cuda)
    assert torch.equal(runner(tensor, gain), runner(gain=gain, codes=tensor))


@pytest.mark.parametrize(("args", "kwargs"), [(0, ()), (2, ()), (1, ("codes",)), (0, ("code",)), (1, ("lengths",))])
def test_wrong_names_are_refused_and_not_counted(runner, args, kwargs):
    found = f"each once; found {args} by position and {list(kwargs)} by name"
    with pytest.raises(AdapterError, match=re.escape(f"takes the inputs ['codes'], {found}")):
        runner(*[codes(1, 8)] * args, **dict.fromkeys(kwargs, codes(1, 8)))
    assert runner.statistics.snapshot()["calls"] == 0


def test_a_warm_up_under_inference_mode_serves_calls_outside_it(adapter, cuda):
    with torch.inference_mode():
        runner = warm(adapter, cuda)
    assert torch.allclose(runner(codes(1, 5)), adapter.module(codes(1, 5)), atol=1e-4)
    assert runner.statistics.snapshot()["hits_per_bucket"] == {"b1-f8": 1}


def test_outputs_keep_the_structure_of_forward(cuda):
    class Nested(CodecAdapter):
        def forward(self, tensor):
            return {"audio": [super().forward(tensor)]}

    runner = warm(Nested(cuda), cuda)
    assert runner(codes(1, 5))["audio"][0].shape == (1, 1, 5 * HOP - 2)
    assert runner.statistics.snapshot()["hits_per_bucket"] == {"b1-f8": 1}


# Per-row lengths


@pytest.mark.parametrize("config", [GraphConfig(), GraphConfig(enabled=False)])
def test_rows_are_cut_to_the_lengths_of_a_host_input_on_both_paths(cuda, config):
    adapter = RowsAdapter(cuda)
    runner = warm(adapter, cuda, config=config)
    tensor = codes(3, 7)
    whole = adapter.forward(tensor)
    rows = runner(tensor, torch.tensor([7, 0, 3]))
    assert [tuple(row.shape) for row in rows] == [(1, 7 * HOP), (1, 0), (1, 3 * HOP)]
    assert torch.allclose(rows[2], whole[2, :, : 3 * HOP], atol=1e-4)
    assert runner.statistics.snapshot()["hits"] == (config.enabled is None)


@pytest.mark.parametrize("config", [GraphConfig(), GraphConfig(enabled=False)])
def test_a_row_longer_than_its_call_is_refused_on_both_paths(cuda, config):
    runner = warm(RowsAdapter(cuda), cuda, config=config)
    with pytest.raises(AdapterError):
        runner(codes(1, 5), torch.tensor([6]))


@pytest.mark.parametrize("config", [GraphConfig(), GraphConfig(enabled=False)])
def test_rows_are_cut_to_lengths_that_the_module_returns(cuda, config):
    runner = warm(CountedRowsAdapter(cuda), cuda, config=config)
    tensor = codes(2, 6)
    tensor[1, 0, 4:] = 0
    found = runner(tensor)
    assert [row.shape[-1] for row in found["wav"]] == [6 * HOP, 4 * HOP]
    assert found["samples"].tolist() == [6 * HOP, 4 * HOP]


@pytest.mark.parametrize("config", [GraphConfig(), GraphConfig(enabled=False)])
def test_lengths_may_be_more_than_the_rows_of_a_call(cuda, config):
    class PaddedLengths(RowsAdapter):
        inputs = (*CodecAdapter.inputs, InputSpec("lengths", torch.long, ("most",), host=True))

    adapter = PaddedLengths(cuda)
    adapter.sizes = {**adapter.sizes, "most": 4}
    runner = warm(adapter, cuda, config=config)
    rows = runner(codes(2, 7), torch.tensor([7, 3, 99, 99]))
    assert [tuple(row.shape) for row in rows] == [(1, 7 * HOP), (1, 3 * HOP)]
    assert runner.statistics.snapshot()["hits"] == (config.enabled is None)


def test_rows_stay_whole_where_an_outer_capture_forbids_reading_their_lengths(cuda):
    runner = warm(CountedRowsAdapter(cuda), cuda)
    tensor = codes(2, 6)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        rows = runner(tensor)["wav"]
    assert [tuple(row.shape) for row in rows] == [(1, 6 * HOP)] * 2
    assert only_fallback(runner) == "outer_capture"


# Warm-up, threads, close


def test_a_second_warm_up_does_nothing(runner, adapter):
    forwards = adapter.forwards
    runner.warmup()
    assert adapter.forwards == forwards == 3 * (2 + 1)


def test_buckets_are_captured_largest_first_into_the_given_pool(adapter, cuda):
    seen, forward = [], adapter.forward
    adapter.forward = lambda tensor: (seen.append(tuple(tensor.shape)), forward(tensor))[1]
    pool = torch.cuda.graph_pool_handle()
    runner = warm(adapter, cuda, pool=pool, config=GraphConfig(warmup_iterations=1))
    assert seen == [shape for b, f in [(4, 16), (2, 8), (1, 8)] for shape in [(b, N_VQ, f)] * 2]
    assert {captured.graph.pool() for captured in runner._graphs.values()} == {pool}


def test_two_threads_never_mix_their_inputs(runner, adapter):
    tensors = [codes(1, 5, seed=seed) for seed in range(4)]
    expected = [adapter.module(tensor) for tensor in tensors]
    wrong = []

    def serve(position):
        for _ in range(20):
            if not torch.allclose(runner(tensors[position]), expected[position], atol=1e-4):
                wrong.append(position)

    in_threads(serve, 4)
    assert wrong == []
    assert runner.statistics.snapshot()["hits"] == 80


def test_a_closed_runner_holds_nothing_and_runs_eagerly(runner, adapter):
    static = weakref.ref(next(iter(runner._graphs.values())).static["codes"])
    runner.close()
    runner.close()
    gc.collect()
    assert static() is None
    runner.warmup()
    assert torch.allclose(runner(codes(1, 5)), adapter.module(codes(1, 5)), atol=1e-4)
    assert (only_fallback(runner), runner.captured) == ("closed", ())


# Statistics


def test_the_counters_reconcile(runner):
    for batch, frames in [(1, 5), (1, 8), (2, 7), (1, 99)]:
        runner(codes(batch, frames))
    snapshot = runner.statistics.snapshot()
    assert snapshot["calls"] == 4
    assert snapshot["hits_per_bucket"] == {"b1-f8": 2, "b2-f8": 1}
    assert snapshot["fallbacks"] == {"no_bucket": 1}
    assert (snapshot["padded_elements"], snapshot["computed_elements"]) == (3 + 0 + 2, 8 + 8 + 16)
    assert snapshot["padded_share"] == 5 / 32
    assert snapshot["capture_seconds"].keys() == snapshot["capture_bytes"].keys() == {"b1-f8", "b2-f8", "b4-f16"}


def test_a_call_that_was_decided_before_close_runs_eagerly(adapter, cuda):
    adapter.ineligible = lambda codes: runner.close()
    runner = warm(adapter, cuda)
    assert runner(codes(1, 5)).shape == (1, 1, 5 * HOP - 2)
    assert only_fallback(runner) == "closed"
