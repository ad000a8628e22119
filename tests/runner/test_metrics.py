"""The Prometheus collector and the start-up line say what the statistics say."""

import json
import logging

import pytest
import torch
from codecs_for_tests import CodecAdapter, codes

from runner import GraphRunner

prometheus_client = pytest.importorskip("prometheus_client")
BUCKETS = [{"batch": 1, "frames": 8}, {"batch": 2, "frames": 8}]


@pytest.fixture
def runner(cuda):
    runner = GraphRunner(CodecAdapter(cuda), BUCKETS, device=cuda)
    runner.warmup()
    return runner


def test_every_counter_is_a_metric_in_vllms_style(runner):
    from runner.metrics import GraphCollector

    registry = prometheus_client.CollectorRegistry()
    registry.register(GraphCollector({"code2wav": runner}))
    for batch, frames in [(1, 5), (1, 8), (1, 99)]:
        runner(codes(batch, frames))

    def value(name, **labels):
        return registry.get_sample_value(f"vllm:inner_cudagraph_{name}", {"component": "code2wav", **labels})

    assert value("hits_total", bucket="b1-f8") == 2
    assert value("fallbacks_total", reason="no_bucket") == 1
    assert (value("padded_elements_total"), value("computed_elements_total")) == (3, 16)
    assert (value("captured"), value("requested")) == (2, 2)
    assert (value("replay_errors_total"), value("evictions_total")) == (0, 0)
    assert value("capture_bytes", bucket="b2-f8") == runner.statistics.snapshot()["capture_bytes"]["b2-f8"] > 0
    assert value("capture_seconds", bucket="b1-f8") > 0


def test_a_snapshot_is_json(runner):
    runner(codes(1, 5))
    assert json.loads(json.dumps(runner.statistics.snapshot())) == runner.statistics.snapshot()


def test_one_line_at_start_up_and_none_on_the_hot_path(cuda, caplog):
    caplog.set_level(logging.DEBUG, logger="runner")
    runner = GraphRunner(CodecAdapter(cuda), BUCKETS, device=cuda)
    runner.warmup()
    (record,) = caplog.records
    assert record.getMessage().startswith("CUDA graphs of CodecAdapter: 2 of 2 captured, ")
    assert record.getMessage().endswith(" MiB")
    for frames in (5, 8, 99):
        runner(codes(1, frames))
    tensor = codes(1, 8)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        runner(tensor)
    assert len(caplog.records) == 1
