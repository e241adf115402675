"""Pages in HTML, for notebooks and browsers: they need no network and escape all texts.

May import `errors`, `frozen` and `later`. Start with `blocks`, of which pages are made;
`write` makes files and what notebooks show. Other folders have no HTML: they describe a
page by blocks.
"""
