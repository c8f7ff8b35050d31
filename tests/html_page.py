"""A page of HTML, read as a browser would."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

VOID = {"meta", "link", "img", "br", "hr", "input", "wbr", "source", "col"}
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
"""Tags whose address a browser loads by itself."""


class Element(NamedTuple):
    tag: str
    attributes: dict[str, str]
    inside: tuple[Element, ...]  #: the elements around it, the outermost first


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.source = path.read_text(encoding="utf-8")
        self.elements: list[Element] = []
        self.tables: list[list[list[str]]] = []  #: rows of cells
        self.text = ""  #: between tags, but for styles
        self.open: list[Element] = []
        self.is_well_formed = True
        self.feed(self.source)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = Element(tag, {name: value or "" for name, value in attributes}, tuple(self.open))
        self.elements.append(found)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(found)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            self.is_well_formed &= bool(self.open) and self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        tags = [element.tag for element in self.open]
        if "style" not in tags:
            self.text += data
        if tags and tags[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data

    def values(self, name: str, *tags: str) -> list[str]:
        """Return an attribute of all elements that have it; of some tags alone where they are given."""
        found = [element for element in self.elements if not tags or element.tag in tags]
        return [element.attributes[name] for element in found if name in element.attributes]

    @property
    def loads(self) -> list[str]:
        shown = [one for one in self.elements if one.attributes.get("rel") not in ("canonical", "next", "prev")]
        return [one.attributes[name] for one in shown if (name := LOADED.get(one.tag, "")) in one.attributes]

    def check_alone(self) -> None:
        """It is well formed, and needs no other file."""
        ids = self.values("id")
        assert self.is_well_formed
        assert self.open == []
        assert len(set(ids)) == len(ids)
        assert all(address.startswith("data:") for address in self.loads)
        assert not [word for word in ("<script", "@import", "url(") if word in self.source]
        assert all(anchor.removeprefix("#") in ids for anchor in self.values("href", "a"))
