"""The contract of kernels: the promises of a schema, and how calls prove them.

Start with proof.py, a call under proof; proven.py has the calls after it. results.py
compares results with the schema. memory.py knows which arrays share memory and which
were written, layout.py the order of axes in memory.
"""
