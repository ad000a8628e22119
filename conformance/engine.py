"""The catalogue without pytest: the same checks and cases, as plain calls."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from conformance.catalogue import Case, Check, CheckFailed, Inconclusive, Level, Run, decide, load_catalogue
from conformance.subject import Subject


@dataclass(frozen=True)
class Finding:
    """The first case of a check that failed, and how. `error` is set when something other than the check gave way."""

    case: str
    message: str
    error: bool = False


def checks_for(subject: Subject, *, speed: bool = False) -> Iterator[tuple[Check, Case]]:
    """Every check that runs for `subject` on its machine, case by case; those of speed where asked for.

    For use in an author's own test module::

        @pytest.mark.parametrize("check, case", checks_for(subject), ids=...)
        def test_conformance(check, case):
            check(subject, case)
    """
    for check in load_catalogue():
        if check.level is Level.PERFORMANCE and not speed:
            continue
        if isinstance(decide(check, subject.spec, subject.machine), Run):
            for case in check.cases(subject.spec):
                yield check, case


def failing_checks(subject: Subject, leave_out: Collection[str] = (), *, speed: bool = False) -> Mapping[str, Finding]:
    """Code to first finding, of every check that fails for `subject`. A check stops at its first failing case.

    Checks whose code is among `leave_out` do not run: those that cost seconds, where many subjects are tried.
    """
    findings: dict[str, Finding] = {}
    for check, case in checks_for(subject, speed=speed):
        if check.code in findings or check.code in leave_out:
            continue
        try:
            check(subject, case)
        except CheckFailed as failed:
            findings[check.code] = Finding(case.id, failed.found)
        except Inconclusive as open_question:
            findings[check.code] = Finding(case.id, f"inconclusive: {open_question}", error=True)
        except Exception as error:
            findings[check.code] = Finding(case.id, f"{type(error).__name__}: {error}", error=True)
    return findings
