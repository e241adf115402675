"""Settings of the site: ``python -m sphinx examples/site build/site -W``.

The folders `guide` and `gallery` here are made by the build, from the files in
`examples`. Edit those.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for the package `extension`

project = "customop"
author = "The authors of customop"
copyright = "2026, the authors of customop"  # noqa: A001  # Sphinx's name
html_title = "customop"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_design",
    "sphinx_copybutton",
    "extension",
]
exclude_patterns = ["extension"]

# ---- Markdown ----

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

# ---- looks: nothing comes from the network ----

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"
