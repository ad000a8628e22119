"""The example that the README shows is a report of this kit, of this schema, and of no machine in particular."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from conformance.report.document import SCHEMA, read_report
from conformance.report.markdown import markdown
from conformance.report.page import page
from conformance.verdict import Verdict

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


def test_it_is_as_the_schema_says_and_shows_failing_wrappers_and_conforming_adapters() -> None:
    jsonschema.validate(json.loads((EXAMPLES / "report.json").read_text()), json.loads(SCHEMA.read_text()))
    report = read_report(EXAMPLES / "report.json")
    assert {subject.name: subject.verdict for subject in report.subjects} == {
        "mimo_audio@vllm_omni": Verdict.NOT_CONFORMANT,
        "moss_tts@vllm_omni": Verdict.NOT_CONFORMANT,
        "mimo_audio": Verdict.CONFORMANT,
        "moss_tts": Verdict.CONFORMANT,
    }
    assert report.ended == "complete"


def test_page_and_summary_are_those_that_the_kit_makes_of_it_now() -> None:
    report = read_report(EXAMPLES / "report.json")
    assert (EXAMPLES / "report.md").read_text() == markdown(report)
    lines = [re.sub(r' d="[^"]*"', "", text) for text in ((EXAMPLES / "report.html").read_text(), page(report))]
    assert lines[0] == lines[1]  # but for the curves, whose digits are matplotlib's


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("report.*")), ids=lambda path: path.name)
def test_it_names_no_path_of_a_machine(path: Path) -> None:
    assert (
        re.findall(r"(?<![\w.\-/:<~])/(?:tmp|work|home|root|usr|opt|var|builds|Users)/[^\s\"<]*", path.read_text())
        == []
    )


def test_its_pictures_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in EXAMPLES.glob("*.png")}
    assert set(sizes) == {"desk-light.png", "phone-dark.png"}
    assert max(sizes.values()) < 200_000
