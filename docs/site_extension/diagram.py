"""``{mermaid}``: a diagram as text, drawn in the browser by a script that the site serves itself."""

from __future__ import annotations

import html
import re
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

SCRIPTS = ("mermaid/mermaid.tiny.js", "mermaid/draw.js")


class DiagramNode(nodes.General, nodes.Element):
    """Marks the pages that need the script."""


def _code(text: str) -> str:
    """What stands between backquotes is code."""
    return re.sub(r"`(.*?)`", r"<code>\1</code>", text)


class Diagram(SphinxDirective):
    """The content is Mermaid's; ``alt`` is read to those who cannot see it, ``caption`` stands below."""

    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"alt": directives.unchanged_required, "caption": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """See docutils."""
        alt = html.escape(self.options["alt"])
        caption = self.options.get("caption", "")
        below = f"<figcaption>{_code(html.escape(caption))}</figcaption>" if caption else ""
        text = html.escape("\n".join(self.content))
        figure = (
            f'<figure class="diagram" role="img" aria-label="{alt}"><pre class="mermaid">{text}</pre>{below}</figure>'
        )
        return [DiagramNode(figure=figure)]


def visit_diagram(translator: HTML5Translator, node: DiagramNode) -> None:
    """As it is."""
    translator.body.append(node["figure"])
    raise nodes.SkipNode


def add_scripts(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Load them on pages with diagrams only."""
    if doctree is not None and doctree.next_node(DiagramNode) is not None:
        for script in SCRIPTS:
            app.add_js_file(script, loading_method="defer")
