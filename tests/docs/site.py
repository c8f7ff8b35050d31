"""A built site, read without a browser."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

import pytest

from tests.docs.pages import DOCS

BUILT = DOCS / "_build" / "html"

needs_the_site = pytest.mark.skipif(not (BUILT / "index.html").is_file(), reason="the site is not built: `make docs`")

RESOURCES = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
"""Tags whose address the browser loads by itself."""

WRAPPERS = ("table-wrapper", "cell_output")
"""Classes of what scrolls around a table."""


@dataclass
class Page(HTMLParser):
    """What a page links to, loads and can be linked to."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    drawings: list[str] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)
    headings: int = 0  #: of the first level
    bare_tables: int = 0  #: tables that do not scroll by themselves, because they are in no wrapper
    _open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See ``HTMLParser``."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in RESOURCES and RESOURCES[tag] in values and values.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(values[RESOURCES[tag]])
        if tag == "svg" and values.get("role") == "img":
            self.drawings.append(values.get("aria-label", ""))
        if tag == "img":
            self.pictures.append(values.get("alt", ""))
        self.headings += tag == "h1"
        if tag == "table":
            self.bare_tables += not any(name in " ".join(self._open).split() for name in WRAPPERS)
        if tag == "div":
            self._open.append(values.get("class", ""))

    def handle_endtag(self, tag: str) -> None:
        """See ``HTMLParser``."""
        if tag == "div":
            self._open.pop()


class Site:
    """All pages of a folder.

    Args:
        folder: with ``index.html``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pages = {path: read(path) for path in sorted(folder.rglob("*.html"))}

    def broken(self, path: Path, address: str) -> str | None:
        """Why a link of a page leads nowhere; None where it leads somewhere, or out of the site."""
        parts = urlparse(address)
        if parts.scheme or parts.netloc:
            return None
        target, anchor = urldefrag(unquote(address))
        target = target.partition("?")[0]
        file = (path.parent / target).resolve() if target else path
        if not file.is_file():
            return f"{address}: there is no {file.name}"
        if anchor and file in self.pages and anchor not in self.pages[file].anchors:
            return f"{address}: no such anchor"
        return None


def read(path: Path) -> Page:
    """Read one page."""
    page = Page()
    page.feed(path.read_text())
    return page
