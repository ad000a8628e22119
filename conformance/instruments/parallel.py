"""Running a check's calls in several threads or in a forked child, on a real GPU and on the emulation alike."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from conformance.emulation import active_device

T = TypeVar("T")
PATIENCE = 60.0  # seconds after which threads that have not ended are taken for a deadlock
_EAGER_SWITCHING = 1e-5  # seconds between two threads' turns, so that a missing lock shows


class Stuck(Exception):
    """Threads or a child that did not end in time."""


@contextlib.contextmanager
def device_of_this_thread() -> Iterator[None]:
    """The emulated device is a dispatch mode of a thread; a real one is there in every thread."""
    device = active_device()
    if device is None or device in _get_current_dispatch_mode_stack():
        yield
        return
    with device:
        yield


@contextlib.contextmanager
def _switching_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_EAGER_SWITCHING)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def in_threads(jobs: Sequence[Callable[[], T]], meanwhile: Callable[[], None] | None = None) -> list[T | Exception]:
    """Run every job in a thread and on a stream of its own, all at once. Gives each one's result, or what it raised.

    `meanwhile` runs in the calling thread once all have begun. Raises :class:`Stuck` where they do not end.
    """
    results: list[T | Exception] = [Stuck("the thread did not end")] * len(jobs)
    start = threading.Barrier(len(jobs) + 1)
    torch.cuda.synchronize()
    torch.cuda.memory_allocated()  # the emulation tidies its books now, and not while threads write in them

    def run(position: int) -> None:
        try:
            with device_of_this_thread(), torch.cuda.stream(torch.cuda.Stream()):
                start.wait(PATIENCE)
                results[position] = jobs[position]()
                torch.cuda.current_stream().synchronize()
        except Exception as error:
            results[position] = error

    threads = [threading.Thread(target=run, args=(position,), daemon=True) for position in range(len(jobs))]
    with _switching_often():
        for thread in threads:
            thread.start()
        start.wait(PATIENCE)
        if meanwhile is not None:
            meanwhile()
        deadline = time.monotonic() + PATIENCE
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        raise Stuck(f"threads did not end within {PATIENCE:.0f} s: a deadlock")
    return results


def in_fork(job: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run `job` in a forked child, which may not touch a real device, and give its JSON-ready answer.

    Raises :class:`Stuck` where the child does not answer. The child ends without running anybody's clean-up.
    """
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a process with threads is forked: that is the point
        child = os.fork()
    if child == 0:
        try:
            os.write(write, json.dumps(job()).encode())
        except BaseException as error:
            os.write(write, json.dumps({"error": f"{type(error).__name__}: {error}"[:2000]}).encode())
        finally:
            os._exit(0)
    os.close(write)
    ready: list[Any] = []
    try:
        ready, _, _ = select.select([read], [], [], PATIENCE)
        answer = os.read(read, 1 << 16) if ready else b""
    finally:
        os.close(read)
        if not ready:
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not answer:
        raise Stuck("the forked child gave no answer" if ready else f"the forked child hung for {PATIENCE:.0f} s")
    told: dict[str, Any] = json.loads(answer)
    return told
