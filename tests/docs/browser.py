"""Chromium without a window, and what it has to say about a page."""

from __future__ import annotations

import http.server
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
OPTIONS += ["--disable-component-update", "--disable-sync"]

DESKTOP = (1280, 900)
PHONE = (390, 844)

DRAWN = """() => document.readyState === "complete"
    && [...document.querySelectorAll("pre.mermaid")].every(node => node.dataset.drawn)
    && [...document.querySelectorAll(".math")].every(node => node.querySelector(".katex"))"""
"""Whether scripts are through with diagrams and mathematics."""

UNDRAWN = """() => [...document.querySelectorAll("pre.mermaid:not([data-drawn]), .math:not(:has(.katex))")]
    .map(node => node.outerHTML.slice(0, 200))"""
"""What they have not drawn."""

TOO_WIDE = """() => [...document.querySelectorAll("body *")].filter(node => {
    const box = node.getBoundingClientRect();
    if (box.right <= document.documentElement.clientWidth + 1 || box.width === 0) return false;
    for (let up = node; up !== document.body; up = up.parentElement) {
        const style = getComputedStyle(up);
        if (style.position === "fixed" || (up !== node && style.overflowX !== "visible")) return false;
    }
    return true;
}).slice(0, 3).map(node => node.outerHTML.slice(0, 120))"""
"""What sticks out to the right and does not scroll by itself."""


@dataclass
class Seen:
    """What happened while a page was open.

    Attributes:
        complaints: errors of the console, of scripts, and of files that could not be had.
        elsewhere: addresses that were asked of other machines; nothing was sent.
    """

    complaints: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)


@contextmanager
def opened(browser: Browser, size: tuple[int, int], scheme: str = "light") -> Iterator[tuple[Page, Seen]]:
    """Provide a page of a size in pixels in a profile of its own, watched; it can reach 127.0.0.1 and files only."""
    seen = Seen()

    def allow(route: Route) -> None:
        address = route.request.url
        if address.startswith(("http://127.0.0.1:", "file:", "data:", "blob:")):
            route.continue_()
        else:
            seen.elsewhere.append(address)
            route.abort()

    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)  # type: ignore[arg-type]
    try:
        context.route("**/*", allow)
        page = context.new_page()
        page.on("console", lambda said: seen.complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        page.on("requestfailed", lambda request: seen.complaints.append(f"{request.url}: {request.failure}"))
        page.on("response", lambda r: seen.complaints.append(f"{r.url}: {r.status}") if r.status >= 400 else None)
        yield page, seen
    finally:
        context.close()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Its address on loopback."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
