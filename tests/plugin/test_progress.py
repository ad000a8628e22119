"""What is going on, on a terminal; and nothing of it anywhere else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from plugin_toys import RunToy, WriteSpec

SLOW = "behave = {80: 'slow'}"
DRAWN = re.compile(r"\n\x1b\[K([^\x1b\n]*)\x1b\[A\r(?:\x1b\[\d+C)?")


def on_a_terminal(folder: Path, *arguments: str, **environment: str) -> str:
    """Everything that `pytest ARGUMENTS` writes to a terminal."""
    kept = {name: value for name, value in os.environ.items() if name != "CI"}
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "toy_kit", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**kept, "TERM": "xterm-256color", "COLUMNS": "80", **environment},
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # the terminal's other end is closed
            part = b""
        if not part:
            break
        written += part
    os.close(ours)
    assert process.wait() == 0
    return written.decode().replace("\r\n", "\n")


def timeless(text: str) -> str:
    return re.sub(r"in \d+\.\d+s", "in 0s", text)


def test_what_takes_long_is_shown_with_its_seconds_and_gone_afterwards(
    toy_kit: pytest.Pytester, spec: WriteSpec
) -> None:
    token = spec(body=SLOW)
    text = on_a_terminal(toy_kit.path, f"--adapter={token}")
    drawn = DRAWN.findall(text)
    assert "  … toy/CG201-exact-bucket[b1-f80] · 1 s" in drawn
    assert drawn[-1] == ""
    assert not [line for line in drawn if "b1-f8]" in line]
    quiet = on_a_terminal(toy_kit.path, f"--adapter={token}", CI="true")
    assert timeless(DRAWN.sub("", text)) == timeless(quiet)


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(("-q",), {}), ((), {"CI": "1"}), ((), {"TERM": "dumb"}), (("-n", "1"), {}), (("-p", "no:terminal"), {})],
    ids=["quiet", "CI", "dumb", "distributed", "no reporter"],
)
def test_nothing_of_it_where_nobody_watches(
    toy_kit: pytest.Pytester, spec: WriteSpec, arguments: tuple[str, ...], environment: dict[str, str]
) -> None:
    assert "…" not in on_a_terminal(toy_kit.path, f"--adapter={spec(body=SLOW)}", *arguments, **environment)


def test_nothing_of_it_in_a_file(spec: WriteSpec, run_toy: RunToy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    text = run_toy(f"--adapter={spec(body=SLOW)}").stdout.str()
    assert "…" not in text
    assert "\x1b" not in text
