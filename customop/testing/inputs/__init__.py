"""Arguments to check an operator with: found, varied and made smaller.

Start with `input_patterns`, which finds which axes go together. `templates` lists values
for each schema type, `search` asks the kernels which of them they accept.
`variations` and `shrink` change a sample.
"""
