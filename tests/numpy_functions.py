"""Print the page of the guide that lists the NumPy functions with an operator.

``python -m tests.numpy_functions > examples/guide/numpy_functions.md``
"""

from __future__ import annotations

import operator
import re
import sys
import textwrap
from typing import Any

import numpy as np

from customop.arrays.numpy_functions import FUNCTIONS, load_all
from customop.arrays.refusals import reason_of

load_all()
MODULES = {
    "np": np,
    "np.linalg": np.linalg,
    "np.fft": np.fft,
    "np.strings": np.strings,
    "np.emath": np.emath,
}
PAGE = """\
# NumPy functions

{count} functions of NumPy {numpy} have an operator: they work on values in `grad`, `jvp` and
`vmap` and on fake arrays, as does indexing with `x[key]`. The methods of arrays, such as
`x.sum()`, `x.reshape(...)` and `x.T`, and Python's operators, such as `x + y` and `x @ y`, call
the same operators. Any other function raises `MissingRuleError` when it meets such a value.

`python -m tests.numpy_functions` writes this page, and a test compares it with the package.
`customop coverage` prints the operators with their rules, and how each function of NumPy runs: as
its own operator, by other operators, or not, with the reason.

{lists}## Functions that have no operator

{refused}## Ufuncs

Every ufunc takes `dtype=`, `signature=`, `casting=` and `order=`, and has its methods `reduce`,
`accumulate`, `reduceat`, `outer` and `at`, with derivatives of every order. Reductions take
`where=` and `initial=`; NumPy looks for traced values in the array, not in `initial`.

`where=` of a ufunc itself needs `out=`, since NumPy leaves the other elements without a value.
There the ufunc is not computed, so it neither warns nor disturbs the gradient:

```python
import numpy as np
import customop as co


def entropy(p):
    logs = np.zeros_like(p)
    np.log(p, where=p > 0, out=logs)
    return -np.sum(p * logs)
```

```pycon
>>> co.grad(entropy)(np.array([0.5, 0.0, 0.5]))
array([-0.30685282,  0.        , -0.30685282])
```

## Where values decide

Some functions of NumPy look at the values to choose a shape or a dtype. Under `grad` and `jvp`
the values are known, and the results are NumPy's. Under `vmap` and for fake arrays they are not:

- `np.unique` and the functions of sets, `np.nonzero`, `np.extract`, masks as indices,
  `np.repeat` by counts, and `np.bincount` without `minlength` give fake arrays a size that
  depends on data. Under `vmap` they raise an error that says how to keep the shape: sort, and
  select with `np.where`.
- `np.trim_zeros` raises an error in both.
- `np.allclose`, `np.array_equal` and `np.array_equiv` give a bool for each row in place of one.
- `np.linalg.eig`, `np.linalg.eigvals` (before NumPy 2.5), `np.roots` and `np.poly` give real
  arrays where all values are real, `np.polymul` and `np.polydiv` leave out leading zeros,
  `np.linalg.lstsq` gives no residuals for a matrix of low rank, and `np.bincount` may need more
  than `minlength`. A graph is made for one of these cases, and checks it in each run: `make_fx`
  follows its example, and the graph raises `GuardError` for values of the other case; a
  compiled function then runs as it is, and `explain()` says so. Under `vmap` results are real
  if those of all rows are; polynomials keep leading zeros, and `np.roots` refuses rows that
  begin with 0.
- `np.histogram` needs a number of bins or their edges.
- `np.emath.sqrt(x)` needs a complex `x`, and `np.piecewise` refuses functions under `vmap`:
  write `np.where(condition, f(x), g(x))`.

Derivatives where there is a choice: equal extremes of `np.max` and `np.fmax.reduce` share the
gradient evenly. `np.std` of a constant and `np.hypot.reduce` of zeros have the derivative 0. A
quantile has a derivative by the two elements beside it, and by `q` their difference.
`np.unique` gives the gradient of equal elements to the first one, and sorting and
`np.partition` keep their order. `np.interp` has at a point of `xp` the slope to its right, and
at the last one that to its left. Counts of a histogram have none; sums of weights and the edges
that NumPy finds do. A double root has none: its derivative is infinite or nan.

Some functions never ask arrays what to do, so they cannot be served:

- `np.kaiser(n, beta)` of a traced `beta`, `np.vectorize`, and ufuncs made by `np.frompyfunc`
  raise an error. For a window, write its formula with `np.i0`; for a function of Python, use
  `co.vmap` or make an operator of it.
- `numpy.polynomial`: `polyval`, `chebval` and their kin take traced points with plain
  coefficients of one polynomial. For traced coefficients use `np.polyval`, or
  `co.traceable(np.polynomial.polynomial.polyval)`.
- A branch on `isinstance(x, np.ndarray)` takes traced arrays for numbers. So
  `numpy.polynomial.polynomial.polyvalfromroots(x, r)` of traced points, and `polyval(x, c)` with
  several columns of coefficients, pair the two elementwise. Give points of shape `(1, n)` with
  roots of shape `(m, 1)`, or use `np.polyval`.

## Symbolic sizes

All of these functions, their gradients and batches take arrays with symbolic sizes, and ask for
no size where the mathematics needs none:

```pycon
>>> x = co.FakeMode().from_array(np.zeros((4, 3)), sizes=("n", "m"))
>>> np.linalg.svd(x, full_matrices=False).U.shape
(n, min(m, n))
>>> np.fft.rfft(x).shape, np.convolve(x[0], x[:, 0]).shape
((n, m//2 + 1), (m + n - 1,))
>>> np.unique(x).shape
(u0,)
```

Some results need a number. Sizes without a name then get a guard, and those with a name an
error that says what was asked:

- an axis that becomes a list of arrays or terms: `np.unstack`, `np.poly`, `np.polydiv`, `np.roots`;
- a result that loses axes of length one: `np.squeeze(x)`, `np.cov`;
- deleting and inserting by a mask, or by a slice in steps of two or more;
- functions that see no array. Write `np.zeros_like(x, shape=(n,))` for `np.zeros(n)`. The
  windows of NumPy have no `like=`: write their formula with `np.arange(n, like=x)`.

## Add a function

Make an operator of it, and say which function it serves. Then plain NumPy code finds it. This
works for the functions of NumPy and for ufuncs of other packages, such as this one, which NumPy
makes of a function of Python:

```python
import math

import numpy as np
import customop as co

gamma = np.frompyfunc(math.gamma, 1, 1)


@co.custom_op("functions::gamma", mutates_args=(), tags=co.Tag.pointwise)
def gamma_of(x: np.ndarray) -> np.ndarray:
    return gamma(x).astype(float)


gamma_of.register_fake(lambda x: co.fake_like(x, dtype=float))
co.register_numpy_function(gamma, gamma_of)
```

```pycon
>>> co.vmap(lambda row: gamma(row) / gamma(2.0))(np.ones((2, 3)))
array([[1., 1., 1.],
       [1., 1., 1.]])
>>> co.eval_shape(gamma, np.zeros(1000))
FakeArray(f64[1000], device='cpu')
```
"""


def covered() -> dict[str, list[str]]:
    """Return the functions of each module that are registered, by their full names."""
    seen: set[int] = set()
    found: dict[str, list[str]] = {}
    for prefix, module in MODULES.items():
        for name in sorted(module.__all__):
            value = getattr(module, name)
            own = getattr(value, "__name__", name)
            if id(value) not in seen and is_registered(value):
                seen.add(id(value))
                first = own if getattr(module, own, None) is value else name
                found.setdefault(prefix, []).append(f"{prefix}.{first}")
    return {prefix: sorted(names) for prefix, names in found.items()}


def is_registered(value: Any) -> bool:
    """Whether the package serves a function, by an operator or by calling some."""
    if not callable(value) or value not in FUNCTIONS:
        return False
    made = FUNCTIONS[value]
    module = getattr(made, "__module__", None) or ""
    is_ours = module.startswith("customop.") and not module.startswith("customop.scipy")
    return getattr(made, "namespace", "") == "np" or is_ours


def exists(name: str) -> bool:
    """Whether the NumPy that runs has a function of this full name."""
    try:
        operator.attrgetter(name.removeprefix("np."))(np)
    except AttributeError:
        return False
    return True


def listed(page: str) -> set[str]:
    """Return the full names in the lists of a page."""
    return {
        f"{prefix}.{name}"
        for prefix, names in re.findall(
            r"^## `(.*?)`.*\n\n((?:.+\n)*)", page, re.MULTILINE
        )
        for name in re.findall(r"`(\w+)`", names)
    }


def page() -> str:
    """Return the page, for the NumPy that runs."""
    found = covered()
    lists = "".join(
        f"## `{prefix}`: {len(names)}\n\n{wrapped(names)}\n\n"
        for prefix, names in found.items()
    )
    count = sum(map(len, found.values()))
    texts = [f"- {wrapped(names, why)}\n" for why, names in refused().items()]
    parts = {"lists": lists, "refused": "".join(texts) + "\n"}
    return PAGE.format(count=count, numpy=release(), **parts)


def refused() -> dict[str, list[str]]:
    """Return the functions that have no operator for a reason, by that reason."""
    found: dict[str, list[str]] = {}
    for prefix, module in MODULES.items():
        for name in sorted(module.__all__):
            value = getattr(module, name)
            reason = reason_of(value) if callable(value) else None
            if reason is not None and value not in FUNCTIONS:
                found.setdefault(reason.why, []).append(f"{prefix}.{name}")
    return found


def wrapped(names: list[str], text: str = "") -> str:
    """Return names without their module, as code, in lines, and a text about them."""
    listed = ", ".join(f"`{n.rpartition('.')[2]}`" for n in names)
    return textwrap.fill(f"{listed}: {text}." if text else listed, 96)


def release() -> str:
    """Return the release of NumPy, such as 2.4, that the page is for."""
    return ".".join(np.__version__.split(".")[:2])


if __name__ == "__main__":
    sys.stdout.write(page())
