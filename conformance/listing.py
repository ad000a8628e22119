"""Every case that the adapters have: one of the suite's test items each, before any is selected."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conformance.catalogue import Case, Check, load_catalogue
from conformance.errors import SpecError
from conformance.outcome import case_id
from conformance.registry import LoadedAdapter
from conformance.snapshots.terms import SnapshotTerms

if TYPE_CHECKING:
    from conformance.spec import AdapterSpec

_SELECTABLE = re.compile(r"[\w.:+\-/]*")
"""What a case id may hold, so that `pytest -k` can name the case."""


@dataclass(frozen=True)
class SuiteCase:
    """One case of one check for one adapter: what a test item of the suite is made of."""

    adapter: LoadedAdapter
    check: Check
    case: Case

    @property
    def id(self) -> str:
        return case_id(self.adapter.spec.name, self.check.name, self.case.id)

    @property
    def name(self) -> str:
        """The id without the adapter: what `-k` selects, e.g. `CG201-exact-bucket[b1-f8]`."""
        return self.id.removeprefix(f"{self.adapter.spec.name}/")


def list_cases(adapters: Sequence[LoadedAdapter]) -> tuple[SuiteCase, ...]:
    """Every case, adapter by adapter and in the order of the codes. Imports torch.

    Raises :class:`SpecError` for a case that `-k` cannot name, and for two of one name.
    """
    cases = [
        SuiteCase(adapter, check, case)
        for adapter in adapters
        for check in load_catalogue()
        for case in check.cases(adapter.spec)
    ]
    seen: set[str] = set()
    for case in cases:
        if not _SELECTABLE.fullmatch(case.case.id):
            raise SpecError(f"case id {case.case.id!r} of {case.check.name}: expected letters, digits and _ . : + - /")
        if case.id in seen:
            raise SpecError(f"{case.id} stands for two cases; ids of one check must differ")
        seen.add(case.id)
    return tuple(cases)


def cases_of_any_run(spec: AdapterSpec) -> list[tuple[str, str]]:
    """Code and id of every case, those too which do not apply to this run's seed or checkpoint."""
    kept = copy.copy(spec)
    kept.snapshot_terms = SnapshotTerms(update=True)
    return [(check.code, case.id) for check in load_catalogue() for case in check.cases(kept)]
