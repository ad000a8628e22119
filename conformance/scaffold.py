"""`audiograph new`: an adapter folder that runs once two places are filled in."""

from __future__ import annotations

import keyword
from pathlib import Path
from string import Template

from conformance.errors import ConformanceError

TEMPLATES = Path(__file__).parent / "templates"
HOP = 8


def write_adapter(name: str, into: Path) -> tuple[Path, ...]:
    """Write `into/name/adapter.py` and `spec.py`. Raises where the name is no identifier or the folder is there."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ConformanceError(f"adapter name {name!r}: expected a Python identifier such as my_decoder")
    folder = into / name
    if folder.exists():
        raise ConformanceError(f"{folder} exists already; choose another name or folder")
    values = {"name": name, "class_name": "".join(part.capitalize() for part in name.split("_")), "hop": str(HOP)}
    folder.mkdir(parents=True)
    written = []
    for template in sorted(TEMPLATES.glob("*.py.txt")):
        path = folder / template.name.removesuffix(".txt")
        path.write_text(Template(template.read_text(encoding="utf-8")).substitute(values), encoding="utf-8")
        written.append(path)
    return tuple(written)
