"""The site and a run's report in a browser: nothing from elsewhere, no error, all drawn, usable on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from dglcell.runs.directory import RunDirectory
from tests.docs.browser import CHROMIUM, DESKTOP, DRAWN, OPTIONS, PHONE, TOO_WIDE, UNDRAWN, opened, served
from tests.docs.site import BUILT, needs_the_site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SIZES = [pytest.param(DESKTOP, id="desktop"), pytest.param(PHONE, id="phone")]
PATIENCE = 120_000
"""Milliseconds: long, since machines are shared."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    library = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install --group browser")
    with library.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS, chromium_sandbox=False)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with served(BUILT) as address:
        yield address


def wait_until_drawn(page: Page, name: str) -> None:
    """Wait for diagrams and mathematics; say which of them never came."""
    library = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    try:
        page.wait_for_function(DRAWN, timeout=PATIENCE)
    except library.TimeoutError:
        pytest.fail(f"{name} is never drawn: {page.evaluate(UNDRAWN)}")


@needs_the_site
@pytest.mark.parametrize("size", SIZES)
def test_every_page_is_drawn_fits_and_has_no_errors(browser: Browser, site: str, size: tuple[int, int]) -> None:
    pages = sorted(path.relative_to(BUILT).as_posix() for path in BUILT.rglob("*.html"))
    found: dict[str, object] = {}
    formulas = diagrams = 0
    for name in pages:
        with opened(browser, size) as (page, seen):
            page.goto(f"{site}/{name}", timeout=PATIENCE)
            wait_until_drawn(page, name)
            wide = page.evaluate(TOO_WIDE)
            scrolls = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            wrong = page.locator(".katex-error, pre.mermaid .error-icon").count()
            formulas += page.locator(".katex").count()
            diagrams += page.locator("pre.mermaid svg").count()
        if seen.complaints or seen.elsewhere or wide or scrolls > 0 or wrong:
            found[name] = seen, wide, scrolls, wrong
    assert not found
    assert len(pages) > 40
    assert formulas > 30
    assert diagrams >= 3


@needs_the_site
@pytest.mark.parametrize(
    ("words", "guide"),
    [
        ("node_mask", "strains"),
        ("uncertainty", "prediction"),
        ("explain", "report"),
        ("knock-down", "strains"),
    ],
)
def test_the_search_finds(browser: Browser, site: str, words: str, guide: str) -> None:
    with opened(browser, DESKTOP) as (page, seen):
        page.goto(f"{site}/search.html?q={words}", timeout=PATIENCE)
        page.locator(f"#search-results li a[href*='guides/{guide}']").first.wait_for(timeout=PATIENCE)
    assert seen.complaints == seen.elsewhere == []


@needs_the_site
def test_light_and_dark(browser: Browser, site: str) -> None:
    brightness = "(c => c[0] + c[1] + c[2])(getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number))"
    with opened(browser, DESKTOP, "dark") as (page, seen):
        page.goto(f"{site}/guides/models.html", timeout=PATIENCE)
        page.wait_for_function(DRAWN, timeout=PATIENCE)
        assert page.evaluate(brightness) < 200
        assert page.locator("pre.mermaid").first.get_attribute("data-drawn") == "dark"
        page.evaluate("document.body.dataset.theme = 'light'")
        page.locator("pre.mermaid[data-drawn=neutral]").first.wait_for(timeout=PATIENCE)
        assert page.evaluate(brightness) > 600
    assert seen.complaints == seen.elsewhere == []


@pytest.mark.parametrize("size", SIZES)
def test_a_report_opens_from_the_file_system(browser: Browser, drawn_run: RunDirectory, size: tuple[int, int]) -> None:
    with opened(browser, size) as (page, seen):
        page.goto((drawn_run.path / "report.html").as_uri(), timeout=PATIENCE)
        page.wait_for_load_state("load", timeout=PATIENCE)
        pictures = page.evaluate("[...document.images].map(image => image.naturalWidth)")
        drawings = page.locator("svg").count()
        broken = page.evaluate(
            "[...document.querySelectorAll('a[href^=\"#\"]')].filter("
            "a => !document.getElementById(decodeURIComponent(a.hash.slice(1)))).map(a => a.hash)"
        )
        wide = page.evaluate(TOO_WIDE)
        scrolls = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert seen.complaints == seen.elsewhere == []
    assert broken == wide == []
    assert scrolls <= 0
    assert len(pictures) + drawings >= 3
    assert all(width > 0 for width in pictures)
