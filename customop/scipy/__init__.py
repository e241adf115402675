"""SciPy's functions as operators: import it by name, after ``pip install scipy``.

`special`, `linalg` and `sparse` have the functions that work on traced, fake and plain
arrays. The ufuncs of `scipy.special` themselves work too, once this is imported; the other
functions of SciPy would ask traced values for their numbers. Start with `special_ufuncs`.
"""

from customop.scipy import linalg, sparse, special

__all__ = ["linalg", "sparse", "special"]
