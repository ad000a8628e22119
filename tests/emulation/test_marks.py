"""Marks of storages, under threads."""

from __future__ import annotations

import sys
import threading

import torch

from conformance.emulation.marks import StorageMarks


def test_a_tensor_without_storage_has_no_mark_and_hides_no_others() -> None:
    marks, marked, sparse = StorageMarks(), torch.ones(2), torch.eye(2).to_sparse()
    marks.add(marked)
    assert marks.which([marked, marked[1:], torch.ones(2)]) == [True, True, False]
    assert marks.which([sparse, marked]) == [False, True]


def test_no_mark_is_lost_and_nothing_raises_while_threads_add_and_another_counts() -> None:
    marks = StorageMarks()
    kept: list[list[torch.Tensor]] = [[], []]
    problems: list[BaseException] = []
    adding = threading.Event()

    def add(mine: list[torch.Tensor]) -> None:
        try:
            for _ in range(3000):
                tensor = torch.empty(1)
                marks.add(tensor)
                marks.add(torch.empty(1))  # gone at once: something to sweep
                mine.append(tensor)
        except BaseException as error:
            problems.append(error)

    def count() -> None:
        try:
            while not adding.is_set():
                marks.live_bytes()
        except BaseException as error:
            problems.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        counter = threading.Thread(target=count)
        adders = [threading.Thread(target=add, args=(mine,)) for mine in kept]
        for thread in (counter, *adders):
            thread.start()
        for thread in adders:
            thread.join()
        adding.set()
        counter.join()
    finally:
        sys.setswitchinterval(before)
    assert problems == []
    assert all(tensor in marks for mine in kept for tensor in mine)
