"""Reverse mode: `grad`, `vjp`, and the imperative form (`variable`, `backward`).

Start with `reverse`: a call goes on to `reverse_plans`, which make a node of `tape`.
`sweep` runs the nodes backwards, and checks what their formulas return.
"""
