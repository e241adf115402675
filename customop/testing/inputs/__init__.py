"""Find, vary and shrink the arguments that an operator is checked with.

Start with `input_patterns`, which finds the axes that must have equal lengths.
`templates` lists values for each schema type, and `search` finds out which of them the
kernels accept. `variations` and `shrink` change a sample.
"""
