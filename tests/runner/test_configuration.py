"""Every wrong configuration is one error with field, value and what is allowed; vLLM's own objects are read."""

import re

import pytest
import torch
from codecs_for_tests import CodecAdapter, codes

from runner import ConfigError, GraphConfig, GraphRunner, decide_enabled
from runner.config import cudagraph_mode_name

COUNT = "must be an int of at least 1"
SIZES = "must list ints from 1 to 4096"


@pytest.mark.parametrize(
    ("fields", "field", "allowed", "found"),
    [
        ({"cudagraph_mode": "FUL"}, "cudagraph_mode", "must be one of NONE, PIECEWISE, FULL, ", "'FUL'"),
        ({"cudagraph_mode": 7}, "cudagraph_mode", "must be one of NONE, PIECEWISE, FULL, ", "7"),
        ({"enabled": "yes"}, "enabled", "must be True or False or None", "'yes'"),
        ({"enforce_eager": None}, "enforce_eager", "must be True or False", "None"),
        ({"lazy": 1}, "lazy", "must be True or False", "1"),
        ({"compile": "inductor"}, "compile", "must be True or False", "'inductor'"),
        ({"warmup_iterations": 0}, "warmup_iterations", COUNT, "0"),
        ({"warmup_iterations": None}, "warmup_iterations", COUNT, "None"),
        ({"memory_limit_bytes": 0}, "memory_limit_bytes", f"{COUNT} or None", "0"),
        ({"memory_limit_bytes": 1.5e9}, "memory_limit_bytes", f"{COUNT} or None", "1500000000.0"),
        ({"max_lazy_graphs": -1}, "max_lazy_graphs", f"{COUNT} or None", "-1"),
        ({"lazy": True}, "max_lazy_graphs", COUNT, "None"),
        ({"cudagraph_capture_sizes": [1, 2.0]}, "cudagraph_capture_sizes", SIZES, "[1, 2.0]"),
        ({"cudagraph_capture_sizes": [1, "2"]}, "cudagraph_capture_sizes", SIZES, "[1, '2']"),
        ({"cudagraph_capture_sizes": [True]}, "cudagraph_capture_sizes", SIZES, "[True]"),
        ({"cudagraph_capture_sizes": [0]}, "cudagraph_capture_sizes", SIZES, "[0]"),
        ({"cudagraph_capture_sizes": [1, 4097]}, "cudagraph_capture_sizes", SIZES, "[1, 4097]"),
        ({"cudagraph_capture_sizes": []}, "cudagraph_capture_sizes", SIZES, "[]"),
        ({"cudagraph_capture_sizes": 8}, "cudagraph_capture_sizes", SIZES, "8"),
        ({"cudagraph_capture_sizes": "1,2"}, "cudagraph_capture_sizes", SIZES, "'1,2'"),
    ],
)
def test_a_wrong_field_is_one_error_with_value_and_what_is_allowed(fields, field, allowed, found):
    with pytest.raises(ConfigError, match=re.escape(f"{field} {allowed}") + f".*found {re.escape(found)}$"):
        GraphConfig(**fields)


def test_lazy_capture_and_a_memory_limit_exclude_each_other():
    with pytest.raises(ConfigError, match=r"memory_limit_bytes .* with lazy=True give max_lazy_graphs"):
        GraphConfig(lazy=True, max_lazy_graphs=2, memory_limit_bytes=1)


def test_buckets_of_more_rows_than_the_largest_capture_size_are_not_captured(cuda):
    buckets = [{"batch": rows, "frames": 8} for rows in (1, 2, 4)]
    config = GraphConfig(cudagraph_capture_sizes=[1, 2])
    runner = GraphRunner(CodecAdapter(cuda), buckets, device=cuda, config=config)
    runner.warmup()
    assert [str(bucket) for bucket in runner.captured] == ["b1-f8", "b2-f8"]
    runner(codes(4, 8))
    assert dict(runner.statistics.fallbacks) == {"no_bucket": 1}


@pytest.mark.parametrize("rows", [9, 12])
def test_the_compile_tier_compiles_more_buckets_than_torch_remembers_sizes_for(cuda, rows):
    buckets = [{"batch": 1, "frames": size} for size in range(1, rows + 1)]
    runner = GraphRunner(CodecAdapter(cuda), buckets, device=cuda, config=GraphConfig(compile=True))
    runner.warmup()
    assert (len(runner.captured), runner.failed) == (rows, {})
    assert torch.allclose(runner(codes(1, rows)), runner._adapter.module(codes(1, rows)), atol=1e-3)


class Section:
    """The parts of a VllmConfig that are read, made of vLLM's own classes."""

    def __init__(self, compilation, enforce_eager=False, additional=None):
        self.compilation_config = compilation
        self.model_config = type("ModelConfig", (), {"enforce_eager": enforce_eager})()
        self.additional_config = additional or {}


@pytest.mark.vllm
def test_vllms_own_compilation_config_is_read_in_every_mode():
    vllm = pytest.importorskip("vllm.config.compilation")
    assert {mode.name for mode in vllm.CUDAGraphMode} == set(filter(None, map(cudagraph_mode_name, vllm.CUDAGraphMode)))
    for mode in vllm.CUDAGraphMode:
        compilation = vllm.CompilationConfig(cudagraph_mode=mode, cudagraph_capture_sizes=[1, 2, 8])
        config = GraphConfig.from_vllm_config(Section(compilation), "code2wav")
        assert config.cudagraph_capture_sizes == (1, 2, 8)
        enabled, _ = decide_enabled("cuda", config)
        assert (enabled, cudagraph_mode_name(config.cudagraph_mode)) == (mode.name != "NONE", mode.name)


@pytest.mark.vllm
def test_a_default_compilation_config_leaves_graphs_on_and_enforce_eager_turns_them_off():
    compilation = pytest.importorskip("vllm.config.compilation").CompilationConfig()
    assert decide_enabled("cuda", GraphConfig.from_vllm_config(Section(compilation), "codec")) == (True, "")
    eager = GraphConfig.from_vllm_config(Section(compilation, enforce_eager=True), "codec")
    assert decide_enabled("cuda", eager) == (False, "enforce_eager=True")


@pytest.mark.vllm
def test_a_components_section_wins_over_vllms_fields():
    compilation = pytest.importorskip("vllm.config.compilation").CompilationConfig(cudagraph_mode="NONE")
    additional = {"audiograph": {"codec": {"enabled": True, "lazy": True, "max_lazy_graphs": 4}}}
    config = GraphConfig.from_vllm_config(Section(compilation, additional=additional), "codec")
    assert (config.lazy, config.max_lazy_graphs) == (True, 4)
    assert decide_enabled("cuda", config) == (True, "enabled=True overrides cudagraph_mode=NONE")
