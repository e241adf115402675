"""Reverse mode: `grad`, `vjp`, and the imperative form (`variable`, `backward`).

Start with `interpreter`: a call goes on to `plans` and `calls`, which make a `node`.
`sweep` runs the nodes backwards, and `gradients` checks what their formulas return.
"""
