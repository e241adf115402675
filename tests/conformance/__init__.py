"""A table of samples for each part of NumPy; every row gets every check."""
