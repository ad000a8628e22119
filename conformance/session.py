"""One conformance run inside one process: the adapters, their cases, the device and the subject at hand.

Life of a run:
1. the plugin makes a :class:`KitSession` from the options; every adapter is loaded and validated by then;
2. :meth:`KitSession.cases` lists the cases, at collection;
3. :meth:`KitSession.run` opens the device at the first case, builds a subject at its adapter's first case, runs;
4. :meth:`KitSession.leave` closes the subject when the adapter changes, and the device after the last case.

It decides nothing about verdicts and prints nothing.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from conformance.activity import doing
from conformance.catalogue import (
    Blocked,
    CheckFailed,
    Inconclusive,
    Level,
    Machine,
    NotApplicable,
    decide,
)
from conformance.configuration import configure, parse
from conformance.errors import ConformanceError
from conformance.expectations import Expectation, expectations_file, load_expectations
from conformance.listing import SuiteCase, cases_of_any_run, list_cases
from conformance.options import Options, Speed
from conformance.outcome import CaseRecord, Outcome
from conformance.places import near, told, told_throughout
from conformance.registry import LoadedAdapter
from conformance.report.document import RunReport, make_report
from conformance.snapshots.terms import SnapshotTerms
from conformance.versions import package_versions

if TYPE_CHECKING:
    from conformance.bench.timer import PlainTimer
    from conformance.snapshots.store import SnapshotStore
    from conformance.subject import Subject


class SubjectBuildError(Exception):
    """An adapter's subject could not be built; every case of the adapter fails with the same words."""


class KitSession:
    """The state of one run. Not thread-safe: pytest runs one case at a time."""

    def __init__(self, options: Options, adapters: tuple[LoadedAdapter, ...]) -> None:
        self.options = options
        self.adapters = adapters
        self.timer: PlainTimer | None = None  # of the case at hand; a plain one where there is none
        self.store: SnapshotStore | None = None  # of the case at hand; the adapter's files where there is none
        given = parse(options.graph_config)
        for adapter in adapters:
            configure(adapter.spec, given)
            adapter.spec.snapshot_terms = SnapshotTerms(
                options.update_snapshots, options.seed, options.checkpoint is not None
            )
        self.records: dict[str, CaseRecord] = {}
        self._device = contextlib.ExitStack()
        self._machine: Machine | None = None
        self._device_used = ""
        self._subject: tuple[str, Subject] | None = None
        self._build_errors: dict[str, Exception] = {}

    @cached_property
    def cases(self) -> tuple[SuiteCase, ...]:
        """The cases of this run."""
        cases = tuple(case for case in self.every_case if self.options.speed.takes(case.check))
        if not cases:
            raise ConformanceError("the catalogue has no case for the adapters given; nothing would be tested")
        return cases

    @cached_property
    def every_case(self) -> tuple[SuiteCase, ...]:
        """Every case of every adapter, adapter by adapter and in the order of the codes. Imports torch."""
        return list_cases(self.adapters)

    @cached_property
    def expectations(self) -> Mapping[str, tuple[Expectation, ...]]:
        """Known failures by adapter name, each entry about one of its cases."""
        today = datetime.date.today()
        return {
            adapter.spec.name: load_expectations(expectations_file(adapter.spec), cases_of_any_run(adapter.spec), today)
            for adapter in self.adapters
        }

    def _known(self, case: SuiteCase) -> Expectation | None:
        entries = self.expectations[case.adapter.spec.name]
        return next((entry for entry in entries if entry.covers(case.check.code, case.case.id)), None)

    def planned(self, adapter: LoadedAdapter) -> int:
        """How many cases the adapter has before any selection; those of speed count where they run."""
        cases = self.cases if self.options.speed is Speed.WITHOUT else self.every_case
        return sum(case.adapter is adapter for case in cases)

    @property
    def device(self) -> str:
        """The device as `--graph-device` would name it: the one in use or used last, else the one asked for."""
        return self._device_used or self.options.graph_device

    def record(self, case: SuiteCase, outcome: Outcome, message: str = "", **fields: object) -> CaseRecord:
        """A record of `case` with what this run knows about the machine. Names no path that means nothing elsewhere."""
        machine = self._machine
        return CaseRecord(
            adapter=case.adapter.spec.name,
            check=case.check.name,
            title=case.check.title,
            case=case.case.id,
            outcome=outcome,
            message=told(message),
            machine=machine.name if machine else "",
            torch=machine.torch_version if machine else "",
            planned=self.planned(case.adapter),
            repeat=self.repeat_command(case),
            **told_throughout(fields),
        )

    def report(
        self,
        records: Iterable[CaseRecord],
        adapters: Sequence[LoadedAdapter] | None = None,
        *,
        ended: str = "complete",
    ) -> RunReport:
        """The report of this run, or of some of its adapters, from the records of its cases."""
        specs = [adapter.spec for adapter in (self.adapters if adapters is None else adapters)]
        return make_report(
            [spec.name for spec in specs],
            records,
            seed=self.options.seed,
            device=self.device,
            ended=ended,
            checkpoint=told(str(self.options.checkpoint or "")),
            packages={spec.name: package_versions(spec) for spec in specs},
        )

    def repeat_command(self, case: SuiteCase) -> str:
        """One command, ready to paste, that runs `case` alone as it runs here. Never wrapped."""
        words = [
            "pytest",
            f"--adapter={case.adapter.token}",
            f"--graph-device={self.device}",
            "-k",
            case.name,
            f"--conformance-seed={self.options.seed}",
        ]
        if case.check.level is Level.PERFORMANCE:
            words.append("--benchmark-only")
        if self.options.checkpoint is not None:
            words.append(f"--adapter-checkpoint={near(self.options.checkpoint)}")
        words += [f"--graph-config={given}" for given in self.options.graph_config]
        return " ".join(f'"{word}"' if word == case.name else shlex.quote(word) for word in words)

    def run(self, case: SuiteCase) -> CaseRecord:
        """Run one case and keep its record.

        Raises what the check raised when the outcome is FAIL or ERROR, so that debuggers stop at the place.
        """
        __tracebackhide__ = True
        started = time.perf_counter()
        try:
            self._keep(case, self._run(case), started)
        except CheckFailed as failed:
            if self._keep(case, self._failed(case, failed), started).outcome is Outcome.FAIL:
                raise
        except Exception as error:
            self._keep(case, self.record(case, Outcome.ERROR, describe(error)), started)
            raise
        return self.records[case.id]

    def _keep(self, case: SuiteCase, record: CaseRecord, started: float) -> CaseRecord:
        kept = self.records[case.id] = replace(record, seconds=round(time.perf_counter() - started, 4))
        return kept

    def _failed(self, case: SuiteCase, failed: CheckFailed) -> CaseRecord:
        """A failure, or a known one where the adapter's expectations declare this code and case."""
        outcome, entry, known = Outcome.FAIL, self._known(case), {}
        if entry is not None and failed.code == entry.code:
            outcome = Outcome.XFAIL
            known = {"reason": entry.reason, "issue": entry.issue, "until": str(entry.expires)}
        return self.record(
            case,
            outcome,
            failed.found,
            likely=failed.likely,
            cure=failed.cure,
            evidence=failed.evidence,
            known=known,
        )

    def _run(self, case: SuiteCase) -> CaseRecord:
        __tracebackhide__ = True
        decision = decide(case.check, case.adapter.spec, self._open_machine())
        if isinstance(decision, NotApplicable):
            return self.record(case, Outcome.NOT_APPLICABLE, decision.reason)
        if isinstance(decision, Blocked):
            return self.record(case, Outcome.BLOCKED, decision.reason)
        subject = self._open_subject(case.adapter)
        if self.store is not None:
            subject.snapshots = self.store
        if self.timer is not None:
            subject.timer = self.timer
        try:
            with doing(case.id):
                evidence = case.check(subject, case.case)
        except Inconclusive as open_question:
            return self.record(case, Outcome.INCONCLUSIVE, str(open_question))
        if not isinstance(evidence, Mapping):
            raise TypeError(f"{case.check.name} returned {type(evidence).__name__}; a check returns its evidence")
        known = self._known(case)
        if known is not None:
            where = f"{expectations_file(case.adapter.spec)}:{known.line}"
            message = f"it passes, and is declared a known failure in {where}: delete that entry"
            return self.record(case, Outcome.XPASS, message, evidence=evidence)
        return self.record(case, Outcome.PASS, evidence=evidence)

    def _open_machine(self) -> Machine:
        if self._machine is None:
            from conformance.device import open_device

            for adapter in self.adapters:
                with doing(f"importing what {adapter.spec.name} needs"):
                    self._import_packages(adapter)
            self._machine = self._device.enter_context(open_device(self.options.graph_device))
            self._device_used = self._machine.device
        return self._machine

    def _import_packages(self, adapter: LoadedAdapter) -> None:
        """Import what an adapter needs before the device opens: packages ask for the real GPU while they import."""
        try:
            for requirement in adapter.spec.requires:
                importlib.import_module(requirement.module)
        except Exception as error:
            self._build_errors[adapter.spec.name] = error

    def _open_subject(self, adapter: LoadedAdapter) -> Subject:
        """The adapter's subject, built once. Its failure to build is remembered: a second try would only cost time."""
        from conformance.subject import open_subject

        name = adapter.spec.name
        if self._subject is not None and self._subject[0] == name:
            return self._subject[1]
        self._close_subject()
        if name not in self._build_errors:
            try:
                with doing(f"building and capturing {name}"):
                    subject = open_subject(
                        adapter.spec, self._open_machine(), self.options.seed, self.options.checkpoint
                    )
            except Exception as error:
                self._build_errors[name] = error
            else:
                self._subject = (name, subject)
                return subject
        cause = self._build_errors[name]
        raise SubjectBuildError(f"the subject of {name!r} cannot be built: {describe(cause)}") from cause

    def leave(self, case: SuiteCase, following: SuiteCase | None) -> None:
        """Close what `following` (the next case in this process, if any) does not use. Raises what closing raises."""
        if following is None:
            self.close()
        elif following.adapter is not case.adapter:
            self._close_subject()

    def close(self) -> None:
        """Close the subject, then the device, whatever happened before. Safe to call twice."""
        try:
            self._close_subject()
        finally:
            self._machine = None
            self._device.close()

    def _close_subject(self) -> None:
        if self._subject is not None:
            _, subject = self._subject
            self._subject = None
            subject.close()


def describe(error: BaseException) -> str:
    """`ValueError: what it says`, as Python prints it."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
