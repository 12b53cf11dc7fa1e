"""The report in a real browser: it renders offline, on a laptop and a phone, in light and dark."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.figures.report_figures import KINDS, SLOT_KINDS

pytestmark = [pytest.mark.spark, pytest.mark.browser, pytest.mark.long]

CHROMIUM_OPTIONS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
LAPTOP, PHONE = (1280, 800), (390, 844)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_OPTIONS)
        yield chromium
        chromium.close()


class View:
    """A page opened at a size and in a theme, with its requests and console messages."""

    def __init__(self, browser: Any, file: Path, size: tuple[int, int], theme: str) -> None:
        self.context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=theme, service_workers="block"
        )
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.messages: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda fault: self.messages.append(str(fault)))
        self.page.goto(file.resolve().as_uri())

    def colour(self, selector: str, name: str = "background-color") -> str:
        script = "([s, n]) => getComputedStyle(document.querySelector(s)).getPropertyValue(n)"
        return str(self.page.evaluate(script, [selector, name]))


@pytest.fixture
def view(browser: Any, small_report: Path, request: pytest.FixtureRequest) -> Iterator[View]:
    size, theme = request.param
    opened = View(browser, small_report / "index.html", size, theme)
    yield opened
    opened.context.close()


ALL_VIEWS = [(size, theme) for size in (LAPTOP, PHONE) for theme in ("light", "dark")]


@pytest.mark.parametrize("view", ALL_VIEWS, indirect=True)
def test_nothing_remote_is_loaded_and_there_are_no_console_messages(view: View) -> None:
    view.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert [url for url in view.requests if not url.startswith(("file://", "data:"))] == []
    assert len([url for url in view.requests if url.startswith("file://")]) == 1
    assert view.messages == []


@pytest.mark.parametrize("view", ALL_VIEWS, indirect=True)
def test_the_page_never_scrolls_sideways_but_its_tables_may(view: View) -> None:
    view.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    width = view.page.viewport_size["width"]
    assert view.page.evaluate("document.documentElement.scrollWidth") <= width
    # No element exceeds the width, unless it is in a box that scrolls.
    out = view.page.evaluate(
        """width => [...document.querySelectorAll('body *')]
             .filter(e => !e.closest('.scroll, pre') && e.getBoundingClientRect().right > width + 1)
             .map(e => e.tagName)""",
        width,
    )
    assert [tag for tag in out if tag not in ("use", "path", "g", "text")] == []
    wide = view.page.evaluate(
        "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length"
    )
    assert wide > 0


@pytest.mark.parametrize("view", ALL_VIEWS, indirect=True)
def test_the_first_screen_shows_the_findings(view: View) -> None:
    tops = view.page.evaluate(
        "['.scroll', 'figure'].map(e => document.querySelector(`#found ${e}`).getBoundingClientRect().top)"
    )
    assert max(tops) < (600 if view.page.viewport_size["width"] == LAPTOP[0] else PHONE[1])


@pytest.mark.parametrize("view", ALL_VIEWS, indirect=True)
def test_names_of_rows_are_never_cut_within_a_word(view: View) -> None:
    cut = view.page.evaluate(
        r"""() => {
          const found = [];
          for (const cell of document.querySelectorAll('th[scope=row]')) {
            const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
            while (texts.nextNode())
              for (const word of texts.currentNode.data.matchAll(/[^\s-]+-?/g)) {
                const range = document.createRange();
                range.setStart(texts.currentNode, word.index);
                range.setEnd(texts.currentNode, word.index + word[0].length);
                if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) found.push(word[0]);
              }
          }
          return found;
        }"""
    )
    assert cut == []


@pytest.mark.parametrize("view", ALL_VIEWS, indirect=True)
def test_no_figure_is_empty(view: View, small_report: Path) -> None:
    figures = view.page.evaluate(
        """[...document.querySelectorAll('figure svg')].map(svg => {
             const box = svg.getBoundingClientRect();
             const drawn = [...svg.querySelectorAll('[class*="f-s"], [class*="k-s"]')].filter(e => {
               const b = e.getBoundingClientRect(); return b.width + b.height > 1; });
             const text = [...svg.querySelectorAll('text')].map(t => t.getBoundingClientRect());
             return {width: box.width, height: box.height, drawn: drawn.length, text: text.length,
                     outside: text.filter(t => t.left < box.left - 1 || t.right > box.right + 1
                                            || t.top < box.top - 1 || t.bottom > box.bottom + 1).length,
                     smallest: Math.min(...text.map(t => Math.min(t.width, t.height)).filter(x => x > 0)),
                     size: parseFloat(getComputedStyle(svg.querySelector('text')).fontSize) * box.width
                           / svg.viewBox.baseVal.width}; })"""
    )
    files = sorted(file.stem for file in (small_report / "figures").glob("*.svg"))
    assert {f"wordcount-{kind}" for kind in (*KINDS, *SLOT_KINDS)} <= set(files)
    assert len(figures) == len(files)
    for figure in figures:
        assert figure["width"] > 280
        assert figure["height"] > 100
        # At least one shape per scheduler, and the texts of the axes.
        assert figure["drawn"] >= 2
        assert figure["text"] >= 6
        assert figure["outside"] == 0
        assert figure["size"] >= 9


def test_light_and_dark_differ_in_page_and_figures(browser: Any, small_report: Path) -> None:
    colours = {}
    for theme in ("light", "dark"):
        view = View(browser, small_report / "index.html", LAPTOP, theme)
        colours[theme] = (
            view.colour("body"),
            view.colour("body", "color"),
            view.colour("figure svg .k-s0", "stroke"),
            view.colour("figure svg text", "fill"),
        )
        view.context.close()
    assert all(light != dark for light, dark in zip(colours["light"], colours["dark"], strict=True))
    assert colours["light"][2] == "rgb(11, 92, 214)"


def test_a_figure_file_has_the_same_literal_colours_in_both_themes(browser: Any, small_report: Path) -> None:
    file = small_report / "figures" / "wordcount-throughput.svg"
    colours = []
    for theme in ("light", "dark"):
        view = View(browser, file, LAPTOP, theme)
        colours.append((view.colour("svg rect", "fill"), view.colour("text", "fill")))
        assert view.requests == [file.resolve().as_uri()]
        view.context.close()
    assert colours[0] == colours[1] == ("rgb(254, 254, 254)", "rgb(90, 99, 110)")


def test_tables_can_be_scrolled_with_the_keyboard_and_are_named(browser: Any, small_report: Path) -> None:
    view = View(browser, small_report / "index.html", PHONE, "light")
    boxes = view.page.evaluate(
        "[...document.querySelectorAll('.scroll')].map(e => [e.tabIndex, e.getAttribute('aria-label')])"
    )
    assert boxes
    assert all(index == 0 and label for index, label in boxes)
    view.context.close()
