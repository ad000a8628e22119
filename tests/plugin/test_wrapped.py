"""A wrapper that exists already as a subject: what the shim passes on, and what a broken capture costs."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch

from conformance import shared_pool
from conformance.device import open_device
from conformance.engine import failing_checks
from conformance.registry import spec_of
from conformance.subject import open_subject
from conformance.wrapped import WrapperSpec
from runner import GraphConfig, GraphRunner
from tests.mutants.addresses import StatefulSpec

Reference: Any = type(spec_of("reference"))


class Wrapped(WrapperSpec, Reference):
    """The reference runner, posing as somebody's wrapper."""

    name = "reference@itself"
    buckets = ({"batch": 1, "frames": 4}, {"batch": 2, "frames": 8})
    trace = None

    def make_wrapper(self, adapter: Any, device: torch.device) -> GraphRunner:
        return GraphRunner(adapter, self.buckets, device=device)

    def warm(self, wrapper: GraphRunner, device: torch.device) -> None:
        wrapper.warmup()

    def answer(self, wrapper: GraphRunner, inputs: Any) -> torch.Tensor:
        return wrapper(**inputs)


class Late(Wrapped):
    """The model's own class makes the wrapper whatever `cudagraph_mode` says."""

    name = "reference@late"

    def wanted(self, config: GraphConfig, device: torch.device) -> bool:
        return (not config.enforce_eager and config.enabled is not False) or bool(config.enabled)


def failing(spec: type[WrapperSpec]) -> set[tuple[str, str]]:
    with open_device("emulated") as machine:
        subject = open_subject(spec(), machine, 0, None)
        try:
            found = failing_checks(subject, frozenset({"CG003"}))
            return {(code, finding.case) for code, finding in found.items()}
        finally:
            subject.close()


def test_a_right_wrapper_fails_nothing() -> None:
    assert failing(Wrapped) == set()


def test_a_switch_that_the_package_ignores_is_named() -> None:
    assert failing(Late) == {("CG403", "cudagraph-mode-none")}


def test_a_closed_wrapper_answers_eagerly_and_is_let_go() -> None:
    with open_device("emulated") as machine:
        subject = open_subject(Wrapped(), machine, 0, None)
        inputs = subject.draw({"batch": 1, "frames": 4}, "closed")
        before = subject(inputs)
        subject.close_runner()
        with subject.observe() as seen:
            after = subject(inputs)
        assert seen.replays == 0
        assert torch.equal(before["wav"][0], after["wav"][0])
        subject.close()


@pytest.fixture
def vllm_platform(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What of vLLM's platform layer matters here, without importing vLLM."""
    platform = type("Platform", (), {"_global_graph_pool": None})
    monkeypatch.setitem(sys.modules, "vllm.platforms.interface", types.SimpleNamespace(Platform=platform))
    monkeypatch.setitem(sys.modules, "vllm.platforms", types.SimpleNamespace(_current_platform=platform()))
    return platform


def test_a_broken_capture_costs_the_process_its_shared_pool_once(vllm_platform: Any) -> None:
    with open_device("emulated") as machine:
        subject = open_subject(Wrapped(), machine, 0, None)
        vllm_platform._global_graph_pool = pool = torch.cuda.graph_pool_handle()
        subject.settle()
        assert shared_pool.shared_pool() == pool
        side = torch.cuda.Stream()
        with (
            torch.cuda.stream(side),
            pytest.raises(RuntimeError),
            torch.cuda.graph(torch.cuda.CUDAGraph(), pool=pool, stream=side),
        ):
            torch.cuda.synchronize()
        torch.cuda.set_stream(torch.cuda.default_stream())
        subject.settle()
        assert shared_pool.shared_pool() != pool
        subject.close()


def test_measuring_noise_leaves_a_streams_state_alone() -> None:
    with open_device("emulated") as machine:
        subject = open_subject(StatefulSpec(), machine, 0, None)
        sizes = subject.spec.buckets[0]
        subject.fresh_start()
        subject.proceed(subject.draw(sizes, "a step"))
        before = {name: tensor.clone() for name, tensor in subject.state.items()}
        assert subject.noise is not None
        assert all(torch.equal(tensor, before[name]) for name, tensor in subject.state.items())
        assert any(not torch.equal(tensor, start) for tensor, start in subject._start)
        subject.close()
