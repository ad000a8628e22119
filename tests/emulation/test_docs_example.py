"""The example of docs/emulation.md runs, with the fixture as the plugin gives it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "emulation.md"


def test_the_documented_unit_test_passes(pytester: pytest.Pytester) -> None:
    example = re.search(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    pytester.makepyfile(example[1])
    pytester.runpytest_inprocess("-p", "conformance.plugin", "-p", "no:cacheprovider").assert_outcomes(passed=2)
