"""Pages in HTML, for notebooks and browsers: they need no network and escape all texts.

May import `errors`, `frozen` and `later`. `html` has the blocks of which pages
are made, and makes files and what notebooks show. Other folders have no HTML: they describe a
page by blocks.
"""
