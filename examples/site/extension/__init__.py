"""Makes the pages that are not written by hand, before Sphinx looks for pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from extension import coverage, gallery, guide, reference, search


def make_pages(app: Any) -> None:
    """Write the pages made of other files into the folder of the site."""
    site = Path(app.srcdir)
    guide.make(site.parent / "guide", site / "guide")
    gallery.make(site.parent, site / "gallery", Path(app.doctreedir) / "programs")
    coverage.make(site / "api")
    reference.make(site / "api", app.config.autodoc_mock_imports)


def setup(app: Any) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("autodoc-skip-member", reference.is_shown)
    app.connect("builder-inited", make_pages)
    app.connect("build-finished", search.make)
    app.connect("html-page-context", guide.break_names)
    app.connect("source-read", guide.read_own_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
