"""What vLLM keeps for its process, on an emulated device: one for each emulation, and gone with it."""

from __future__ import annotations

import pytest

from conformance.emulation import emulated_cuda


@pytest.mark.vllm
def test_vllms_global_pool_is_one_a_time_and_gone_afterwards() -> None:
    from vllm.platforms import current_platform

    before = vars(type(current_platform)).get("_global_graph_pool")
    with emulated_cuda():
        first = current_platform.get_global_graph_pool()
        assert first is current_platform.get_global_graph_pool()
        assert first is not None
    with emulated_cuda():
        assert current_platform.get_global_graph_pool() != first
    assert vars(type(current_platform)).get("_global_graph_pool") is before
