"""The built site, as files: no broken link, nothing from elsewhere, pages that say what they are."""

from __future__ import annotations

import json
import re
from urllib.parse import urlparse

import pytest

from tests.docs.pages import DOCS
from tests.docs.site import BUILT, Site, needs_the_site

pytestmark = needs_the_site

SPHINX = ("genindex.html", "py-modindex.html", "search.html")
"""Pages of Sphinx's own making."""


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


def test_every_page_has_one_title_and_its_tables_scroll(site: Site) -> None:
    wrong = [
        f"{path.relative_to(BUILT)}: {page.headings} titles, {page.bare_tables} tables that do not scroll"
        for path, page in site.pages.items()
        if path.name not in SPHINX and (page.headings != 1 or page.bare_tables)
    ]
    assert not wrong
    style = (BUILT / "_static" / "site.css").read_text()
    assert ".table-wrapper, figure.drawing, div.cell_output > .output {\n  overflow-x: auto;" in style


def test_notebooks_have_outputs_and_can_be_downloaded(site: Site) -> None:
    for source in sorted((DOCS / "gallery").glob("*.md")):
        if source.stem == "index":
            continue
        page = BUILT / "gallery" / f"{source.stem}.html"
        (address,) = [link for link in site.pages[page].links if link.endswith(f"/{source.stem}.ipynb")]
        cells = json.loads((page.parent / address).read_text())["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
        kinds = {kind for cell in code for output in cell["outputs"] for kind in output.get("data", {})}
        assert "image/png" in kinds
        pages = [
            html for cell in code for output in cell["outputs"] if (html := output.get("data", {}).get("text/html"))
        ]
        assert all("dataframe" in "".join(html) for html in pages)
        assert not [alt for alt in site.pages[page].pictures if alt.endswith(".png")]


def test_the_search_finds_pages_for_people(site: Site) -> None:
    text = (BUILT / "searchindex.js").read_text()
    index = json.loads(text[text.index("{") : text.rindex("}") + 1])

    def pages(*stems: str) -> set[str]:
        found = [[index[where].get(stem, []) for where in ("terms", "titleterms")] for stem in stems]
        # A number alone stands for a list of one.
        sets = [{n for one in both for n in (one if isinstance(one, list) else [one])} for both in found]
        return {index["docnames"][number] for number in set.intersection(*sets)}

    assert "messages" in pages("cite")
    # A key that resolved configurations alone have.
    assert "guides/cluster" in pages("timeout")
    assert not [page for page in pages("timeout") if page.startswith("_generated/experiments/")]


def test_drawings_and_pictures_can_be_heard(site: Site) -> None:
    drawings = [alt for page in site.pages.values() for alt in page.drawings]
    assert len(drawings) >= 3
    assert all(len(alt) > 40 for alt in drawings)
    assert all(alt for page in site.pages.values() for alt in page.pictures)
