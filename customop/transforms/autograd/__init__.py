"""Reverse mode: `grad`, `vjp`, and the imperative form (`variable`, `backward`).

A call goes through `interpreter`, `plans` and `calls`, which make a `node`; `sweep`
runs the nodes backwards. Start with `interpreter`. `native` is a rule that users take.
"""
