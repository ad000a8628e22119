"""Threads see the emulated device, and none of them gives a wrong answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from conformance.emulation import EmulationError, emulated_cuda


def run_in_thread(call: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


def test_a_thread_started_inside_has_the_device() -> None:
    with emulated_cuda():
        x = torch.ones(3, device="cuda")
        assert run_in_thread(lambda: (x + 1).device) == torch.device("cuda", 0)
        assert run_in_thread(lambda: torch.zeros(2, device="cuda").is_cuda)


def test_so_has_a_task_given_to_a_pool_whose_threads_are_older() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        with emulated_cuda():
            assert pool.submit(lambda: torch.ones(3, device="cuda").device).result() == torch.device("cuda", 0)
        assert pool.submit(lambda: torch.ones(3).device).result() == torch.device("cpu")


def test_a_thread_has_the_default_stream_of_its_own() -> None:
    with emulated_cuda(), torch.cuda.stream(torch.cuda.Stream()):
        assert run_in_thread(torch.cuda.current_stream) == torch.cuda.default_stream()


def test_a_thread_that_outlives_the_emulation_is_named_when_it_touches_the_device() -> None:
    ended, errors, host = threading.Event(), [], []

    def work(x: torch.Tensor) -> None:
        ended.wait(10)
        host.append(torch.ones(2) + 1)
        try:
            x + 1
        except EmulationError as error:
            errors.append(str(error))

    with emulated_cuda():
        thread = threading.Thread(target=work, args=(torch.ones(3, device="cuda"),), name="straggler")
        thread.start()
    ended.set()
    thread.join()
    assert host[0].tolist() == [2, 2]
    assert len(errors) == 1
    assert "'straggler'" in errors[0]
    assert "aten::add" in errors[0]


def test_two_threads_that_replay_one_graph_at_once_each_leave_it_whole() -> None:
    with emulated_cuda():
        x = torch.full((64, 64), 0.5, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x
            for _ in range(20):
                y = (y @ x).softmax(-1)
        graph.replay()
        expected = y.clone()

        def replay() -> None:
            for _ in range(100):
                graph.replay()

        with ThreadPoolExecutor(2) as pool:
            for future in [pool.submit(replay) for _ in range(4)]:
                future.result()
        assert torch.equal(y, expected)


def test_nothing_of_threads_is_left_replaced() -> None:
    before = threading.Thread._bootstrap_inner, ThreadPoolExecutor.submit  # type: ignore[attr-defined]
    with pytest.raises(KeyError), emulated_cuda():
        raise KeyError
    assert before == (threading.Thread._bootstrap_inner, ThreadPoolExecutor.submit)  # type: ignore[attr-defined]
