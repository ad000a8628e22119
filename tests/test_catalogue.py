"""What holds for every check and every capability, read from their source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from conformance.capabilities import Capabilities
from conformance.catalogue import load_catalogue
from conformance.handbook import CLASSES

SHIPPED = Path(__file__).resolve().parents[1] / "conformance"
CHECKS = sorted((SHIPPED / "checks").glob("*.py"))
PRETENDING = {"skip", "xfail", "importorskip"}


@pytest.mark.parametrize("path", CHECKS, ids=lambda path: path.stem)
def test_no_check_skips_or_asserts(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    asserts = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [getattr(call.func, "attr", getattr(call.func, "id", "")) for call in calls]
    assert asserts == []
    assert PRETENDING.isdisjoint(names)


def test_every_capability_is_looked_at_by_a_check() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in [*CHECKS, SHIPPED / "cases.py"])
    unused = [name for name in Capabilities.__dataclass_fields__ if name not in source]
    assert unused == []


def test_every_family_of_the_catalogue_has_checks() -> None:
    families = {check.code[:3] for check in load_catalogue()}
    assert families == {"CG0", "CG1", "CG2", "CG3", "CG4", "CG5", "CG6", "CG7", "CG8", "CG9"}


def test_every_class_of_public_defects_is_named_by_a_check() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in SHIPPED.rglob("*.py"))
    named = {letter for group in ast_classes(source) for letter in group}
    assert named >= set("ABCDEFGHIJKLMNOPQRSTU")
    assert named == set(CLASSES)


def ast_classes(source: str) -> list[set[str]]:
    """The letters of every `(class A, B)` in the advice that checks give."""
    found = []
    for part in source.split("(class ")[1:]:
        letters = part.partition(")")[0].replace(" ", "").split(",")
        found.append({letter for letter in letters if len(letter) == 1})
    return found
