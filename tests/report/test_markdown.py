"""The summary in Markdown: what it says, what it escapes, and where it ends."""

from __future__ import annotations

import itertools
import re

import pytest

from conformance.outcome import CaseRecord, Outcome
from conformance.report.document import make_report
from conformance.report.markdown import LIMIT, code, escaped, markdown
from tests.report.made_up import KNOWN, report


def failing(count: int, message: str = "wrong", likely: str = "") -> list[CaseRecord]:
    return [
        CaseRecord(
            "mine", "CG203-x", "a promise", f"f{n}", Outcome.FAIL, f"{message} {n}", likely, "c", repeat="pytest"
        )
        for n in range(count)
    ]


def test_each_subject_each_family_and_each_failure_is_there() -> None:
    made = report(4)
    text = markdown(made)
    assert text.startswith("## ❌ NOT CONFORMANT\n")
    for subject in made.subjects:
        assert f"| `{subject.name}` | " in text
        assert escaped(subject.sentence) in text
    assert "| subject | CG0<br>Manifest and life cycle |" in text
    failure = text[text.index("### ❌ `codec_01/CG203") :]
    for row in (
        "- **promise** a padded",
        "- **found** row 0 of",
        "- **likely** the trim",
        "- **cure** declare",
        "```sh\npytest",
    ):
        assert row in failure


def test_a_table_stands_apart_and_its_rows_have_one_width() -> None:
    lines = markdown(report(3)).splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("|") and not lines[number - 1]]
    assert len(starts) == 2, "families of checks, and causes"
    for start in starts:
        rows = list(itertools.takewhile(lambda line: line.startswith("|"), lines[start:]))
        assert lines[start + len(rows)] == ""
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


def test_causes_are_listed_with_what_is_new_and_worst_first() -> None:
    made = [
        CaseRecord("mine", "CG501-a", "p", "", Outcome.FAIL, "bytes", "leak", "c", repeat='pytest -k "CG501-a"'),
        CaseRecord("mine", "CG203-b", "p", "", Outcome.XFAIL, "3 more", "trim", "c", known=KNOWN),
        CaseRecord(
            "mine", "CG206-c", "p", "", Outcome.XFAIL, "4 more", "state", "c", known=KNOWN | {"reason": "As CG203."}
        ),
        CaseRecord("mine", "CG402-d", "p", "", Outcome.FAIL, "broke it", "guard", "c"),
        CaseRecord(
            "mine", "CG301-e", "p", "x", Outcome.FAIL, "overwritten", "aliases", "c", repeat='pytest -k "CG301-e[x]"'
        ),
        CaseRecord("mine", "CG303-f", "p", "", Outcome.FAIL, "overwritten", "aliases", "c"),
    ]
    text = markdown(make_report(["mine"], made, seed=0, device="auto"))
    table = text[text.index("| | harm") :].split("\n\n")[0].splitlines()[2:]
    assert [row.split(" | ")[1:2] + row.split(" | ")[4:] for row in table] == [
        ["wrong audio", "CG301, CG303", "2 |"],
        ["breaks or refuses", "CG402", "1 |"],
        ["memory", "CG501", "1 |"],
        ["wrong audio", "CG203, CG206", "2 |"],
    ]
    assert 'pytest -k "CG301 or CG303"' in text
    assert "<dt>outer capture</dt>" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        ("`code`", r"\`code\`"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("*so* _and_ [that](x) # $y$", r"\*so\* \_and\_ \[that\](x) \# \$y\$"),
        ("two\nlines", "two lines"),
    ],
)
def test_words_of_a_message_are_no_markup(text: str, shown: str) -> None:
    assert escaped(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"), [("a[b]", "`a[b]`"), ("a`b", "`` a`b ``"), ("a|b", r"`a\|b`"), ("a``b`c", "``` a``b`c ```")]
)
def test_code_in_a_table_is_what_it_says(text: str, shown: str) -> None:
    assert code(text, table=True) == shown


def test_a_command_with_backticks_does_not_end_its_block() -> None:
    one = CaseRecord("mine", "CG203-x", "p", "", Outcome.FAIL, "m", repeat="pytest ```x```")
    text = markdown(make_report(["mine"], [one], seed=0, device="auto"))
    assert "````sh\npytest ```x```\n````" in text


def test_further_cases_of_one_cause_are_folded_and_counted() -> None:
    text = markdown(make_report(["mine"], failing(30, likely="the trim"), seed=0, device="auto"))
    assert "<details><summary>29 more failing for the same cause, in CG203</summary>" in text
    assert "and 9 more, in the JSON report" in text
    assert text.count("<details>") == text.count("</details>") == 2


@pytest.mark.parametrize("limit", [LIMIT, 4_000])
def test_it_never_grows_beyond_what_github_shows(limit: int) -> None:
    made = make_report(["mine"], failing(6_000, message="é" * 200), seed=0, device="auto")
    text = markdown(made, limit)
    assert limit * 0.5 < len(text.encode()) <= limit
    told = re.search(r"\*\*(\d+) more causes of failures are left out\*\*", text)
    assert told is not None
    assert int(told[1]) + text.count("\n### ") == 6_000


def test_a_known_failure_is_told_by_its_reason_apart_from_what_was_found() -> None:
    one = CaseRecord("mine", "CG203-x", "p", "", Outcome.XFAIL, "3 more", "the trim  (class A)", known=KNOWN)
    text = markdown(make_report(["mine"], [one], seed=0, device="auto"))
    assert f"- **known** {escaped(KNOWN['reason'])} See <{KNOWN['issue']}>, known until 2027-06-30" in text
    assert "- **found** 3 more\n" in text
    assert "**likely**" not in text, "of a known failure one knows better"
    assert "It is a failure all the same." in text


def test_the_head_says_what_was_run_and_what_the_signs_mean() -> None:
    text = markdown(report(2))
    assert "Run on emulated CUDA, torch 2.13.0; package vllm-omni 0.30.0; weights tiny and random; seed 0." in text
    assert "❌ failed" in text
    assert "➖ not applicable" in text


def test_a_run_without_a_case_is_told() -> None:
    text = markdown(make_report(["mine"], [], seed=0, device="auto"))
    assert "INCONCLUSIVE" in text
    assert "no case was selected" in text
