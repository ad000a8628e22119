"""Fixtures that run the plugin on the toys of plugin_toys.py."""

from __future__ import annotations

import os
import textwrap

import pytest
from plugin_toys import SPEC, TOY_KIT, RunToy, WriteSpec


@pytest.fixture
def toy_kit(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with the toy kit importable. Run it with `run_toy`."""
    pytester.makepyfile(toy_kit=TOY_KIT)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(pytester.path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return pytester


@pytest.fixture
def spec(toy_kit: pytest.Pytester) -> WriteSpec:
    """Write a toy adapter's file and return the token that means it."""

    def write(name: str = "toy", body: str = "", file: str = "") -> str:
        path = toy_kit.path / (file or f"{name}_adapter.py")
        path.write_text(SPEC.format(name=name, body=textwrap.indent(textwrap.dedent(body), "    ")))
        return f"./{path.name}"

    return write


@pytest.fixture
def run_toy(toy_kit: pytest.Pytester) -> RunToy:
    """Run pytest in a process of its own: the toys replace modules, and this process must keep its own."""

    def run(*arguments: str) -> pytest.RunResult:
        return toy_kit.runpytest_subprocess("-p", "toy_kit", "-p", "no:cacheprovider", *arguments)

    return run
