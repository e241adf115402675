"""SciPy's functions as operators. Import this module by name, after ``pip install scipy``.

The functions in `special`, `linalg` and `sparse` work on traced, fake and plain arrays.
After this import, the ufuncs of `scipy.special` itself work too. Other functions of
SciPy fail for traced values, because they need real arrays. Start with
`special_ufuncs`.
"""

from customop.scipy import linalg, sparse, special

__all__ = ["linalg", "sparse", "special"]
