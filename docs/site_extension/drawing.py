"""``{drawing} FILE``: an SVG that becomes part of the page, so that it follows its light or dark colours."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective


class Drawing(SphinxDirective):
    """The argument is the file, relative to the page; ``alt`` is read to those who cannot see it."""

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
