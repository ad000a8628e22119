"""A row of the fidelity table: one behaviour of CUDA, a small program that shows it, and what CUDA answers."""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conformance.fidelity.stage import Stage

Program = Callable[["Stage"], object]
"""Shows a behaviour and returns what it saw: plain Python values, never tensors. It does not know where it runs."""

REFUSED_IN_CAPTURE = "captur"
"""Both of torch's wordings: "not permitted when stream is capturing", "due to a previous error during capture"."""


class Device(Enum):
    """Where a row can be judged."""

    EMULATED = "emulated"
    CUDA = "cuda"


@dataclass(frozen=True)
class Returns:
    """The program returns this value."""

    value: object = True

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True)
class Refuses:
    """The program raises `error`, and the text of it or of what it was raised from matches `pattern`."""

    error: type[BaseException]
    pattern: str

    def __str__(self) -> str:
        return f"{self.error.__name__} that says /{self.pattern}/"


@dataclass(frozen=True)
class Only:
    """Why a row can be judged on one kind of device alone. Such a row does not count among those that must agree."""

    device: Device
    reason: str


@dataclass(frozen=True)
class Row:
    """One behaviour. `name` reads as a sentence; `group` is a promise of the emulation (see docs/emulation.md)."""

    name: str
    group: str
    program: Program
    expected: Returns | Refuses
    digest: str
    only: Only | None = None

    def judged_on(self, device: Device) -> bool:
        return self.only is None or self.only.device is device


class Group:
    """The rows of one promise, in the order in which they are written down."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.rows: list[Row] = []

    def returns(self, value: object = True, *, only: Only | None = None) -> Callable[[Program], Program]:
        """Decorates a program that returns `value`; the row is named after the function."""
        return self._decorator(Returns(value), only)

    def refuses(
        self, pattern: str, error: type[BaseException] = RuntimeError, *, only: Only | None = None
    ) -> Callable[[Program], Program]:
        """Decorates a program that raises `error` with a text that matches `pattern`."""
        return self._decorator(Refuses(error, pattern), only)

    def add(
        self,
        name: str,
        program: Program,
        expected: Returns | Refuses,
        only: Only | None = None,
        written_as: Callable[..., object] | None = None,
    ) -> None:
        """Add a row. `written_as` is the function whose source says what the program does, if not `program` itself."""
        text = "\n".join((name, str(expected), _source(written_as or program)))
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        self.rows.append(Row(name, self.title, program, expected, digest, only))

    def _decorator(self, expected: Returns | Refuses, only: Only | None) -> Callable[[Program], Program]:
        def decorate(program: Program) -> Program:
            self.add(program.__name__.replace("_", "-"), program, expected, only)
            return program

        return decorate


def _source(function: Callable[..., object]) -> str:
    """The text of `function`, white space evened out: the same in every Python, unlike `inspect.getsource`."""
    code = function.__code__
    return _functions_of(code.co_filename)[code.co_firstlineno]


@functools.cache
def _functions_of(filename: str) -> dict[int, str]:
    """The text of every function of a file, by its first line."""
    text = Path(filename).read_text(encoding="utf-8")
    lines = text.splitlines()
    functions: dict[int, str] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
            first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            functions.setdefault(first, " ".join(" ".join(lines[first - 1 : node.end_lineno]).split()))
    return functions
