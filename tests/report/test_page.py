"""The HTML page, read as text: what it holds, and that it is fit for readers of every kind."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from conformance.outcome import CaseRecord, Outcome
from conformance.report import page as page_module
from conformance.report.document import make_report
from conformance.report.files import ReportError
from conformance.report.page import page, write_html
from tests.report.made_up import KNOWN, report

VOID = {"meta", "link", "br", "path"}


class Tree(HTMLParser):
    """Every element with its attributes, and whether all that was opened was closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attributes for found, attributes in self.elements if found == tag]


@cache
def made_page() -> str:
    return page(report(4))


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree(made_page())


def one(outcome: Outcome = Outcome.FAIL, **fields: Any) -> str:
    record = CaseRecord("mine", "CG203-padded-bucket", "a promise", "b1-f5", outcome, **{"message": "m", **fields})
    return page(make_report(["mine"], [record], seed=0, device="auto"))


def failing(subject: str, message: str) -> CaseRecord:
    return CaseRecord(subject, "CG203-padded-bucket", "a promise", "b1-f5", Outcome.FAIL, message)


def test_the_page_stands_alone(tree: Tree) -> None:
    tags = {tag for tag, _ in tree.elements}
    assert not tags & {"script", "img", "iframe", "object", "form"}
    outside = [
        attributes
        for tag, attributes in tree.elements
        for name in ("src", "href", "srcset", "data")
        if tag != "a" and attributes.get(name, "#")[:1] != "#" and not attributes[name].startswith("data:")
    ]
    assert outside == []
    assert "@import" not in made_page()
    assert "url(" not in made_page()
    policy = next(meta for meta in tree.named("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy["content"].startswith("default-src 'none'")


def test_ids_are_unique_and_every_inner_link_arrives(tree: Tree) -> None:
    ids = Counter(attributes["id"] for _, attributes in tree.elements if "id" in attributes)
    assert [name for name, count in ids.items() if count > 1] == []
    wanted = {link["href"][1:] for link in tree.named("a") if link["href"].startswith("#")}
    labels = {attributes["aria-labelledby"] for _, attributes in tree.elements if "aria-labelledby" in attributes}
    assert (wanted | labels) - set(ids) == set()


def test_landmarks_headings_and_headers_are_in_order(tree: Tree) -> None:
    tags = Counter(tag for tag, _ in tree.elements)
    assert (tags["main"], tags["h1"], tags["nav"]) == (1, 1, 1)
    assert tree.named("html")[0]["lang"] == "en"
    levels = [int(tag[1]) for tag, _ in tree.elements if re.fullmatch(r"h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert all("scope" in header for header in tree.named("th"))
    assert next(link for link in tree.named("a"))["class"] == "skip"


def test_what_scrolls_can_be_reached_and_is_named(tree: Tree) -> None:
    boxes = [a for _, a in tree.elements if "scroll" in a.get("class", "").split()] + tree.named("pre")
    assert boxes
    assert all(box.get("tabindex") == "0" and box.get("role") == "region" and box.get("aria-label") for box in boxes)


def test_each_picture_says_in_words_what_it_shows(tree: Tree) -> None:
    figures = tree.named("svg")
    assert len(figures) >= 4
    assert all(figure["role"] == "img" and len(figure["aria-label"]) > 40 for figure in figures)
    shown = next(figure["aria-label"] for figure in figures if "Only replay" in figure["aria-label"])
    assert "They part at samples 1900 to 2454 (79.2 ms to 102.3 ms)." in shown
    assert "Eager ends at sample 1900. Bucket ends at sample 2860." in shown


def test_a_picture_shows_both_waveforms_the_wrong_span_both_edges_and_the_difference() -> None:
    figure = made_page().partition('<figure class="wave">')[2].partition("</figure>")[0]
    classes = set(re.findall(r'<path class="(g-[\w-]+)"', figure))
    assert classes == {"g-eager", "g-replay", "g-wrong", "g-edge-actual", "g-edge-bucket", "g-difference", "g-zero"}
    assert "eager ends · 1900" in figure
    assert "bucket ends · 2860" in figure


def test_failures_come_before_everything_else_with_all_that_mends_them() -> None:
    text = made_page()
    assert text.index("What fails, and why") < text.index('id="matrix"') < text.index('id="subjects"')
    card = text[text.index('<article class="cause" id="failure-1"') :]
    card = card[: card.index("</article>")]
    for words in (
        "kept 555 samples",
        "a padded replay equals eager",
        "the trim&#39;s formula",
        "<code>Nominal(scale=a)",
    ):
        assert words in card
    assert "pytest --adapter=codec_01 --graph-device=emulated -k &#34;CG203-padded-bucket[b1-f1-in-b1-f4]&#34;" in card


def test_a_known_failure_is_told_by_its_reason_and_by_what_was_found() -> None:
    text = one(Outcome.XFAIL, message="3 samples more", known=KNOWN, likely="the trim  (class A, N)", cure="cut it")
    card = text[text.index('<article class="cause"') : text.index("</article>")]
    assert "<h4" in card
    assert card.index("The tail is known since 0.29") < card.index("<dt>Found</dt><dd>3 samples more</dd>")
    assert f'<a href="{KNOWN["issue"]}" rel="noreferrer">{KNOWN["issue"]}</a>, known until 2027-06-30' in card
    assert "It is a failure all the same." in text
    assert "It is a failure all the same." not in one(message="m")


def test_a_letter_of_a_class_is_told_in_words() -> None:
    text = one(likely="the trim  (class A, N)")
    assert "the trim <span" in text
    assert "(kind of mistake: wrong length or trim; wrong bucket, or silently eager)" in text
    assert "class A" not in text


def test_the_top_says_what_was_run_and_where_words_are_told(tree: Tree) -> None:
    text = made_page()
    top = text[: text.index("</header>")]
    for label, words in (("on", "emulated CUDA, torch 2.13.0"), ("package", "vllm-omni 0.30.0"), ("seed", "0")):
        assert f"<dt>{label}</dt><dd>{words}</dd>" in top
    assert "<dt>weights</dt><dd>tiny and random</dd>" in top
    assert "<dt>weights</dt><dd>~/weights</dd>" in page(replace(report(1), checkpoint="~/weights"))
    assert 'href="#words"' in top
    assert "<dt>outer capture</dt>" in text[text.index('id="words"') :]


def test_a_list_of_failures_is_cut_where_a_clause_ends() -> None:
    first = "Every length that is no bucket is wrong from its first sample, by a fifth"
    records = [failing("mine", f"{first}: {'two norms ' * 20}"), failing("other", "short `x`")]
    text = page(make_report(["mine", "other"], records, seed=0, device="auto"))
    assert f'<a href="#failure-1">{first}…</a>' in text
    assert '<a href="#failure-2">short x</a>' in text


def test_a_cell_of_the_matrix_says_its_state_without_colour_and_leads_to_its_failure() -> None:
    text = made_page()
    assert (
        '<a href="#failure-1" aria-label="CG203-padded-bucket: failed, 1 of 22 cases"><span aria-hidden="true">✕</span>'
    ) in text
    for state in ("✓", "!", "≈", "?", "–", "⤒"):
        assert f'<span aria-hidden="true">{state}</span>' in text


def test_sizes_show_bucket_and_error() -> None:
    text = made_page()
    assert '<td class="served" colspan="4">b1-f4</td>' in text
    assert '<td class="broken" title="b1-f1: ✕ +555">✕ +555</td>' in text


def test_speed_and_memory_are_shown_where_somebody_measured_them() -> None:
    text = made_page()
    assert "5.68 ×" in text
    assert "792.0 – 843.0" in text
    assert "moss_tts replay b1-f4 on NVIDIA H200 over 24 commits" in text
    assert 'static buffers of b4-f8</th><td class="number">64.0 KiB' in text
    bare = page(replace(report(1), benchmarks=(), history=()))
    assert 'id="latency"' not in bare
    assert 'id="history"' not in bare
    assert "What fails" not in bare


def test_words_of_a_failure_are_never_markup() -> None:
    text = one(message="<script>alert(1)</script> `a<b` https://github.com/x/y/issues/1, so", likely="<b>", cure="<i>")
    assert "<script" not in text
    assert "<code>a&lt;b</code>" in text
    assert '<a href="https://github.com/x/y/issues/1" rel="noreferrer">' in text
    assert "&lt;b&gt;" in text


@pytest.mark.parametrize(
    "waveform",
    [
        "none",
        {},
        {"found": "x"},
        {"found": [1], "expected": [1], "difference": [], "start": 0, "step": 0, "samples": 0},
    ],
)
def test_a_waveform_that_makes_no_sense_is_no_picture_and_no_error(waveform: Any) -> None:
    text = one(evidence={"waveform": waveform, "by_size": {"b1-f5": "x"}, "all_buckets": 3})
    assert "<svg" not in text
    assert "a promise" in text


def test_a_long_message_is_a_headline_and_its_rest() -> None:
    words = f"the call broke an outer capture: {'x' * 60}: {'y' * 60}, and {'z' * 90}. So move it.\n  a traceback"
    text = one(message=words)
    assert f"the call broke an outer capture: {'x' * 60}: {'y' * 60}</h4>" in text
    assert f"and {'z' * 90}. So move it.\n  a traceback</p>" in text
    assert f"{'x' * 160}</h4>" in one(message="x" * 200)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_its_page(outcome: Outcome) -> None:
    Tree(one(outcome))


def test_a_run_without_a_case_has_its_page() -> None:
    text = page(make_report(["mine"], [], seed=0, device="auto", ended="interrupted"))
    assert "Inconclusive" in text
    assert "The run ended before its last case: interrupted." in text


def test_a_run_in_which_all_fails_stays_small() -> None:
    failing = [
        replace(record, outcome=Outcome.FAIL, evidence=broken.evidence, likely=record.check, message="wrong")
        for subject in report(2, speed=False).subjects
        for broken in [next(r for r in report(2, speed=False).subjects[1].cases if "waveform" in r.evidence)]
        for record in subject.cases
    ]
    text = page(make_report(["codec_00", "codec_01"], failing, seed=0, device="auto"))
    assert len(text.encode()) < 2_000_000
    assert text.count("<svg") <= 60


def test_without_its_packages_it_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module.importlib.util, "find_spec", lambda name: None)  # type: ignore[attr-defined]
    with pytest.raises(ReportError, match=r"an HTML report needs jinja2 and matplotlib.*pip install 'audiograph\[rep"):
        write_html(report(1), tmp_path / "report.html")
