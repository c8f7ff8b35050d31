"""The built site: no broken link, nothing from elsewhere; in a browser, no error and mathematics drawn."""

from __future__ import annotations

import http.server
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlparse

import pytest

from tests.docs.pages import DOCS
from tests.docs.site import Site

BUILT = DOCS / "_build" / "html"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PHONE = """<!doctype html><link rel="icon" href="data:,"><body><iframe src="{page}" width="390" height="800"
onload="document.body.dataset.width = this.contentDocument.documentElement.scrollWidth"></iframe>"""
"""A page in a frame as wide as a phone, and how wide it turned out."""

SEEN = (
    "index.html",
    "guides/strains.html",
    "_generated/experiments/101-collins2007-random.html",
    "_generated/api/perturbation.html",
)

pytestmark = pytest.mark.skipif(not (BUILT / "index.html").is_file(), reason="the site is not built: `make docs`")


@pytest.fixture(scope="module")
def site() -> Site:
    return Site(BUILT)


def test_links_lead_somewhere(site: Site) -> None:
    broken = [
        f"{path.relative_to(BUILT)}: {why}"
        for path, page in site.pages.items()
        for address in {*page.links, *page.loads}
        if (why := site.broken(path, address))
    ]
    assert not broken
    assert len(site.pages) > 40


def test_nothing_is_loaded_from_elsewhere(site: Site) -> None:
    outside = {address for page in site.pages.values() for address in page.loads if urlparse(address).netloc}
    assert not outside
    for style in BUILT.rglob("*.css"):
        for address in re.findall(r"(?:url\(|@import\s+)['\"]?([^'\")\s]+)", style.read_text()):
            if address.startswith(("data:", "#")):
                continue
            assert (style.parent / address.split("?")[0].split("#")[0]).is_file(), f"{style.name}: {address}"


def test_drawings_and_pictures_can_be_heard(site: Site) -> None:
    drawings = [alt for page in site.pages.values() for alt in page.drawings]
    assert len(drawings) >= 3
    assert all(len(alt) > 40 for alt in drawings)
    assert all(alt for page in site.pages.values() for alt in page.pictures)


def test_a_page_without_results_says_so_first(site: Site) -> None:
    texts = [path.read_text() for path in (BUILT / "_generated" / "experiments").glob("*.html") if path.stem != "index"]
    assert len(texts) > 8
    for text in texts:
        first = re.search(r"</h1>\s*<p>(.*?)</p>", text, flags=re.DOTALL)
        assert first is not None
        assert re.match(r"<strong>(Not measured yet|Measured|Measured in part):?</strong>", first[1]), first[1]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of the site, served on loopback."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith("/phone/"):
                return super().do_GET()
            content = PHONE.format(page=self.path.removeprefix("/phone")).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(BUILT)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


def browse(url: str, folder: Path) -> str:
    """The document that a browser makes of a page, which must have nothing to complain about."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1200,1000"]
    # Names of other machines do not resolve, so that whatever is asked of them fails and is reported.
    command += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--enable-logging=stderr"]
    command += ["--virtual-time-budget=8000", f"--user-data-dir={folder}", "--dump-dom", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert not re.findall(r".*CONSOLE.*", done.stderr)
    return done.stdout


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("page", SEEN)
def test_a_browser_has_nothing_to_complain_about(page: str, address: str, tmp_path: Path) -> None:
    document = browse(f"{address}/{page}", tmp_path)
    assert "katex-error" not in document
    if page == "guides/strains.html":
        assert document.count('class="katex"') > 10


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("page", SEEN)
def test_pages_fit_a_phone(page: str, address: str, tmp_path: Path) -> None:
    width = re.search(r'data-width="(\d+)"', browse(f"{address}/phone/{page}", tmp_path))
    assert width is not None
    assert int(width[1]) <= 390
