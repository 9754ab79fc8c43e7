"""How Sphinx builds the site: `make docs`."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

import generated_pages
from unidex import __version__

project = "unidex"
author = "The unidex authors"
copyright = "the unidex authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build", "_generated"]
# Two hyphens are an option of the command line, not a dash.
smartquotes = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_type_aliases = {"NDArray": "numpy.ndarray"}
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"unidex {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
# Nothing is loaded from other hosts, and the source of every page is the Markdown file in the repository.
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False


def setup(app: Sphinx) -> None:
    """Write the pages that come from the code before Sphinx reads any."""
    generated_pages.write_all(Path(__file__).parent / "_generated")
