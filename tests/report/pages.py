"""Reading pages as a browser would."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """A parsed page.

    Attributes:
        ids: of all elements.
        resources: what a browser would load: ``src``, and ``href`` of links in the head.
        anchors: targets of links.
        alternatives: texts of pictures for those who cannot see them.
        text: everything between tags, but for styles.
        tables: rows of cells.
        open: elements that are not closed.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.ids: list[str] = []
        self.resources: list[str] = []
        self.anchors: list[str] = []
        self.alternatives: list[str] = []
        self.text = ""
        self.tables: list[list[list[str]]] = []
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        found = {name: value or "" for name, value in attributes}
        if "id" in found:
            self.ids.append(found["id"])
        if "src" in found:
            self.resources.append(found["src"])
        if "href" in found:
            (self.resources if tag == "link" else self.anchors).append(found["href"])
        if tag == "img":
            self.alternatives.append(found["alt"])
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data

    def check(self) -> None:
        """It stands alone and is well formed.

        Raises:
            AssertionError: it does not, or is not.
        """
        assert self.open == []
        assert len(set(self.ids)) == len(self.ids)
        assert all(resource.startswith("data:") for resource in self.resources)
        assert "script" not in self.tags
        assert "@import" not in self.source
        assert "url(" not in self.source
        assert all(anchor.removeprefix("#") in self.ids for anchor in self.anchors)
