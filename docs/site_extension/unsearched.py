"""``{unsearched} LANGUAGE``: code that is shown, and that the search of the site does not find.

The resolved configurations of all experiments have all keys, so that a search for any of them would find nothing else.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator


class UnsearchedNode(nodes.General, nodes.Element):
    """Keeps its text as an attribute, where the search does not look."""


class Unsearched(SphinxDirective):
    """The argument is the language of the content."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """See docutils."""
        return [UnsearchedNode(code="\n".join(self.content), language=self.arguments[0])]


def visit_unsearched(translator: HTML5Translator, node: UnsearchedNode) -> None:
    """Coloured like any other code."""
    translator.body.append(translator.highlighter.highlight_block(node["code"], node["language"]))
    raise nodes.SkipNode
