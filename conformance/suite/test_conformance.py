"""The one test of a conformance run, once for each case of each check. Collected only with `--adapter`."""

from __future__ import annotations

from conformance.session import KitSession, SuiteCase


def test_conformance(kit: KitSession, suite_case: SuiteCase) -> None:
    __tracebackhide__ = True
    kit.run(suite_case)
