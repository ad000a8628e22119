"""What pytest collects when the kit is asked for, and how its test items are named."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import pytest

from conformance.catalogue import Level
from conformance.listing import SuiteCase
from conformance.plugin import SUITE
from conformance.session import KitSession

FUNCTION = "test_conformance"
SPEED_FUNCTION = "test_speed"
ARGUMENTS = ("kit", "suite_case")

CASE = pytest.StashKey[SuiteCase]()


class SuiteModule(pytest.Module):
    """The suite's module. Empty when pytest comes upon the file by itself; :func:`add_suite` makes the one that counts.

    It is imported by its name and hangs from the session directly: pytest's way, from the path, would put a folder on
    `sys.path`, walk every folder down to site-packages and load the conftest files found there.
    """

    wanted: frozenset[str] = frozenset()
    """The functions to collect: one without a case would be an item that pytest skips."""

    def funcnamefilter(self, name: str) -> bool:
        """Whatever the author's `python_functions` says."""
        return name in self.wanted

    def _getobj(self) -> ModuleType:
        return importlib.import_module("conformance.suite.test_conformance")

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        return super().collect() if self.wanted else []


def drop_default_paths(config: pytest.Config) -> None:
    """Collect what the user named and nothing else: neither `testpaths` nor the current folder."""
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = []
        config.args_source = pytest.Config.ArgsSource.ARGS


def add_suite(session: pytest.Session, report: pytest.CollectReport, kit: KitSession) -> None:
    """Put the suite after everything else: its device stays open to the last case, and other tests must not see it."""
    module = SuiteModule.from_parent(session, path=SUITE)
    module.wanted = frozenset(map(function_of, kit.cases))
    report.result = [*(report.result or ()), module]


def function_of(case: SuiteCase) -> str:
    return SPEED_FUNCTION if case.check.level is Level.PERFORMANCE else FUNCTION


def parametrize(metafunc: pytest.Metafunc, kit: KitSession) -> None:
    """Direct parametrization: no fixture that an author defines can take the place of these arguments."""
    cases = [case for case in kit.cases if function_of(case) == metafunc.function.__name__]
    metafunc.parametrize(ARGUMENTS, [(kit, case) for case in cases], ids=[case.name for case in cases])


def name_item(item: pytest.Item) -> SuiteCase | None:
    """Give an item of the suite its public id, and cut it loose from fixtures that an author's conftest applies to all.

    None for an item that is not the suite's.
    """
    if not isinstance(item, pytest.Function) or item.path != SUITE:
        return None
    case = item.callspec.params[ARGUMENTS[1]]
    assert isinstance(case, SuiteCase)
    item.stash[CASE] = case
    item.name = case.name
    item.extra_keyword_matches.add(case.id)
    own = inspect.signature(item.function).parameters
    item.fixturenames[:] = [name for name in item.fixturenames if name in own]
    _set_nodeid(item, case.id)
    return case


def case_of(item: pytest.Item | None) -> SuiteCase | None:
    return None if item is None else item.stash.get(CASE, None)


def _set_nodeid(item: Any, nodeid: str) -> None:
    """pytest has no public way to name an item. It keeps the id in `_nodeid`, from 9.1 on parsed in `_id`."""
    if hasattr(item, "_id"):
        item._id = type(item._id).parse(nodeid)
    else:
        item._nodeid = nodeid
