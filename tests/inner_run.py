"""Running the suite inside a test, through the real plugin."""

from __future__ import annotations

import pytest
import safetensors  # noqa: F401 - pytester forgets what an inner run imported, and none of these
import torch._dynamo  # noqa: F401 - can be imported twice

from conformance.outcome import CaseRecord, record_of


def run_suite(pytester: pytest.Pytester, *arguments: str) -> tuple[list[CaseRecord], int]:
    """The records and the exit code of `pytest ARGUMENTS`, in this process."""
    run = pytester.inline_run("-p", "conformance.plugin", "-p", "no:cacheprovider", *arguments)
    reports = [report for report in run.getreports("pytest_runtest_logreport") if report.when == "call"]
    records = [record_of(report) for report in reports]
    return [record for record in records if record is not None], int(run.ret)
