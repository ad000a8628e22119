"""A conformance run inside pytest: the hooks that are there only when `--adapter` is given.

Reports are the only thing that leaves a worker of a distributed run, so each carries its case's record, and the summary
is computed from reports alone, in one process as in many.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from conformance.collection import (
    FUNCTION,
    SPEED_FUNCTION,
    add_suite,
    case_of,
    drop_default_paths,
    name_item,
    parametrize,
)
from conformance.intake import kit_for, report_files
from conformance.listing import SuiteCase
from conformance.outcome import ATTRIBUTE, CaseRecord, Outcome, record_of
from conformance.places import told
from conformance.plugin import SUITE
from conformance.report import junit
from conformance.report.progress import Progress, progress_for
from conformance.report.terminal import FailureText, Status, close_run, failure_text, status, tell_unwritten
from conformance.report.writers import write_reports
from conformance.session import KitSession, describe
from conformance.snapshots.terms import CHECKS, snapshot_folder
from conformance.verdict import worse

if TYPE_CHECKING:
    from conformance.snapshots.store import SnapshotStore


class ConformanceRun:
    """pytest's view of one :class:`KitSession`."""

    def __init__(self, config: pytest.Config, kit: KitSession) -> None:
        self.config = config
        self.kit = kit
        self.is_worker = hasattr(config, "workerinput")
        self.records: dict[str, CaseRecord] = {}
        self._explained: set[str] = set()
        self._progress: Progress | None = None

    @classmethod
    def prepare(cls, config: pytest.Config) -> ConformanceRun:
        """Load and validate everything that was asked for. Raises `pytest.UsageError` before anything has run."""
        kit = kit_for(config)
        drop_default_paths(config)
        return cls(config, kit)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        from conformance.distribution import scheduler_for

        return scheduler_for(config, log, len(self.kit.adapters))

    def pytest_sessionstart(self) -> None:
        self._progress = progress_for(self.config)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if isinstance(collector, pytest.Session):
            add_suite(collector, report, self.kit)
        return report

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if metafunc.function.__name__ in (FUNCTION, SPEED_FUNCTION) and metafunc.definition.path == SUITE:
            parametrize(metafunc, self.kit)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        name_item(item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        case = case_of(item)
        if case is not None:
            self.kit.store = self._snapshot_store(item, case)

    def _snapshot_store(self, item: pytest.Item, case: SuiteCase) -> SnapshotStore | None:
        """syrupy's, for a check that keeps snapshots, where syrupy is loaded."""
        session, folder = getattr(self.config, "_syrupy", None), snapshot_folder(case.adapter.spec)
        if session is None or folder is None or case.check.code not in CHECKS:
            return None
        from conformance.snapshots.extension import SyrupyStore

        return SyrupyStore(item, session, folder)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        case = case_of(item)
        if case is not None:
            record = self._record(case, call, report)
            if record is not None:
                # JUnit reads the properties of the last phase, so the item keeps them.
                item.user_properties[:] = [*junit.without(item.user_properties), *junit.properties(record)]
                report.user_properties = list(item.user_properties)
                self._write_record(record, report)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        if self._progress is None or case_of(item) is None:
            return (yield)
        with self._progress.shown():
            return (yield)

    def _record(self, case: SuiteCase, call: pytest.CallInfo[None], report: pytest.TestReport) -> CaseRecord | None:
        """What one phase says about the case: the kit's own record, or what stopped the case from outside the kit."""
        if report.when == "call":
            record = self.kit.records.pop(case.id, None)
            if record is not None:
                return record
        elif report.passed:
            return None
        reason = describe(call.excinfo.value) if call.excinfo else "the call was replaced by another plugin"
        if report.skipped:
            return self.kit.record(case, Outcome.BLOCKED, f"skipped from outside the kit: {reason}")
        return self.kit.record(case, Outcome.ERROR, f"in {report.when}: {reason}")

    def _write_record(self, record: CaseRecord, report: pytest.TestReport) -> None:
        setattr(report, ATTRIBUTE, record.to_json())
        report.location = (*report.location[:2], record.id)
        if hasattr(report, "wasxfail"):
            del report.wasxfail
        if record.outcome is Outcome.PASS:
            report.outcome, report.longrepr = "passed", None
        elif record.outcome.breaks and record.outcome is not Outcome.XFAIL:
            traceback = ""
            if record.outcome is Outcome.ERROR and record.message not in self._explained:
                self._explained.add(record.message)  # a subject that cannot be built says why once, not for each case
                traceback = report.longreprtext
            report.outcome = "failed"
            report.longrepr = failure_text(record, traceback)
        else:
            report.outcome = "skipped"
            report.longrepr = (told(os.fspath(SUITE)), 1, record.told)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        case = case_of(item)
        if case is not None:
            self.kit.leave(case, case_of(nextitem))

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.CollectReport | pytest.TestReport) -> Status | None:
        if report.when != "call":
            return None
        record = record_of(report)
        return None if record is None else status(record)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.is_worker:
            return
        record = self._last_record(report)
        if record is None:
            return
        for writer in self._junit_writers:
            junit.name_testcase(writer, report, record)
        known = self.records.get(record.id)
        self.records[record.id] = record if known is None else worse(known, record)
        if report.failed:
            report.longrepr = FailureText(report.longreprtext, record.message)  # type: ignore[assignment]

    def _last_record(self, report: pytest.TestReport) -> CaseRecord | None:
        record = record_of(report)
        if record is None and report.failed and report.nodeid in self._cases_by_id:
            # A worker that died leaves a report that it did not write itself.
            return self.kit.record(self._cases_by_id[report.nodeid], Outcome.ERROR, report.longreprtext)
        return record

    @cached_property
    def _junit_writers(self) -> Sequence[Any]:
        return junit.writers(self.config.pluginmanager.get_plugins())

    @property
    def _cases_by_id(self) -> Mapping[str, SuiteCase]:
        return {case.id: case for case in self.kit.cases}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        """Outermost: the sentence comes after everything that other plugins print, and reports whatever they raise."""
        if self._progress is not None:
            self._progress.close()
            self._progress = None
        try:
            self.kit.close()
            return (yield)
        finally:
            if not self.is_worker and not self.config.option.collectonly:
                self._conclude(session)

    def _conclude(self, session: pytest.Session) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        stopped = bool(session.shouldfail or session.shouldstop)
        unwritten = list(self._write_reports(_ended(session.exitstatus, stopped)))
        tell_unwritten(reporter, unwritten)
        records = list(self.records.values())
        session.exitstatus = close_run(reporter, self.kit, records, session.exitstatus, stopped=stopped)
        if unwritten:
            session.exitstatus = session.exitstatus or pytest.ExitCode.INTERNAL_ERROR

    def _write_reports(self, ended: str) -> Iterator[str]:
        """Every report that was asked for, also of a run that was broken off."""
        files = report_files(self.config)
        if files:
            yield from write_reports(self.kit.report(self.records.values(), ended=ended), files)


def _ended(exitstatus: int, stopped: bool) -> str:
    if exitstatus == pytest.ExitCode.INTERRUPTED:
        return "interrupted"
    if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        return f"pytest ended with exit code {int(exitstatus)}"
    return "stopped early" if stopped else "complete"
