"""What of an author's own would stand in the kit's place, found before anything is collected."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

KIT_FIXTURES = frozenset({"emulated_cuda"})
_FOREIGN = frozenset({"node_modules", "site-packages", "build", "dist", "venv"})


def refuse_shadowing_conftests(roots: Iterable[Path]) -> None:
    """Raise `pytest.UsageError` for a conftest.py under `roots` that defines one of the kit's fixtures.

    Read from the source: pytest loads the conftests of subfolders only while it collects, and in a distributed run the
    workers do that, which have no way to say it in one line.
    """
    for path in _conftests(roots):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):
            continue  # pytest will say what is wrong with it
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                name = _fixture_name(node)
                if name in KIT_FIXTURES:
                    raise pytest.UsageError(
                        f"{path}:{node.lineno} defines the fixture {name!r}, which is audiograph's; rename it"
                    )


def _conftests(roots: Iterable[Path]) -> Iterator[Path]:
    for root in roots:
        folder = root if root.is_dir() else root.parent
        for path in folder.rglob("conftest.py"):
            parts = path.relative_to(folder).parts
            if not any(part.startswith(".") or part in _FOREIGN for part in parts):
                yield path


def _fixture_name(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """The name of the fixture that the function is decorated to be, if it is."""
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if getattr(called, "attr", getattr(called, "id", "")) != "fixture":
            continue
        given = [word.value for word in getattr(decorator, "keywords", []) if word.arg == "name"]
        if given and isinstance(given[0], ast.Constant):
            return str(given[0].value)
        return function.name
    return None
