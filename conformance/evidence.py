"""Calls that a check makes, with what was observed meanwhile and the faults that any call can have."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from conformance.catalogue import CheckFailed
from conformance.observe import Seen
from conformance.subject import Inputs, Outputs, Subject


def call(subject: Subject, code: str, inputs: Inputs, *, proceed: bool = False) -> tuple[Outputs, Seen]:
    """Call the subject, from its start or, with `proceed`, from the state that the last call left.

    An exception where eager has none is the subject's failure, not the kit's.
    """
    return _observed(subject, code, inputs, lambda: subject.proceed(inputs) if proceed else subject(inputs))


def raw_call(subject: Subject, code: str, inputs: Inputs) -> tuple[Any, Seen]:
    """Call the subject from its fresh start, for the result in its own structure."""
    subject.fresh_start()
    return _observed(subject, code, inputs, lambda: subject.raw(inputs))


def _observed(subject: Subject, code: str, inputs: Inputs, made: Callable[[], Any]) -> tuple[Any, Seen]:
    with subject.observe() as seen:
        try:
            found = made()
        except Exception as error:
            subject.eager(inputs)  # raises here if the input is at fault
            raise CheckFailed(
                code,
                f"the call raised {type(error).__name__} where eager succeeds: {_first_line(error)}",
                likely="the graph path rejects or mishandles a call that the module can serve",
                cure="serve it from a bucket, or fall back to eager with a reason",
                evidence={"exception": repr(error)},
            ) from error
    return found, seen


def graphed_call(subject: Subject, code: str, inputs: Inputs, *, proceed: bool = False) -> tuple[Outputs, Seen]:
    """Call the subject, which must replay and not capture: a subject that silently stays eager proves nothing."""
    whole = subject.module_calls_of_eager  # before the call: counting them makes another one, which moves state on
    found, seen = call(subject, code, inputs, proceed=proceed)
    if not seen.replays:
        raise CheckFailed(
            code,
            f"no replay was observed: the call ran eagerly ({_why_eager(subject)})",
            likely="the bucket was never captured, or its lookup does not find it  (class N)",
            cure="look at the capture errors and the fallback reasons in the statistics",
            evidence={"captures": seen.captures, "replays": seen.replays},
        )
    if whole and seen.module_calls >= whole:
        raise CheckFailed(
            code,
            f"the module ran eagerly as well: {seen.module_calls} of its parts were called, as in an eager call",
            likely="a graph is replayed for show, and the result comes from eager execution  (class N)",
            cure="return what the replay computed",
            evidence={"module_calls": seen.module_calls, "replays": seen.replays},
        )
    if seen.captures:
        raise CheckFailed(
            code,
            f"{seen.captures} captures happened during a call, after warm-up",
            likely="a bucket was left to be captured by the first request that needs it",
            cure="capture every declared bucket at warm-up",
            evidence={"captures": seen.captures, "replays": seen.replays},
        )
    return found, seen


@contextlib.contextmanager
def located(where: str) -> Iterator[None]:
    """Say `where` among many calls of one case a failure was: `b1-f5: row 0 of 'wav' is wrong ...`."""
    try:
        yield
    except CheckFailed as failed:
        raise CheckFailed(
            failed.code,
            f"{where}: {failed.found}",
            likely=failed.likely,
            cure=failed.cure,
            evidence={**failed.evidence, "at": where},
        ) from failed


def _why_eager(subject: Subject) -> str:
    statistics = subject.stats() or {}
    failures = statistics.get("capture_failures") or {}
    if failures:
        bucket, text = next(iter(failures.items()))
        return f"{len(failures)} captures failed; {bucket}: {text}"
    return f"fallbacks by its own count: {statistics.get('fallbacks') or 'none counted'}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]
