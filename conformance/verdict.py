"""From the outcomes of cases to the verdict of a run, and to the sentence that says it. Pure functions alone."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from conformance.outcome import CaseRecord, Outcome


class Verdict(enum.Enum):
    """What a run proved. The value is the word that the last terminal line says."""

    CONFORMANT = "CONFORMANT"
    NOT_CONFORMANT = "NOT CONFORMANT"
    INCONCLUSIVE = "INCONCLUSIVE"

    @property
    def exit_code(self) -> int:
        return {Verdict.CONFORMANT: 0, Verdict.NOT_CONFORMANT: 1, Verdict.INCONCLUSIVE: 6}[self]


def judge(outcomes: Iterable[Outcome]) -> Verdict:
    """The verdict on one adapter. A case that does not apply neither helps nor harms."""
    seen = frozenset(outcomes)
    if any(outcome.breaks for outcome in seen):
        return Verdict.NOT_CONFORMANT
    if Outcome.PASS not in seen or any(outcome.leaves_open for outcome in seen):
        return Verdict.INCONCLUSIVE
    return Verdict.CONFORMANT


def judge_run(records: Sequence[CaseRecord], *, stopped: bool, excuse_known: bool = False) -> Verdict:
    """The verdict on one adapter in one run: not CONFORMANT where that was `stopped` before the last case.

    `excuse_known` takes known failures for passes; what is left open beside them stays open.
    """
    outcomes = [record.outcome for record in records]
    verdict = judge([Outcome.PASS if excuse_known and one is Outcome.XFAIL else one for one in outcomes])
    cut = stopped and len(records) < max((record.planned for record in records), default=0)
    return Verdict.INCONCLUSIVE if cut and verdict is Verdict.CONFORMANT else verdict


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on several adapters: the worst one, and none at all is inconclusive."""
    seen = frozenset(verdicts)
    for verdict in (Verdict.NOT_CONFORMANT, Verdict.INCONCLUSIVE):
        if verdict in seen:
            return verdict
    return Verdict.CONFORMANT if seen else Verdict.INCONCLUSIVE


def worse(one: CaseRecord, other: CaseRecord) -> CaseRecord:
    """The record that counts when a case reports twice, e.g. passes and then fails to close."""
    order = (
        Outcome.ERROR,
        Outcome.FAIL,
        Outcome.XPASS,
        Outcome.XFAIL,
        Outcome.BLOCKED,
        Outcome.INCONCLUSIVE,
        Outcome.NOT_APPLICABLE,
        Outcome.PASS,
    )
    return min(one, other, key=lambda record: order.index(record.outcome))


def sentence(adapter: str, records: Sequence[CaseRecord], *, seed: int, stopped: bool = False) -> str:
    """`moss_tts: CONFORMANT — 44 passed, 0 failed, 1 not applicable; emulated CUDA, torch 2.13.0, seed 0`.

    Holds no time and no order, so that a run in one process and a distributed one say the same.
    """
    verdict = judge_run(records, stopped=stopped)
    if not records:
        return f"{adapter}: {verdict.value} — no case was selected; seed {seed}"
    planned = max(record.planned for record in records)
    part = ""
    if len(records) < planned:
        part = f" in the {len(records)} of {planned} cases {'run' if stopped else 'selected'}"
    return f"{adapter}: {verdict.value}{part} — {_counts(records)}; {_where(records)}seed {seed}"


def overall_sentence(verdicts: Mapping[str, Verdict]) -> str:
    """One line over several adapters, e.g. `2 adapters: NOT CONFORMANT — reference CONFORMANT, mine NOT CONFORMANT`."""
    each = ", ".join(f"{adapter} {verdict.value}" for adapter, verdict in verdicts.items())
    return f"{len(verdicts)} adapters: {overall(verdicts.values()).value} — {each}"


def _counts(records: Sequence[CaseRecord]) -> str:
    counter = Counter(record.outcome for record in records)
    words = []
    for outcome in Outcome:
        count = counter[outcome]
        if count or outcome in (Outcome.PASS, Outcome.FAIL):
            words.append(f"{count} {_plural(outcome) if count != 1 else outcome.value}")
    return ", ".join(words)


def _plural(outcome: Outcome) -> str:
    return {Outcome.ERROR: "errors", Outcome.XFAIL: "known failures", Outcome.XPASS: "known failures passed"}.get(
        outcome, outcome.value
    )


def _where(records: Sequence[CaseRecord]) -> str:
    machines = " and ".join(sorted({record.machine for record in records if record.machine}))
    versions = " and ".join(sorted({record.torch for record in records if record.torch}))
    return (f"{machines}, " if machines else "") + (f"torch {versions}, " if versions else "")
