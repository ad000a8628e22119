"""What an adapter claims to be able to do. Every claim is checked, also the claim that it cannot.

Each field of :class:`Capabilities` must be given: nothing is assumed silently. `supported()` is proved by checks,
`unsupported(reason)` swaps a check for its negative twin (the call must be refused, or run eagerly and rightly), and
`not_implemented(issue)` says that it is planned: the check is reported as not applicable, with the issue.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from conformance.errors import SpecError


class Support(enum.Enum):
    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    NOT_IMPLEMENTED = "not_implemented"


@dataclass(frozen=True)
class Claim:
    """One claim. `reason` says why not; for what is planned it is the URL of the issue."""

    support: Support
    reason: str = ""

    @property
    def supported(self) -> bool:
        return self.support is Support.SUPPORTED


def supported() -> Claim:
    return Claim(Support.SUPPORTED)


def unsupported(reason: str) -> Claim:
    return Claim(Support.UNSUPPORTED, reason)


def not_implemented(issue: str) -> Claim:
    return Claim(Support.NOT_IMPLEMENTED, issue)


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """The spec sheet of an adapter, one documented property a line."""

    variable_length: Claim
    """Rows of unequal length may share a batch, the shorter ones padded by the caller."""

    streaming: Claim
    """Chunks with left context, decoded one by one and joined, give what one call over everything gives."""

    randomness: Claim
    """The module draws random numbers: replays differ, and reseeding repeats what eager draws."""

    state: Claim
    """The module keeps state between calls, which replays advance as eager calls do."""

    low_precision: Claim
    """The module runs in bfloat16 and float16 as well, graphed and eager alike."""

    autocast: Claim
    """Calls under `torch.autocast` give what eager gives under the same autocast."""

    zero_length: Claim
    """A call of no frames or of no rows gives what eager gives."""

    threads: Claim
    """Calls from several threads at once each get their own result."""


def validate_capabilities(found: Any, where: str) -> None:
    """Raise :class:`SpecError` unless `found` is a complete sheet whose refusals say why."""
    if not isinstance(found, Capabilities):
        raise SpecError(f"{where}: `capabilities` must be a Capabilities(...), found {found!r}")
    for name, claim in claims(found).items():
        if not isinstance(claim, Claim):
            raise SpecError(
                f"{where}: capability {name!r} must be supported(), unsupported(reason) or not_implemented(issue), "
                f"found {claim!r}"
            )
        if not claim.supported and not claim.reason.strip():
            raise SpecError(f"{where}: capability {name!r} is {claim.support.value} and says no reason; give one")
        if claim.support is Support.NOT_IMPLEMENTED and not claim.reason.startswith("http"):
            raise SpecError(f"{where}: capability {name!r} is planned; give its issue's URL, found {claim.reason!r}")


def claims(capabilities: Capabilities) -> Mapping[str, Claim]:
    """The claims by name, in the order of the sheet."""
    return {field.name: getattr(capabilities, field.name) for field in fields(capabilities)}
