"""The `audiograph` command: what can be tested here. Testing itself is pytest's."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Sequence

from conformance.errors import ConformanceError
from conformance.registry import KnownAdapter, known_adapters

USAGE_ERROR = 4
"""As pytest's: one exit code for bad input, whichever command it was given to."""

_WIDEST = 72  # characters of a column: the reason why an adapter does not load may be long


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        self.print_usage(sys.stderr)
        self.exit(USAGE_ERROR, f"ERROR: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _Parser(prog="audiograph", description="Conformance of inner CUDA graphs. Run: pytest --adapter=NAME")
    parser.add_argument("--version", action="version", version=f"audiograph {importlib.metadata.version('audiograph')}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the adapters known here: name, what it is, where it comes from")
    parser.parse_args(arguments)
    for line in describe_known(known_adapters()):
        print(line)
    return 0


def describe_known(adapters: Sequence[KnownAdapter]) -> list[str]:
    """One line an adapter. One that does not load is listed with the reason: the others can still be used."""
    rows = [(adapter.name, _description(adapter), adapter.origin) for adapter in adapters]
    widths = [min(_WIDEST, max((len(row[column]) for row in rows), default=0)) for column in (0, 1)]
    return [f"{name:<{widths[0]}}  {text:<{widths[1]}}  {origin}" for name, text, origin in rows]


def _description(adapter: KnownAdapter) -> str:
    try:
        documentation = type(adapter.load()).__doc__ or ""
    except ConformanceError as error:
        return f"(does not load: {' '.join(str(error).split())})"
    return documentation.strip().partition("\n")[0]
