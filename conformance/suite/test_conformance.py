"""The one test of a conformance run, once for each case of each check. Collected only with `--adapter`."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.bench.timer import PytestTimer
from conformance.listing import SuiteCase
from conformance.session import KitSession


def test_conformance(kit: KitSession, suite_case: SuiteCase) -> None:
    __tracebackhide__ = True
    kit.run(suite_case)


def test_speed(kit: KitSession, suite_case: SuiteCase, benchmark: Any, pytestconfig: pytest.Config) -> None:
    """The checks of speed. Their item takes pytest-benchmark's fixture, which is how that plugin knows a benchmark."""
    __tracebackhide__ = True
    benchmark.group, benchmark.param = suite_case.adapter.spec.name, suite_case.case.id
    benchmark.params = dict(suite_case.case.arguments)
    seconds, fewest = (pytestconfig.getoption(f"benchmark_{name}") for name in ("max_time", "min_rounds"))
    kit.timer = PytestTimer(benchmark, float(seconds), fewest)
    kit.run(suite_case)
