"""Which switches turn graphs off, and the configuration that they are read from."""

import enum
from types import SimpleNamespace

import pytest

from runner import ConfigError, Fallback, FallbackReason, GraphConfig, decide_enabled

Mode = enum.Enum("Mode", {"NONE": 0, "FULL": 2, "FULL_DECODE_ONLY": (2, 0)})


@pytest.mark.parametrize("mode", ["NONE", "none", 0, Mode.NONE])
def test_cudagraph_mode_none_disables_inner_graphs(mode):
    assert decide_enabled("cuda", GraphConfig(cudagraph_mode=mode)) == (False, "cudagraph_mode=NONE")


@pytest.mark.parametrize("mode", [None, "PIECEWISE", "full", 1, 2, (2, 0), (2, 1), Mode.FULL_DECODE_ONLY])
def test_every_other_mode_leaves_them_on(mode):
    assert decide_enabled("cuda:0", GraphConfig(cudagraph_mode=mode)) == (True, "")


def test_enforce_eager_disables():
    assert decide_enabled("cuda", GraphConfig(enforce_eager=True)) == (False, "enforce_eager=True")


@pytest.mark.parametrize("switch", [{"enforce_eager": True}, {"cudagraph_mode": "NONE"}])
def test_only_an_explicit_enabled_overrides(switch):
    enabled, why = decide_enabled("cuda", GraphConfig(enabled=True, **switch))
    assert enabled
    assert why.startswith("enabled=True overrides")


def test_enabled_false_disables():
    assert decide_enabled("cuda", GraphConfig(enabled=False)) == (False, "enabled=False")


def test_nothing_overrides_a_device_without_graphs():
    assert decide_enabled("cpu", GraphConfig(enabled=True)) == (False, "device is cpu, and CUDA graphs need cuda")


@pytest.mark.parametrize("mode", ["FUL", 3, (0, 2), False, 2.0])
def test_an_unknown_mode_names_the_allowed_ones(mode):
    with pytest.raises(ConfigError, match="NONE, PIECEWISE, FULL, FULL_DECODE_ONLY, FULL_AND_PIECEWISE"):
        GraphConfig(cudagraph_mode=mode)


@pytest.mark.parametrize("field", [{"warmup_iterations": 0}, {"warmup_iterations": True}, {"enabled": "yes"}])
def test_a_bad_field_is_refused(field):
    with pytest.raises(ConfigError, match=next(iter(field))):
        GraphConfig(**field)


def vllm_config(additional=None, **model):
    return SimpleNamespace(
        compilation_config=SimpleNamespace(cudagraph_mode=Mode.FULL),
        model_config=SimpleNamespace(**model) if model else None,
        additional_config=additional,
    )


def test_vllm_config_is_read_by_duck_typing():
    config = GraphConfig.from_vllm_config(
        vllm_config({"audiograph": {"code2wav": {"enabled": True, "warmup_iterations": 3}}}, enforce_eager=True),
        "code2wav",
    )
    assert config == GraphConfig(enabled=True, enforce_eager=True, cudagraph_mode=Mode.FULL, warmup_iterations=3)


def test_another_components_section_is_not_read():
    config = GraphConfig.from_vllm_config(vllm_config({"audiograph": {"codec": {"enabled": False}}}), "code2wav")
    assert config.enabled is None


@pytest.mark.parametrize("additional", [None, {}, {"audiograph": {}}, object()])
def test_a_missing_section_means_the_defaults(additional):
    assert GraphConfig.from_vllm_config(vllm_config(additional), "codec") == GraphConfig(cudagraph_mode=Mode.FULL)


def test_an_unknown_key_names_the_nearest():
    with pytest.raises(ConfigError, match=r"found 'enable'; did you mean 'enabled'\?"):
        GraphConfig.from_vllm_config(vllm_config({"audiograph": {"codec": {"enable": True}}}), "codec")


@pytest.mark.parametrize("section", [True, {"codec": True}])
def test_a_section_that_is_no_mapping_is_refused(section):
    with pytest.raises(ConfigError, match="must be a mapping"):
        GraphConfig.from_vllm_config(vllm_config({"audiograph": section}), "codec")


def test_the_reasons_are_the_closed_set():
    words = "disabled not_captured outer_capture no_bucket capture_failed memory_limit ineligible forked closed"
    assert [reason.value for reason in FallbackReason] == words.split()


def test_a_fallback_reads_as_reason_and_detail():
    assert str(Fallback(FallbackReason.INELIGIBLE, "dtype")) == "ineligible:dtype"
    assert str(Fallback(FallbackReason.CLOSED)) == "closed"
