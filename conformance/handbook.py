"""The catalogue as text: one line a check, one page a check, and all of them as docs/checks.md."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Sequence

from conformance.catalogue import Check
from conformance.errors import ConformanceError

FAMILIES = {
    "CG0": "Manifest and life cycle",
    "CG1": "Capture",
    "CG2": "Parity with eager",
    "CG3": "Aliasing, addresses, state",
    "CG4": "Fallback, policy, bad input",
    "CG5": "Memory",
    "CG6": "Threads and streams",
    "CG7": "Truthful statistics",
    "CG8": "Speed",
    "CG9": "Snapshots",
}

CLASSES = {
    "A": "wrong length or trim",
    "B": "padding reaches real rows",
    "C": "wrong only at some batch size",
    "D": "a result shares memory with later calls",
    "E": "a captured address was freed or rebound",
    "F": "no guard against an outer capture",
    "G": "the host waits, or a shape depends on data",
    "H": "random numbers",
    "I": "dtype and precision",
    "J": "state and slots",
    "K": "memory and its pool",
    "L": "a failed capture leaves half a state",
    "M": "threads, streams and processes",
    "N": "wrong bucket, or silently eager",
    "O": "side effects in Python are skipped",
    "P": "an input is changed",
    "Q": "a switch is ignored",
    "R": "too little warm-up",
    "S": "zero length",
    "T": "statistics that are not true",
    "U": "what is compared is not what is deployed",
}
"""The kinds of mistakes that public defects of inner CUDA graphs were, by the letter that a likely cause ends in."""
_CLASSES = re.compile(r"\s*\(class ([A-Z](?:, [A-Z])*)\)\s*$")


def spelled_out(likely: str) -> tuple[str, tuple[str, ...]]:
    """A likely cause without its letters, and what the letters mean: `("the trim …", ("wrong length or trim",))`."""
    found = _CLASSES.search(likely)
    if found is None:
        return likely, ()
    return likely[: found.start()], tuple(CLASSES[letter] for letter in found[1].split(", ") if letter in CLASSES)


def find_check(code: str, checks: Sequence[Check]) -> Check:
    """The check of that code, in any case. Raises with the nearest codes."""
    by_code = {check.code: check for check in checks}
    found = by_code.get(code.upper())
    if found is None:
        near = difflib.get_close_matches(code.upper(), by_code, n=3) or sorted(by_code)
        raise ConformanceError(f"no check {code!r}; did you mean {', '.join(near)}?")
    return found


def page(check: Check) -> str:
    """One check: its promise, its level, and the four parts of its documentation."""
    return f"{check.name}: {check.title}\nlevel: {check.level.value}\n\n{inspect.cleandoc(check.documentation)}\n"


def markdown(checks: Sequence[Check]) -> str:
    """docs/checks.md."""
    lines = [
        "# The checks",
        "",
        "Written by `make docs` from the docstrings of the checks; `make test` fails when it is stale.",
        "",
        "| code | promise | level |",
        "|---|---|---|",
        *(f"| [{check.name}](#{check.name.lower()}) | {check.title} | {check.level.value} |" for check in checks),
    ]
    lines += [
        "",
        "## Classes",
        "",
        "A likely cause ends in the kind of mistake that it is, by a letter:",
        "",
        *(f"- **{letter}** {words}" for letter, words in CLASSES.items()),
    ]
    family = ""
    for check in checks:
        if check.code[:3] != family:
            family = check.code[:3]
            lines += ["", f"## {family}: {FAMILIES[family]}"]
        lines += ["", f"### {check.name}", "", f"*{check.title}*", "", inspect.cleandoc(check.documentation)]
    return "\n".join(lines) + "\n"
