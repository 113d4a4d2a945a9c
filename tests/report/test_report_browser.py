"""The page in a real browser: it fits, asks for nothing, complains about nothing, and its evidence can be read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chromium_page import Browser, browser
from sample_run import Shape

from freehold.evidence import Kind
from freehold.records.verdict import Outcome

pytestmark = pytest.mark.browser

PAGES = {
    "healthy": Shape(),
    "attached": Shape(is_attached=True, verification="self"),
    "unverified": Shape(verification="failed", bandwidth_kind=Kind.VENDOR),
    "many": Shape(concurrency=(1, 4, 16), classes=("code", "a-prompt-class-with-a-very-long-name-indeed")),
    "not-started": Shape(preflight=Outcome.FAIL),
}
LOOKS = [(1280, "light"), (1280, "dark"), (820, "light"), (390, "light"), (390, "dark"), (360, "light")]
NUMBER = "#speed-table .ev"
OPEN = "document.querySelectorAll(':popover-open').length"
VISIBLE = (
    "(() => { const e = document.querySelector(':popover-open'); if (!e) return '';"
    " const r = e.getBoundingClientRect();"
    " const inside = r.width > 100 && r.height > 40 && r.left >= 0 && r.top >= 0"
    " && r.right <= innerWidth + 0.5 && r.bottom <= innerHeight + 0.5;"
    " return inside && e.contains(document.elementFromPoint(r.x + r.width / 2, r.y + 12)) ? e.innerText : ''; })()"
)


@pytest.fixture(scope="module")
def chrome(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(chromium, tmp_path_factory.mktemp("chromium") / "profile") as opened:
        yield opened


@pytest.fixture(scope="module")
def saved(page: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("pages")

    def save(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.is_file():
            path.write_text(page(PAGES[name]), encoding="utf-8")
        return path

    return save


def wait_for(chrome: Browser, expression: str, expected: object) -> object:
    """The value of an expression once it is what is expected, or what it was after two seconds."""
    found = None
    for _ in range(40):
        found = chrome.evaluate(expression)
        if found == expected:
            break
        time.sleep(0.05)
    return found


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
@pytest.mark.parametrize("name", PAGES)
def test_it_fits_asks_for_nothing_and_complains_about_nothing(
    chrome: Browser, saved: Callable[[str], Path], tmp_path: Path, name: str, width: int, scheme: str
) -> None:
    path = saved(name)
    chrome.open(path, width=width, scheme=scheme, is_phone=width < 800)
    chrome.settle()
    assert chrome.evaluate("document.documentElement.scrollWidth") <= width
    wide = chrome.evaluate(
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, pre, svg, .aside')"
        " && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert wide == []
    assert chrome.requests() == [path.as_uri()]
    assert chrome.problems() == []
    ground = chrome.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(252, 252, 250)", "dark": "rgb(21, 23, 26)"}[scheme]
    shown = chrome.evaluate("[...document.querySelectorAll('svg.chart')].filter(e => e.getClientRects().length).length")
    charts = chrome.evaluate("document.querySelectorAll('figure').length")
    assert shown == charts
    chrome.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000


def test_charts_follow_the_theme(chrome: Browser, saved: Callable[[str], Path]) -> None:
    colours = []
    for scheme in ("light", "dark"):
        chrome.open(saved("healthy"), width=1280, scheme=scheme)
        colours.append(
            chrome.evaluate(
                "(() => { const s = '#chart-decode .wide svg ';"
                " const fill = q => getComputedStyle(document.querySelector(s + q)).fill;"
                " return [fill('text'), fill('path[fill=\"var(--series)\"]')]; })()"
            )
        )
    assert colours == [["rgb(88, 93, 100)", "rgb(23, 89, 138)"], ["rgb(165, 170, 177)", "rgb(131, 189, 234)"]]


def test_evidence_opens_on_hover_and_goes_again(chrome: Browser, saved: Callable[[str], Path]) -> None:
    chrome.open(saved("healthy"), width=1280)
    chrome.point_at(NUMBER)
    assert wait_for(chrome, OPEN, 1) == 1
    text = chrome.evaluate(VISIBLE)
    assert "TTFT, mean · code · 1 stream" in text
    assert "95 % interval" in text
    assert "15 streamed requests, wall clock at the client" in text
    chrome.point_at("h1")
    assert wait_for(chrome, OPEN, 0) == 0


def test_evidence_opens_on_keyboard_focus_and_closes_with_escape(chrome: Browser, saved: Callable[[str], Path]) -> None:
    chrome.open(saved("healthy"), width=1280)
    for _ in range(3):  # the link past the header, the theme, the first number
        chrome.press("Tab", 9)
    assert chrome.evaluate("document.activeElement.className") == "ev"
    assert wait_for(chrome, OPEN, 1) == 1
    assert "decode speed, mean · code · 1 stream" in chrome.evaluate(VISIBLE)
    chrome.press("Escape", 27)
    assert wait_for(chrome, OPEN, 0) == 0
    assert chrome.evaluate("document.activeElement.className") == "ev"


def test_a_click_keeps_it_open_and_a_second_one_closes_it(chrome: Browser, saved: Callable[[str], Path]) -> None:
    chrome.open(saved("healthy"), width=1280)
    chrome.click(NUMBER)
    assert wait_for(chrome, OPEN, 1) == 1
    chrome.click(NUMBER)
    assert wait_for(chrome, OPEN, 0) == 0


@pytest.mark.parametrize("width", [390, 360])
def test_evidence_opens_on_a_tap_inside_the_screen(chrome: Browser, saved: Callable[[str], Path], width: int) -> None:
    chrome.open(saved("healthy"), width=width, height=700, is_phone=True, scheme="dark")
    chrome.tap(NUMBER)
    assert wait_for(chrome, OPEN, 1) == 1
    assert "TTFT, mean · code · 1 stream" in chrome.evaluate(VISIBLE)
    chrome.tap("h1")
    assert wait_for(chrome, OPEN, 0) == 0


def test_a_dash_says_why(chrome: Browser, saved: Callable[[str], Path]) -> None:
    chrome.open(saved("attached"), width=390, height=800, is_phone=True)
    chrome.tap("#speed-table .ev.missing")
    assert wait_for(chrome, OPEN, 1) == 1
    assert "a 99th percentile needs 100 requests" in chrome.evaluate(VISIBLE)


def test_everything_can_be_read_without_scripts(chrome: Browser, saved: Callable[[str], Path]) -> None:
    chrome.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chrome.open(saved("healthy"), width=1280)
        assert chrome.evaluate("getComputedStyle(document.querySelector('.theme')).display") == "none"
        chrome.click(NUMBER)
        assert wait_for(chrome, OPEN, 1) == 1
        assert "15 streamed requests" in chrome.evaluate(VISIBLE)
    finally:
        chrome.call("Emulation.setScriptExecutionDisabled", value=False)


def test_the_theme_can_be_switched_and_is_not_stored(chrome: Browser, saved: Callable[[str], Path]) -> None:
    chrome.open(saved("healthy"), width=1280, scheme="light")
    chrome.click(".theme")
    assert chrome.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 26)"
    assert chrome.evaluate("document.querySelector('.theme').textContent") == "Light"
    chrome.open(saved("healthy"), width=1280, scheme="light")
    assert chrome.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(252, 252, 250)"


def test_targets_are_large_enough_for_a_finger(chrome: Browser, saved: Callable[[str], Path]) -> None:
    chrome.open(saved("healthy"), width=390, is_phone=True)
    # WCAG 2.2, 2.5.8: at least 24 CSS pixels high
    small = chrome.evaluate(
        "[...document.querySelectorAll('button, summary, nav a')].filter(e => e.getBoundingClientRect().height < 24)"
        ".map(e => e.outerHTML.slice(0, 80))"
    )
    assert small == []


def test_paper_shows_everything_in_ink(chrome: Browser, saved: Callable[[str], Path], tmp_path: Path) -> None:
    chrome.open(saved("healthy"), width=1280, scheme="dark")
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    chrome.click(".theme")  # light, chosen by hand …
    chrome.click(".theme")  # … and dark again: neither may reach the paper
    chrome.call("Emulation.setEmulatedMedia", media="print", features=dark)
    try:
        assert chrome.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert chrome.evaluate("getComputedStyle(document.querySelector('.ref')).display") == "inline"
        assert chrome.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
        assert chrome.evaluate("getComputedStyle(document.querySelector('.narrow')).display") == "none"
    finally:
        chrome.call("Emulation.setEmulatedMedia", media="", features=[])
    chrome.pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF-")
