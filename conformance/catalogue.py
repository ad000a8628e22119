"""The check catalogue: what a check is, what one run of it leaves behind, and who decides whether it runs.

Arrows: checks import this module; this module imports no check until :func:`load_catalogue` is called.
"""

from __future__ import annotations

import enum
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.spec import AdapterSpec
    from conformance.subject import Subject

Evidence = Mapping[str, Any]
"""JSON-ready facts that a passing check saw: counts of replays, the worst error, the lengths it tried."""

CODE = re.compile(r"CG[0-9]\d\d")


class Level(enum.Enum):
    CORE = "core"
    EXTENDED = "extended"
    PERFORMANCE = "performance"


class CheckFailed(Exception):
    """A promise is broken. Only this exception makes a FAIL; anything else that escapes a check is an ERROR.

    `found` says what was seen, `likely` the probable cause, `cure` what the author can do, all in one sentence each.
    """

    def __init__(self, code: str, found: str, *, likely: str = "", cure: str = "", evidence: Evidence | None = None):
        super().__init__(f"{code}: {found}")
        self.code = code
        self.found = found
        self.likely = likely
        self.cure = cure
        self.evidence: Evidence = evidence or {}


class Inconclusive(Exception):
    """The machine cannot tell right from wrong here, e.g. eager itself varies by more than the adapter's limit."""


@dataclass(frozen=True)
class Case:
    """One run of a check. `id` is what stands in brackets in the test id: `b1-f5-in-f8`."""

    id: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """A numbered promise: `run(subject, **case.arguments)` returns evidence or raises :class:`CheckFailed`."""

    code: str
    slug: str
    title: str
    level: Level
    run: Callable[..., Evidence]
    cases: Callable[[AdapterSpec], Iterable[Case]]
    not_applicable: Callable[[AdapterSpec], str | None]

    @property
    def name(self) -> str:
        return f"{self.code}-{self.slug}"

    @property
    def documentation(self) -> str:
        """Four parts: Contract, Why it matters, How it is checked, If it fails."""
        return self.run.__doc__ or ""

    def __call__(self, subject: Subject, case: Case) -> Evidence:
        subject.settle()
        return self.run(subject, **case.arguments)


_CHECKS: dict[str, Check] = {}


def _always(_: AdapterSpec) -> str | None:
    return None


def check(
    code: str,
    slug: str,
    title: str,
    *,
    cases: Callable[[AdapterSpec], Iterable[Case]],
    level: Level = Level.CORE,
    not_applicable: Callable[[AdapterSpec], str | None] = _always,
) -> Callable[[Callable[..., Evidence]], Callable[..., Evidence]]:
    """Register a function as a check. `title` is the promise, said as a sentence in the present tense.

    Where it is not applicable it has one nameless case, so that a report says so instead of leaving it out.
    """
    if not CODE.fullmatch(code):
        raise ValueError(f"check code {code!r}: expected CG and three digits")

    def register(function: Callable[..., Evidence]) -> Callable[..., Evidence]:
        known = _CHECKS.get(code)
        if known is not None and known.run.__module__ != function.__module__:
            raise ValueError(f"check code {code} is taken by {known.name}; codes are never reused")

        def cases_or_one(spec: AdapterSpec) -> Iterable[Case]:
            return [Case("")] if not_applicable(spec) else cases(spec)

        _CHECKS[code] = Check(code, slug, title, level, function, cases_or_one, not_applicable)
        return function

    return register


def load_catalogue() -> tuple[Check, ...]:
    """Every check of the kit, in the order of the codes. Imports torch."""
    package = importlib.import_module("conformance.checks")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return tuple(_CHECKS[code] for code in sorted(_CHECKS))


@dataclass(frozen=True)
class Machine:
    """Where a run happens. `graphs` is false when the device that was asked for is not there."""

    device: str  # "cuda" or "emulated"
    name: str  # "NVIDIA H200", "emulated CUDA"
    torch_version: str
    graphs: bool = True


@dataclass(frozen=True)
class Run:
    pass


@dataclass(frozen=True)
class NotApplicable:
    reason: str


@dataclass(frozen=True)
class Blocked:
    reason: str


Decision = Run | NotApplicable | Blocked


def decide(check: Check, spec: AdapterSpec, machine: Machine) -> Decision:
    """Whether `check` runs for `spec` on `machine`. Pure: same arguments, same answer.

    A property that the adapter does not have comes first: it makes a check meaningless on every machine.
    """
    reason = check.not_applicable(spec)
    if reason is not None:
        return NotApplicable(reason)
    if not machine.graphs:
        return Blocked(f"no CUDA device on this machine (--graph-device={machine.device}); use --graph-device=emulated")
    return Run()
