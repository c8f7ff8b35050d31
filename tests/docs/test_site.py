"""The built site, as files: no broken link, nothing from elsewhere, pages that say what they are."""

from __future__ import annotations

import re
from urllib.parse import urlparse

import pytest

from tests.docs.site import BUILT, Site, needs_the_site

pytestmark = needs_the_site


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
