"""Tests that run pytest start from the same environment, whether they are distributed themselves or not."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """An inner run must not take itself for a worker of the outer one."""
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)
