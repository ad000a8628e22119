"""What one case of a check left behind: the record that travels from a worker to the summary and the reports.

Imports nothing heavy: the controller of a distributed run reads records without ever importing torch.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

ATTRIBUTE = "conformance_record"
"""The attribute of a pytest report that holds its case's record as JSON. pytest-xdist carries a report's attributes
from a worker, and other plugins that write files leave them alone, which they do not with `user_properties`."""


class Outcome(enum.Enum):
    """The end of one case. The value is the word that stands in the summary line."""

    PASS = "passed"
    FAIL = "failed"
    ERROR = "error"
    XFAIL = "known failure"
    XPASS = "known failure passed"
    NOT_APPLICABLE = "not applicable"
    BLOCKED = "blocked"
    INCONCLUSIVE = "inconclusive"

    @property
    def breaks(self) -> bool:
        """Whether one such case makes the adapter not conformant."""
        return self in (Outcome.FAIL, Outcome.ERROR, Outcome.XFAIL, Outcome.XPASS)

    @property
    def leaves_open(self) -> bool:
        """Whether one such case keeps the run from a verdict."""
        return self in (Outcome.BLOCKED, Outcome.INCONCLUSIVE)


@dataclass(frozen=True)
class CaseRecord:
    """One case, its outcome and why.

    `message` is what was found. `known` is what the adapter's expectations say of a known failure: `reason`, `issue`,
    and `until`, the last day on which it counts as known. `planned` is the number of cases of the adapter before any
    deselection, `seconds` what the case took with the building of its subject where it was the first, `repeat` the
    command that runs it alone.
    """

    adapter: str
    check: str
    title: str
    case: str
    outcome: Outcome
    message: str = ""
    likely: str = ""
    cure: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    machine: str = ""
    torch: str = ""
    planned: int = 0
    seconds: float = 0.0
    repeat: str = ""
    known: Mapping[str, str] = field(default_factory=dict)

    @property
    def told(self) -> str:
        """All that is said of it in one paragraph: why it is known, where it is, and what was found."""
        if not self.known:
            return self.message
        return f"{self.known['reason']} ({self.known['issue']}, until {self.known['until']}): {self.message}"

    @property
    def code(self) -> str:
        """`CG203` of `CG203-padded-bucket`."""
        return self.check.partition("-")[0]

    @property
    def id(self) -> str:
        return case_id(self.adapter, self.check, self.case)

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "outcome": self.outcome.name}, default=str, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> CaseRecord:
        values = json.loads(text)
        return cls(**{**values, "outcome": Outcome[values["outcome"]]})


def case_id(adapter: str, check: str, case: str) -> str:
    """`moss_tts/CG201-exact-bucket[b1-f8]`; without brackets where a check has one nameless case."""
    return f"{adapter}/{check}[{case}]" if case else f"{adapter}/{check}"


def record_of(report: object) -> CaseRecord | None:
    """The record that a pytest report carries, or None for a test that is not the kit's."""
    text = getattr(report, ATTRIBUTE, None)
    return None if text is None else CaseRecord.from_json(text)
