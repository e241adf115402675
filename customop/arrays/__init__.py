"""Values that a call can hold: kinds of array, fake arrays, traced ones, nested ones.

May import `shapes`, `config` and `errors`. Start with `kinds`, the table of array types;
then `fake` (arrays without data) and `nested` (lists, dicts and classes of arrays).
"""
