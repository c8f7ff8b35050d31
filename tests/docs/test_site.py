"""The built site, as files: no broken link, nothing from elsewhere, pages that say what they are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

import pytest

from tests.docs.pages import DOCS
from tests.html_page import Page

BUILT = DOCS / "_build" / "html"
pytestmark = pytest.mark.skipif(not (BUILT / "index.html").is_file(), reason="the site is not built: `make docs`")

SPHINX = ("genindex.html", "py-modindex.html", "search.html")
"""Pages of Sphinx's own making."""

WRAPPERS = ("table-wrapper", "cell_output")
"""Classes of what scrolls around a table."""


@pytest.fixture(scope="module")
def site() -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(BUILT.rglob("*.html"))}


def test_links_lead_somewhere(site: dict[Path, Page]) -> None:
    anchors = {path: {*page.values("id"), *page.values("name")} for path, page in site.items()}
    broken = []
    for path, page in site.items():
        for address in {*page.values("href", "a"), *page.loads}:
            if urlparse(address).scheme or urlparse(address).netloc:
                continue
            target, anchor = urldefrag(unquote(address))
            target = target.partition("?")[0]
            file = (path.parent / target).resolve() if target else path
            if not file.is_file() or (anchor and file in site and anchor not in anchors[file]):
                broken.append(f"{path.relative_to(BUILT)}: {address}")
    assert not broken
    assert len(site) > 40


def test_nothing_is_loaded_from_elsewhere(site: dict[Path, Page]) -> None:
    assert not {address for page in site.values() for address in page.loads if urlparse(address).netloc}
    for style in BUILT.rglob("*.css"):
        for address in re.findall(r"(?:url\(|@import\s+)['\"]?([^'\")\s]+)", style.read_text()):
            if not address.startswith(("data:", "#")):
                assert (style.parent / re.split("[?#]", address)[0]).is_file(), f"{style.name}: {address}"


def test_every_page_has_one_title_and_its_tables_scroll(site: dict[Path, Page]) -> None:
    for path, page in site.items():
        if path.name not in SPHINX:
            assert sum(element.tag == "h1" for element in page.elements) == 1, path
            for table in (element for element in page.elements if element.tag == "table"):
                around = " ".join(one.attributes.get("class", "") for one in table.inside).split()
                assert {*around} & {*WRAPPERS}, path
    style = (BUILT / "_static" / "site.css").read_text()
    assert ".table-wrapper, figure.drawing, div.cell_output > .output {\n  overflow-x: auto;" in style


def test_notebooks_have_outputs_and_can_be_downloaded(site: dict[Path, Page]) -> None:
    for source in sorted((DOCS / "gallery").glob("*.md")):
        if source.stem == "index":
            continue
        page = BUILT / "gallery" / f"{source.stem}.html"
        (address,) = [link for link in site[page].values("href", "a") if link.endswith(f"/{source.stem}.ipynb")]
        cells = json.loads((page.parent / address).read_text())["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
        outputs = [output.get("data", {}) for cell in code for output in cell["outputs"]]
        assert any("image/png" in output for output in outputs)
        assert all("dataframe" in "".join(output.get("text/html", "dataframe")) for output in outputs)
        assert not [alt for alt in site[page].values("alt", "img") if alt.endswith(".png")]


def test_the_search_finds_pages_for_people() -> None:
    text = (BUILT / "searchindex.js").read_text()
    index = json.loads(text[text.index("{") : text.rindex("}") + 1])

    def pages(stem: str) -> set[str]:
        found = [index[where].get(stem, []) for where in ("terms", "titleterms")]
        # A number alone stands for a list of one.
        numbers = [n for one in found for n in (one if isinstance(one, list) else [one])]
        return {index["docnames"][number] for number in numbers}

    assert "messages" in pages("cite")
    # A key that resolved configurations alone have.
    assert "guides/cluster" in pages("timeout")
    assert not [page for page in pages("timeout") if page.startswith("_generated/experiments/")]


def test_drawings_and_pictures_can_be_heard(site: dict[Path, Page]) -> None:
    svg = [one.attributes for page in site.values() for one in page.elements if one.tag == "svg"]
    drawings = [one.get("aria-label", "") for one in svg if one.get("role") == "img"]
    assert len(drawings) >= 3
    assert all(len(said) > 40 for said in drawings)
    pictures = [one.attributes for page in site.values() for one in page.elements if one.tag == "img"]
    assert all(one.get("alt") for one in pictures)
