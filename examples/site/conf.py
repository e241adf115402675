"""Settings of the site: ``python -m sphinx examples/site build/site -W``.

The folders `api`, `gallery` and `guide` here are made by the build, from the files in
`examples`. Edit those.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from numpydoc.xref import DEFAULT_LINKS

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for the package `extension`

project = "customop"
author = "The authors of customop"
copyright = "2026, the authors of customop"  # noqa: A001  # Sphinx's name
html_title = "customop"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_codeautolink",
    "extension",
]
exclude_patterns = ["extension", "templates"]

# ---- Markdown ----

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

# ---- docstrings ----

default_role = "py:obj"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_xref_param_type = True
# Links of numpydoc to the pages of Python and NumPy, which the build would have to ask for.
DEFAULT_LINKS.clear()
# Where torch is not installed, which is large, its page has what the docstrings say.
autodoc_mock_imports = [] if find_spec("torch") else ["torch"]

# ---- names in code lead to the reference ----

codeautolink_concat_default = True  # the blocks of a page are one program
codeautolink_warn_on_missing_inventory = False
codeautolink_warn_on_failed_resolve = False
# Flags of doctests are in the source of a block, and not on its page.
suppress_warnings = ["codeautolink.match_block"]

# ---- looks: nothing comes from the network ----

html_theme = "furo"
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#1f6f54",
        "color-brand-content": "#1f6f54",
        "color-brand-visited": "#1f6f54",
    },
    "dark_css_variables": {
        "color-brand-primary": "#5fc39e",
        "color-brand-content": "#6fd0ac",
        "color-brand-visited": "#6fd0ac",
    },
}
templates_path = ["templates"]  # the page of the search
html_static_path = ["static"]
html_logo = html_favicon = "static/logo.svg"
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
# Of a session only what is typed is copied, without prompts and output.
copybutton_exclude = ".linenos"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_copy_empty_lines = False
