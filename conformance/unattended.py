"""A conformance run without pytest: the same session, case by case."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from conformance.options import Options
from conformance.outcome import CaseRecord
from conformance.registry import load_adapters
from conformance.session import KitSession


def run_unattended(tokens: Sequence[str], graph_device: str, seed: int) -> tuple[KitSession, dict[str, CaseRecord]]:
    """Run every case of the adapters that the tokens mean. Returns the session and the records by case id.

    Raises a :class:`~conformance.errors.ConformanceError` before anything has run when the input is bad.
    """
    kit = KitSession(Options(graph_device, seed), load_adapters(tokens))
    assert kit.expectations is not None  # read before the first case: a file that cannot be trusted stops the run
    cases = kit.cases
    try:
        for case, following in zip(cases, [*cases[1:], None], strict=True):
            with contextlib.suppress(Exception):  # kept as the case's record
                kit.run(case)
            kit.leave(case, following)
    finally:
        kit.close()
    return kit, kit.records
