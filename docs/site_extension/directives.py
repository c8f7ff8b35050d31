"""``{drawing} FILE``, an SVG as part of the page, and ``{unsearched} LANGUAGE``, code that the search does not find."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator


class Drawing(SphinxDirective):
    """A file, relative to the page, follows its light or dark colours; ``alt`` is read to those who cannot see it."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"alt": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """See docutils."""
        relative, absolute = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(relative)
        text = Path(absolute).read_text()
        alt = nodes.unescape(self.options["alt"]).replace('"', "&quot;")
        svg = text[text.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{alt}"', 1)
        caption = f"<figcaption>{' '.join(self.content)}</figcaption>" if self.content else ""
        return [nodes.raw("", f'<figure class="drawing">{svg}{caption}</figure>', format="html")]


class UnsearchedNode(nodes.General, nodes.Element):
    """Keeps its text as an attribute, where the search does not look."""


class Unsearched(SphinxDirective):
    """Resolved configurations have all keys, so that a search for any of them would find nothing else."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """See docutils."""
        return [UnsearchedNode(code="\n".join(self.content), language=self.arguments[0])]


def visit_unsearched(translator: HTML5Translator, node: UnsearchedNode) -> None:
    """Coloured like any other code."""
    translator.body.append(translator.highlighter.highlight_block(node["code"], node["language"]))
    raise nodes.SkipNode
