"""What a kernel promises by its schema, and how calls prove it.

proof.py runs a call under proof, results.py compares results with the schema, and
memory.py knows which arrays share memory and which were written.
"""
