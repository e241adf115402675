"""Lengths of axes, as text (``"n 3"``) and as numbers.

May import `config` and `errors`. Start with `notation`, which reads the text; `lengths`
finds the lengths of the names from the arrays of a call. Symbolic sizes begin in
`expressions`, the arithmetic of both; `symbolic` has `SymInt`, `proofs` what is
certain about sizes, and `size_context` the sizes of a capture.
"""
