"""What a JUnit file says about a case: its name, and three properties. pytest's own `--junitxml` writes the file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from conformance.outcome import CaseRecord
from conformance.waveform import WAVEFORM

PREFIX = "conformance."


def properties(record: CaseRecord) -> list[tuple[str, str]]:
    """`user_properties` of a case. The waveform stays out: it is a picture's, and would be most of the file."""
    evidence = {name: value for name, value in record.evidence.items() if name != WAVEFORM}
    return [
        (f"{PREFIX}code", record.code),
        (f"{PREFIX}outcome", record.outcome.value),
        (f"{PREFIX}evidence", json.dumps(evidence, default=str, sort_keys=True, separators=(",", ":"))),
    ]


def without(given: Iterable[tuple[str, object]]) -> list[tuple[str, object]]:
    """`given` less what an earlier phase of the same case put there."""
    return [item for item in given if not item[0].startswith(PREFIX)]


def writers(plugins: Iterable[Any]) -> list[Any]:
    """pytest's writer of a JUnit file, where one is asked for: a nameless plugin, known by its `node_reporter`."""
    return [plugin for plugin in plugins if callable(getattr(plugin, "node_reporter", None))]


def name_testcase(writer: Any, report: object, record: CaseRecord) -> None:
    """Give the case a class name, `conformance.moss_tts`, and the check and case as its name.

    pytest derives a class name from the parts of a node id before `::`, of which the kit's ids have none. Attributes
    that are set on the writer's node win over the derived ones.
    """
    node = writer.node_reporter(report)
    node.add_attribute("classname", f"conformance.{record.adapter}")
    node.add_attribute("name", record.id.removeprefix(f"{record.adapter}/"))
