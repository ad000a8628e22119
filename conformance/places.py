"""Places in files as a reader elsewhere knows them: `vllm_omni/model.py:870`, and not where this machine keeps it.

Messages name files of the author's, of installed packages and of the kit. Reports of them travel, so each path is told
from the folder that its reader knows: the packages, the standard library, the working folder, the home folder.
"""

from __future__ import annotations

import re
import site
import sysconfig
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

_BEGINNING = r"(?<![\w.~/-])"  # of a path: `/a/b` within `/c/a/b` is not one


def told(text: str) -> str:
    """`text` with each path of this machine told from a folder that its reader knows."""
    if "/" not in text:
        return text
    pattern, folders = _folders(Path.cwd(), Path.home())
    return pattern.sub(lambda found: folders[found[0]], text)


def told_throughout(value: Any) -> Any:
    """`value`, of mappings and sequences, with every text in it so told; all else is as it was."""
    if isinstance(value, str):
        return told(value)
    if isinstance(value, Mapping):
        return {told_throughout(name): told_throughout(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(told_throughout, value)) if type(value) in (list, tuple) else value
    return value


def near(path: Path) -> Path:
    """`path` from the working folder where it lies within it, else as it is: for commands, which are pasted."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


@lru_cache(maxsize=8)
def _folders(working: Path, home: Path) -> tuple[re.Pattern[str], dict[str, str]]:
    """A pattern of the folders' paths, the longest first, and what stands for each."""
    found: dict[str, str] = {}
    for folder, name in _known(working, home):
        for form in (folder, folder.resolve()):
            if len(form.parts) > 1:
                found.setdefault(f"{form}/", name)
    alternatives = "|".join(re.escape(path) for path in sorted(found, key=len, reverse=True))
    return re.compile(f"{_BEGINNING}(?:{alternatives})"), found


def _known(working: Path, home: Path) -> Iterator[tuple[Path, str]]:
    yield from ((Path(folder), "") for folder in (*site.getsitepackages(), site.getusersitepackages()))
    yield from ((Path(sysconfig.get_path(name)), "") for name in ("purelib", "platlib"))
    stdlib = Path(sysconfig.get_path("stdlib"))
    yield stdlib, f"{stdlib.name}/"
    yield working, ""
    yield Path(__file__).resolve().parent.parent, ""  # a checkout of the kit
    yield home, "~/"
