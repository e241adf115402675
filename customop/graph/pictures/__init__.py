"""Pictures of graphs: drawings as SVG and PNG, and a page for browsers and notebooks.

May import `text`, `node` and all below them. Start with `drawing`, which gives each
node a box in a layered layout, or with `graph_page`, whose rows ``graph.js`` shows.
"""
