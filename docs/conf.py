"""The documentation site: ``make docs``."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from dglcell import __version__  # noqa: E402

project = "dglcell"
author = "the dglcell developers"
release = version = __version__
language = "en"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinxcontrib.katex", "site_extension"]
exclude_patterns = ["_build", "_generated/parts", "results"]
# Attributes of different classes may share a name.
suppress_warnings = ["ref.python"]
# Single backquotes in docstrings are names of keys and files.
default_role = "literal"

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
# The notebooks of the gallery are run in folders of their own whenever the site is built; one that fails is an error.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_output_stderr = "remove"
nb_merge_streams = True  # lines that a cell prints are one block

autodoc_default_options = {"members": True, "ignore-module-all": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# Contents list the names of pages; their methods beside them would be no list.
toc_object_entries = False
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Shapes"]

# Everything is served from the site itself: KaTeX's script comes with the extension, its style sheet must be of the
# same version.
katex_css_path = "katex/katex.min.css"

html_theme = "furo"
html_title = "dglcell"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["sort.js"]
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"footer_icons": [], "top_of_page_buttons": []}
