"""CG3: any sequence of operations, searched for one that goes wrong and shrunk to the shortest that does."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator

from hypothesis import HealthCheck, Phase, Verbosity, configuration, given, seed, settings
from hypothesis import strategies as st

from conformance import cases
from conformance.catalogue import Case, CheckFailed, Evidence, check
from conformance.instruments.sequences import ACTIONS, CODE, Step, few_buckets, program, run_steps
from conformance.instruments.sweeps import largest
from conformance.spec import AdapterSpec
from conformance.subject import Subject
from runner import EXACT

SEARCHED = 6
"""Sequences that are tried where none fails."""
SHRUNK = 10
"""Sequences that are tried to find a shorter one than the first that failed."""
SHORTEST, LONGEST = 8, 12
"""Steps of a sequence that is searched; the shrunk one may be shorter."""

Steps = tuple[tuple[str, tuple[int, ...]], ...]


def _one(_: AdapterSpec) -> Iterator[Case]:
    yield Case("")


@check(CODE, "sequences", "no sequence of calls, captures, failures and closes gives a wrong result", cases=_one)
def sequences(subject: Subject) -> Evidence:
    """Contract: whatever happened before, on this runner or on another one of the same pool, a call gives what eager
    gives, and what was returned stays as it was.

    Why it matters: the worst public faults need three things in a row: a capture that failed, an unload, and a replay.
    https://github.com/vllm-project/vllm/pull/51994

    How it is checked: Hypothesis draws sequences of calls of any size, calls of a second runner on the same pool, its
    close, outer captures and failed captures; each runs on fresh runners. Where an axis is exact, half of the sizes are
    a bucket's, and sizes that the module itself refuses are left out. A sequence that fails is shrunk.

    If it fails: the evidence holds a program that repeats the shortest sequence; run it and look at what the operation
    before the last one leaves behind.
    """
    axes = tuple(subject.spec.adapter.axes)
    most = largest(subject.spec)
    verdicts: dict[Steps, CheckFailed | None] = {}

    def steps_of(drawn: Steps) -> list[Step]:
        return [(action, dict(zip(axes, sizes, strict=True))) for action, sizes in drawn]

    sizes: st.SearchStrategy[tuple[int, ...]] = st.tuples(*(st.integers(1, most[axis] + 1) for axis in axes))
    if EXACT in subject.adapter.axes.values():  # few sizes drawn freely would be a bucket's
        filled = [tuple(bucket[axis] for axis in axes) for bucket in few_buckets(subject.spec)]
        sizes = st.sampled_from(filled) | sizes
    one = st.tuples(st.sampled_from(tuple(ACTIONS)), sizes)

    @seed(subject.seed)
    @settings(
        max_examples=SEARCHED,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(one, min_size=SHORTEST, max_size=LONGEST).map(tuple))
    def search(drawn: Steps) -> None:
        if drawn not in verdicts:
            verdicts[drawn] = _verdict(subject, steps_of(drawn)) if _in_budget(verdicts) else None
        failed = verdicts[drawn]
        if failed is not None:
            raise failed

    try:
        with _no_files_left():
            search()
    except CheckFailed:
        failures = {drawn: failed for drawn, failed in verdicts.items() if failed is not None}
        shortest = min(failures, key=lambda drawn: (len(drawn), sum(sum(sizes) for _, sizes in drawn)))
        raise _shown(subject, *_fewest(subject, steps_of(shortest), failures[shortest])) from None
    return {"sequences": len(verdicts), "steps": sum(map(len, verdicts))}


@contextlib.contextmanager
def _no_files_left() -> Iterator[None]:
    """Hypothesis keeps files in the working directory, which is the user's: meanwhile it keeps them elsewhere."""
    home = getattr(configuration, "__hypothesis_home_directory", None)
    with tempfile.TemporaryDirectory() as folder:
        configuration.set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            configuration.set_hypothesis_home_dir(home)


def _in_budget(verdicts: dict[Steps, CheckFailed | None]) -> bool:
    """Past the budget a sequence counts as right, so that the search ends; those that failed are remembered."""
    return len(verdicts) < SEARCHED + SHRUNK


def _fewest(subject: Subject, steps: list[Step], failed: CheckFailed) -> tuple[list[Step], CheckFailed]:
    """Leave out what the failure does not need: runs of steps first, then single ones."""
    for run in (4, 2, 1):
        start = len(steps) - run
        while start >= 0:
            fewer = steps[:start] + steps[start + run :]
            again = _verdict(subject, fewer) if fewer else None
            if again is not None:
                steps, failed = fewer, again
            start -= run
    return steps, failed


def _verdict(subject: Subject, steps: list[Step]) -> CheckFailed | None:
    try:
        run_steps(subject, steps)
    except CheckFailed as failed:
        return failed
    return None


def _shown(subject: Subject, steps: list[Step], failed: CheckFailed) -> CheckFailed:
    told = " > ".join(f"{action} {cases.label(subject.spec, sizes)}" for action, sizes in steps)
    return CheckFailed(
        CODE,
        f"after {len(steps)} steps ({told}): {failed.found}",
        likely=failed.likely,
        cure=failed.cure,
        evidence={**failed.evidence, "program": program(subject, steps), "steps": len(steps)},
    )
