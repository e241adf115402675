"""Reverse mode: `grad`, `vjp`, and the imperative form (`variable`, `backward`).

Start with `interpreter` (what a traced call does), then `node` (the backward pass).
"""
