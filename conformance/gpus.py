"""Which GPU a worker of pytest-xdist takes."""

from __future__ import annotations

from collections.abc import MutableMapping


def take_own_gpu(worker: str | None, environment: MutableMapping[str, str], count: int) -> None:
    """Let worker `gw3` of pytest-xdist see the fourth GPU alone, counted round and round, as its `cuda:0`.

    By CUDA_VISIBLE_DEVICES, which the processes that it starts inherit; so it must come before CUDA is initialised.
    """
    number = (worker or "").removeprefix("gw")
    if count < 2 or not number.isdecimal():
        return
    seen = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    names = seen[:count] if len(seen) >= count else [str(index) for index in range(count)]
    environment["CUDA_VISIBLE_DEVICES"] = names[int(number) % count]
