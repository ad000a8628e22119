"""Every report that a run can leave, by the word that asks for it: `--conformance-WORD=FILE`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from conformance.report.badge import write_badge
from conformance.report.document import RunReport, write_report
from conformance.report.files import ReportError, require_apart, require_writable
from conformance.report.markdown import write_markdown
from conformance.report.page import require_html, write_html

WRITERS: Mapping[str, Callable[[RunReport, Path], None]] = {
    "json": write_report,
    "md": write_markdown,
    "html": write_html,
    "badge": write_badge,
}
"""The JSON first: where a later one fails, the others can be made from it."""


def require_reports(files: Mapping[str, Path]) -> None:
    """Raise :class:`ReportError` for a report that could not be written after the run."""
    for path in files.values():
        require_writable(path)
    require_apart(files)
    if "html" in files:
        require_html()


def write_reports(report: RunReport, files: Mapping[str, Path]) -> Iterator[str]:
    """Write each, whatever becomes of the others. Gives one line for each that could not be written."""
    for kind, path in files.items():
        try:
            WRITERS[kind](report, path)
        except ReportError as error:
            yield f"the {kind} report is not written: {error}"
        except Exception as error:  # a picture that cannot be drawn must not cost the verdict
            yield f"the {kind} report is not written: {path}: {type(error).__name__}: {error}"
