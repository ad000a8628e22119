"""The page in Chromium: at the width of a phone and of a desk, light and dark, by keyboard, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.report.page import write_html
from tests.report.browser import Browser, open_browser
from tests.report.made_up import report

pytestmark = pytest.mark.browser

CONTRAST = """
const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
function rgba(color) {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
}
const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
function behind(element) {
  const layers = [];
  for (let one = element; one; one = one.parentElement) layers.unshift(rgba(getComputedStyle(one).backgroundColor));
  return layers.reduce((under, top) => over(top, under), [255, 255, 255, 1]);
}
const light = c => { const s = c / 255; return s <= .04045 ? s / 12.92 : ((s + .055) / 1.055) ** 2.4; };
const luminance = c => .2126 * light(c[0]) + .7152 * light(c[1]) + .0722 * light(c[2]);
const found = [];
for (const element of document.querySelectorAll("body *")) {
  const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  if (!own || element.closest(".unseen, .skip, svg") || !element.checkVisibility()) continue;
  const under = behind(element), ink = over(rgba(getComputedStyle(element).color), under);
  const [a, b] = [luminance(ink), luminance(under)].sort((x, y) => y - x);
  const ratio = (a + .05) / (b + .05);
  if (ratio < 4.5) found.push([element.textContent.trim().slice(0, 40), element.className, ratio]);
}
return found;
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        with open_browser() as made:
            yield made
    except FileNotFoundError as error:
        pytest.fail(str(error), pytrace=False)


WIDE = "* { font-family: monospace !important; font-weight: 700 !important; }"
"""Letters about as wide as any machine's: what holds with these and with this machine's own holds with others."""
letters = pytest.mark.parametrize("letters", ["", WIDE], ids=["own letters", "wide letters"])


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_html(report(4), path)
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_it_opens_without_an_error_or_a_request(browser: Browser, page: Path, width: int, scheme: str) -> None:
    browser.requests()
    browser.show(page, width, scheme)
    browser.open_everything()
    assert browser.driver.get_log("browser") == []
    assert [url for url in browser.requests() if url != page.as_uri() and not url.startswith("data:")] == []
    assert browser.driver.title.startswith("NOT CONFORMANT")


@letters
@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_the_page_never_scrolls_sideways_and_its_tables_do(
    browser: Browser, page: Path, width: int, letters: str
) -> None:
    browser.show(page, width)
    browser.style(letters)
    browser.open_everything()
    assert browser.run("return document.documentElement.scrollWidth") == width
    # How wide a table is depends on the fonts of the machine: on a phone some do not fit, whatever the font.
    wide = "return [...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth).length"
    assert browser.run(wide) > 0 or width > 360
    cut = """return [...document.querySelectorAll('table')].filter(one => {
      const box = one.closest('.scroll');
      return one.offsetWidth > one.parentElement.clientWidth && !(box && getComputedStyle(box).overflowX === 'auto');
    }).length"""
    assert browser.run(cut) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_word_stands_out_from_what_is_behind_it(browser: Browser, page: Path, scheme: str) -> None:
    browser.show(page, 1280, scheme)
    browser.open_everything()
    background = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(251, 250, 247)") == (scheme == "light")
    assert browser.run(CONTRAST) == []


@letters
def test_the_causes_the_first_failure_and_its_picture_are_near_the_top(
    browser: Browser, page: Path, letters: str
) -> None:
    browser.show(page, 1280)
    browser.style(letters)
    place = "const box = document.querySelector('{}').getBoundingClientRect(); return [box.top, box.width, box.height]"
    assert browser.run(place.format(".causes tbody th"))[0] < 800
    assert browser.run(place.format(".cause h4"))[0] < 1200
    top, width, height = browser.run(place.format(".wave svg"))
    assert top < 1400
    assert width > 900
    assert height > 200
    browser.show(page, 360)
    browser.style(letters)
    assert browser.run(place.format(".wave svg"))[1] > 300


@letters
def test_labels_of_a_picture_stay_within_it(browser: Browser, page: Path, letters: str) -> None:
    for width in (360, 1280):
        browser.show(page, width)
        browser.style(letters)
        browser.open_everything()
        outside = browser.run(
            "return [...document.querySelectorAll('.edge, .at')].map(one => one.getBoundingClientRect())"
            ".filter(box => box.left < 0 || box.right > innerWidth).length"
        )
        assert outside == 0


def test_the_keyboard_reaches_the_results_first(browser: Browser, page: Path) -> None:
    from selenium.webdriver import ActionChains, Keys

    browser.show(page, 1280)
    ActionChains(browser.driver).send_keys(Keys.TAB).perform()
    assert browser.run("return document.activeElement.className") == "skip"
    assert browser.run("return document.activeElement.getBoundingClientRect().left") > 0
    assert browser.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    ActionChains(browser.driver).send_keys(Keys.ENTER).perform()
    assert browser.run("return document.activeElement.id") == "main"


def test_a_cell_of_the_matrix_opens_its_failure(browser: Browser, page: Path) -> None:
    browser.show(page, 1280)
    link = "document.querySelector('.matrix a[aria-label^=\"CG301-output-aliasing: failed\"]')"
    target = browser.run(f"return {link}.getAttribute('href')")
    assert browser.run(f"return document.querySelector('{target}').checkVisibility()") is False
    browser.run(f"{link}.click()")
    assert browser.run(f"return document.querySelector('{target}').checkVisibility()") is True


def test_a_reader_hears_names_and_roles(browser: Browser, page: Path) -> None:
    browser.show(page, 1280)
    nodes = browser.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
    assert ("main", "") in [(role, "") for role, _ in named]
    assert ("navigation", "Parts of this report") in named
    assert ("region", "Subjects and checks") in named
    assert any(role in ("image", "img") and name.startswith("Waveforms of eager and replay") for role, name in named)
    assert ("link", "CG203-padded-bucket: failed, 1 of 22 cases") in named
    unnamed = [role for role, name in named if role in ("link", "image", "img", "region", "heading") and not name]
    assert unnamed == []
