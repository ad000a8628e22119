"""The runner stays small, and knows nothing of what tests it or of the models that it serves."""

import ast
from pathlib import Path

import runner

FILES = sorted(Path(runner.__file__).parent.glob("*.py"))


def test_it_has_at_most_900_lines():
    lines = {file.name: len(file.read_text().splitlines()) for file in FILES}
    assert sum(lines.values()) <= 900, lines


def test_it_imports_neither_the_kit_nor_an_adapter():
    found = [node for file in FILES for node in ast.walk(ast.parse(file.read_text()))]
    modules = [node.module for node in found if isinstance(node, ast.ImportFrom) and node.module]
    modules += [alias.name for node in found if isinstance(node, ast.Import) for alias in node.names]
    assert "torch" in modules
    assert not {module.split(".")[0] for module in modules} & {"conformance", "adapters", "tests", "vllm", "vllm_omni"}
