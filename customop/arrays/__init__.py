"""Values of a call: kinds of array, dtypes, fake arrays, and nested values.

May import `shapes` and all below it. Start with `kinds` (which class is an array of
which kind; `convert` adds classes), then `nested` (walks over lists, dicts and
objects) and `fake` (arrays without data).
"""
