"""Known failures: declared beside the adapter, explained, dated, and never allowed to outlive what they describe.

`expectations.toml` holds one table an entry::

    [[known]]
    code = "CG203"
    case = "b1-f5-in-b1-f8"    # left out: every case of the check fails
    reason = "padded frames reach real ones: GroupNorm over time; a listener hears the last 20 ms change"
    issue = "https://github.com/vllm-project/vllm-omni/issues/4571"
    expires = 2027-06-30
"""

from __future__ import annotations

import datetime
import inspect
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.errors import ConformanceError
from conformance.spec import AdapterSpec

FILE = "expectations.toml"
TABLE = "known"
TODO = "TODO"
FIELDS = ("code", "case", "reason", "issue", "expires")


class ExpectationError(ConformanceError):
    """An expectations file that cannot be trusted. The message begins with file and line."""


@dataclass(frozen=True)
class Expectation:
    """One known failure. `case` is None where every case of the check fails."""

    code: str
    case: str | None
    reason: str
    issue: str
    expires: datetime.date
    line: int

    def covers(self, code: str, case: str) -> bool:
        return self.code == code and self.case in (None, case)


def expectations_file(spec: AdapterSpec) -> Path:
    """Where the known failures of `spec` are declared: beside the file that defines it."""
    return Path(inspect.getfile(type(spec))).parent / FILE


def load_expectations(path: Path, cases: Iterable[tuple[str, str]], today: datetime.date) -> tuple[Expectation, ...]:
    """The entries of `path`, each found complete, current and about one of `cases` (code, case id).

    No file is no entry. Raises :class:`ExpectationError` naming file and line, before any check has run.
    """
    if not path.exists():
        return ()
    text = path.read_text(encoding="utf-8")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"line (\d+)", str(error))
        raise ExpectationError(f"{path}:{at.group(1) if at else 1}: not TOML: {error}") from error
    tables = document.pop(TABLE, [])
    if document or not isinstance(tables, list):
        raise ExpectationError(f"{path}:1: expected [[{TABLE}]] tables alone, found {sorted(document) or TABLE}")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.strip().startswith(f"[[{TABLE}]]")]
    known = list(cases)
    entries: list[Expectation] = []
    for table, line in zip(tables, lines, strict=True):
        entry = _entry(table, f"{path}:{line}", line, today)
        _require_match(entry, known, f"{path}:{line}")
        clash = next((e for e in entries if e.code == entry.code and None in (e.case, entry.case)), None)
        clash = clash or next((e for e in entries if (e.code, e.case) == (entry.code, entry.case)), None)
        if clash:
            raise ExpectationError(f"{path}:{line}: {_name(entry)} is declared already in line {clash.line}")
        entries.append(entry)
    return tuple(entries)


def _entry(table: dict[str, Any], where: str, line: int, today: datetime.date) -> Expectation:
    unknown = sorted(set(table) - set(FIELDS))
    if unknown:
        raise ExpectationError(f"{where}: unknown field {unknown[0]!r}; the fields are {', '.join(FIELDS)}")
    for field in ("code", "reason", "issue"):
        if not isinstance(table.get(field), str) or not table[field].strip():
            raise ExpectationError(f"{where}: `{field}` is missing or empty; expected a string")
    if table["reason"].strip().upper().startswith(TODO):
        raise ExpectationError(f"{where}: the reason is still {TODO}: say what a user would hear or see")
    if not table["issue"].startswith("https://"):
        raise ExpectationError(f"{where}: `issue` must be the URL of a public issue, found {table['issue']!r}")
    expires = table.get("expires")
    if not isinstance(expires, datetime.date) or isinstance(expires, datetime.datetime):
        raise ExpectationError(f"{where}: `expires` must be a date such as 2027-06-30, found {expires!r}")
    if expires < today:
        raise ExpectationError(f"{where}: expired on {expires}; mend the failure, or look and date it anew")
    return Expectation(table["code"], table.get("case"), table["reason"], table["issue"], expires, line)


def _require_match(entry: Expectation, cases: Sequence[tuple[str, str]], where: str) -> None:
    if not any(code == entry.code for code, _ in cases):
        codes = ", ".join(sorted({code for code, _ in cases}))
        raise ExpectationError(f"{where}: no check {entry.code!r} runs for this adapter; known: {codes}")
    if not any(entry.covers(code, case) for code, case in cases):
        ids = ", ".join(case for code, case in cases if code == entry.code)
        raise ExpectationError(f"{where}: {_name(entry)} matches no case; the cases are {ids}")


def _name(entry: Expectation) -> str:
    return entry.code if entry.case is None else f"{entry.code}[{entry.case}]"


def whole_checks(failures: Sequence[tuple[str, str]], every: Iterable[tuple[str, str]]) -> list[tuple[str, str | None]]:
    """`failures` (code, case id) with one entry, of no case, for each check of which every case fails."""
    whole = {code for code, _ in failures} - {code for code, case in every if (code, case) not in failures}
    return list(dict.fromkeys((code, None if code in whole else case) for code, case in failures))


def to_toml(failures: Iterable[tuple[str, str | None]], expires: datetime.date) -> str:
    """Entries for `failures`, with a reason that the next run refuses until one is written. No case: all of them."""
    return "\n".join(
        f'[[{TABLE}]]\ncode = "{code}"\n'
        + (f'case = "{case}"\n' if case else "")
        + f'reason = "{TODO}"\nissue = "https://github.com/"\nexpires = {expires.isoformat()}\n'
        for code, case in failures
    )
