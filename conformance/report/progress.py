"""What is going on, on a terminal: one line below pytest's own, there while something takes long and then gone.

Nothing of it reaches a file: it is off where stdout is no terminal, with `-q`, where `CI` is set and in workers. It
writes to a copy of the terminal's descriptor, for pytest captures the other while a case runs, and leaves the cursor
where it was, so that pytest goes on writing as if nothing had been there.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from conformance.activity import going_on

PATIENCE = 0.8  # seconds that something may take before it is shown
_TICK = 0.25
_CLEAR_LINE = "\x1b[K"


def progress_for(config: pytest.Config) -> Progress | None:
    """The progress line of a run, or None where nobody would see it."""
    wanted = config.get_verbosity() >= 0 and not hasattr(config, "workerinput") and not os.environ.get("CI")
    if not wanted or os.name == "nt" or os.environ.get("TERM", "dumb") == "dumb":
        return None
    try:
        terminal = sys.stdout.isatty() and config.pluginmanager.has_plugin("terminalreporter")
        return Progress(os.dup(sys.stdout.fileno()), config.get_terminal_writer()) if terminal else None
    except (AttributeError, OSError, ValueError):
        return None


class Progress:
    """Owns the copy of the descriptor. A thread draws; :meth:`shown` bounds when it may."""

    def __init__(self, descriptor: int, writer: Any) -> None:
        self._descriptor = descriptor
        self._writer = writer  # pytest's, to learn where its cursor is
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._allowed = self._drawn = False
        self._thread = threading.Thread(target=self._watch, name="audiograph-progress", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """While the block runs nobody else writes; after it the line is gone."""
        with self._lock:
            self._allowed = True
        try:
            yield
        finally:
            with self._lock:
                self._allowed = False
                self._erase()

    def close(self) -> None:
        self._wake.set()
        self._thread.join()
        os.close(self._descriptor)

    def _watch(self) -> None:
        while not self._wake.wait(_TICK):
            with self._lock:
                if self._allowed:
                    self._draw()

    def _draw(self) -> None:
        activity = going_on()
        if activity is None or activity.seconds < PATIENCE:
            self._erase()
            return
        width = int(self._writer.fullwidth)
        text = f"  … {activity}"
        self._write(text if len(text) < width else text[: width - 2] + "…")
        self._drawn = True

    def _erase(self) -> None:
        if self._drawn:
            self._write("")
            self._drawn = False

    def _write(self, text: str) -> None:
        """Put `text` on the line below, and the cursor back."""
        column = min(int(self._writer.width_of_current_line), int(self._writer.fullwidth) - 1)
        right = f"\x1b[{column}C" if column else ""
        with contextlib.suppress(OSError):
            os.write(self._descriptor, f"\n{_CLEAR_LINE}{text}\x1b[A\r{right}".encode())
