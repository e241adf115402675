"""scipy.special: values at the edges, errors, and which ufuncs have operators."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import customop as co

special: Any = pytest.importorskip("scipy.special", reason="SciPy is not installed")

pytestmark = pytest.mark.exhaustive
import customop.scipy.fft  # noqa: E402  # after the test for SciPy
import customop.scipy.linalg  # noqa: E402  # as above
import customop.scipy.signal  # noqa: E402  # as above
import customop.scipy.sparse  # noqa: E402  # as above
import customop.scipy.special as ours  # noqa: E402  # as above
from customop.core.registry import operators  # noqa: E402  # as above
from customop.scipy.special_ufuncs import SCALED, STEPS, UFUNCS  # noqa: E402

HALF, ZERO = 0.5, np.array(0.0)

# Function and argument -> the derivative there.
EDGES: dict[str, tuple[Any, float, float]] = {
    "j1": (special.j1, 0.0, 0.5),
    "i1": (special.i1, 0.0, 0.5),
    "i1e": (special.i1e, 0.0, 0.5),
    "i0e": (special.i0e, 0.0, 0.0),
    "exprel": (special.exprel, 0.0, 0.5),
    "exprel small": (special.exprel, 1e-9, 0.5),
    "exprel large": (special.exprel, 30.0, (29 * np.exp(30.0) + 1) / 900),
    "spence": (special.spence, 1.0, -1.0),
    "rgamma": (special.rgamma, 0.0, 1.0),
    "rgamma pole": (special.rgamma, -3.0, -6.0),
    "log_ndtr": (special.log_ndtr, -1e4, 1e4),
    "log_ndtr far": (special.log_ndtr, -1e8, 1e8),
    "ndtri_exp": (special.ndtri_exp, -1e10, 7.07106781602978e-06),
    "erfcx": (special.erfcx, 1e8, -1e-16 / np.sqrt(np.pi)),
    "dawsn": (special.dawsn, -1e9, -5e-19),
    "expit": (special.expit, 800.0, 0.0),
    "log_expit": (special.log_expit, -800.0, 1.0),
    "gammainc": (lambda x: special.gammainc(1.0, x), 0.0, 1.0),
    "betainc": (lambda x: special.betainc(1.0, 1.0, x), 0.0, 1.0),
    "boxcox near 0": (lambda p: special.boxcox(2.0, p), 1e-10, np.log(2.0) ** 2 / 2),
    "pseudo_huber": (lambda d: special.pseudo_huber(d, 1e-6), 1.0, 2.5e-25),
    "boxcox": (lambda p: special.boxcox(np.e, p), 0.0, 0.5),
    "sici": (lambda x: special.sici(x)[0], 0.0, 1.0),
    "huber": (lambda r: special.huber(1.0, r), 3.0, 1.0),
    "polygamma 0": (lambda x: ours.polygamma(0, x), 1.0, np.pi**2 / 6),
    "zeta": (lambda q: ours.zeta(3.0, q), 1.0, -3 * np.pi**4 / 90),
    "expn 0": (lambda x: special.expn(0, x), 2.0, -0.75 * np.exp(-2.0)),
    "poch 0": (lambda z: special.poch(z, 0.0), 0.0, 0.0),
    "poch pole": (lambda z: special.poch(z, 2.5), 0.0, special.gamma(2.5)),
    "poch": (lambda z: special.poch(z, 2.0), 3.0, 7.0),
    "poch poles": (lambda z: special.poch(z, 2.0), -2.0, -3.0),
    "poch large": (lambda z: special.poch(z, 1.5), 200.0, 21.226471331874176),
    "hyp2f1 0": (lambda x: special.hyp2f1(0.0, 0.0, 0.0, x), 0.0, 0.0),
    "hyp2f1 a = c = 0": (lambda x: special.hyp2f1(0.0, 0.5, 0.0, x), 0.0, 0.5),
    "hyp2f1 b = c = 0": (lambda x: special.hyp2f1(0.5, 0.0, 0.0, x), 0.0, 0.0),
    "logsumexp": (lambda x: ours.logsumexp(np.stack([x, -np.inf])), 1e3, 1.0),
}


@pytest.mark.parametrize("name", EDGES)
def test_edges(name: str) -> None:
    """Derivatives at limits and far out, where formulas could lose all digits."""
    fn, x, want = EDGES[name]
    np.testing.assert_allclose(co.grad(fn)(np.array(x)), want, rtol=1e-7, atol=1e-300)


# The same for second derivatives; from mpmath where no formula stands here.
SECOND: dict[str, tuple[Any, float, float]] = {
    "log_ndtr": (special.log_ndtr, -1e5, -1.0),
    "log_ndtr right": (special.log_ndtr, 100.0, 0.0),
    "erfcx": (special.erfcx, 1e4, 1.1283791332441388e-12),
    "dawsn": (special.dawsn, -1e4, -1.000000030000001e-12),
    "rgamma 0": (special.rgamma, 0.0, 2 * np.euler_gamma),
    "rgamma pole": (special.rgamma, -3.0, 15.073412021181605),
    "poch pole": (lambda z: special.poch(z, 2.5), -1.0, 0.6846889279500362),
    "poch poles": (lambda z: special.poch(z, 2.0), -2.0, 2.0),
    "boxcox": (lambda p: special.boxcox(np.e, p), 0.0, 1 / 3),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_at_edges(name: str) -> None:
    """Formulas hold around an edge, and not only there."""
    fn, x, want = SECOND[name]
    found = co.grad(co.grad(fn))(np.array(x))
    np.testing.assert_allclose(found, want, rtol=1e-7, atol=1e-300)


# ufuncs without a derivative in closed form, and those that nobody has asked for yet.
WITHOUT = [
    "agm",
    "airy",
    "airye",
    "bdtr",
    "bdtrc",
    "bdtri",
    "bdtrik",
    "bdtrin",
    "bei",
    "beip",
    "ber",
    "berp",
    "besselpoly",
    "betainccinv",
    "binom",
    "boxcox1p",
    "btdtria",
    "btdtrib",
    "chdtr",
    "chdtrc",
    "chdtri",
    "chdtriv",
    "chndtr",
    "chndtridf",
    "chndtrinc",
    "chndtrix",
    "ellipe",
    "ellipeinc",
    "ellipj",
    "ellipk",
    "ellipkinc",
    "ellipkm1",
    "elliprc",
    "elliprd",
    "elliprf",
    "elliprg",
    "elliprj",
    "eval_chebyc",
    "eval_chebys",
    "eval_chebyt",
    "eval_chebyu",
    "eval_gegenbauer",
    "eval_genlaguerre",
    "eval_hermite",
    "eval_hermitenorm",
    "eval_jacobi",
    "eval_laguerre",
    "eval_legendre",
    "eval_sh_chebyt",
    "eval_sh_chebyu",
    "eval_sh_jacobi",
    "eval_sh_legendre",
    "fdtr",
    "fdtrc",
    "fdtri",
    "fdtridfd",
    "gdtr",
    "gdtrc",
    "gdtria",
    "gdtrib",
    "gdtrix",
    "hankel1",
    "hankel1e",
    "hankel2",
    "hankel2e",
    "hyperu",
    "inv_boxcox",
    "inv_boxcox1p",
    "it2i0k0",
    "it2j0y0",
    "it2struve0",
    "itairy",
    "iti0k0",
    "itj0y0",
    "itmodstruve0",
    "itstruve0",
    "jve",
    "kei",
    "keip",
    "kelvin",
    "ker",
    "kerp",
    "kn",
    "kolmogi",
    "kolmogorov",
    "log_wright_bessel",
    "lpmv",
    "mathieu_a",
    "mathieu_b",
    "mathieu_cem",
    "mathieu_modcem1",
    "mathieu_modcem2",
    "mathieu_modsem1",
    "mathieu_modsem2",
    "mathieu_sem",
    "modfresnelm",
    "modfresnelp",
    "modstruve",
    "nbdtr",
    "nbdtrc",
    "nbdtri",
    "nbdtrik",
    "nbdtrin",
    "ncfdtr",
    "ncfdtri",
    "ncfdtridfd",
    "ncfdtridfn",
    "ncfdtrinc",
    "nctdtr",
    "nctdtridf",
    "nctdtrinc",
    "nctdtrit",
    "nrdtrimn",
    "nrdtrisd",
    "obl_ang1",
    "obl_ang1_cv",
    "obl_cv",
    "obl_rad1",
    "obl_rad1_cv",
    "obl_rad2",
    "obl_rad2_cv",
    "owens_t",
    "pbdv",
    "pbvv",
    "pbwa",
    "pdtr",
    "pdtrc",
    "pdtri",
    "pdtrik",
    "powm1",
    "pro_ang1",
    "pro_ang1_cv",
    "pro_cv",
    "pro_rad1",
    "pro_rad1_cv",
    "pro_rad2",
    "pro_rad2_cv",
    "radian",
    "smirnov",
    "smirnovi",
    "stdtridf",
    "struve",
    "tklmbda",
    "voigt_profile",
    "wofz",
    "wright_bessel",
    "wrightomega",
    "yn",
    "yve",
    "zetac",
]


def test_every_ufunc_is_decided() -> None:
    """Each ufunc of SciPy has an operator or is listed as one without."""
    known = {*UFUNCS, *SCALED, *STEPS, "fresnel", "shichi", "sici"}
    same = {getattr(special, name) for name in known}
    left = {
        name
        for name in dir(special)
        if isinstance(getattr(special, name), np.ufunc)
        and getattr(special, name) not in same
    }
    assert left <= {*WITHOUT}
    assert all(hasattr(ours, name) for name in ours.__all__)
    assert known <= {*ours.__all__}


def test_ufuncs_without_an_operator() -> None:
    """The error names the ufunc and the registration to write."""
    with pytest.raises(co.MissingRuleError) as caught:
        co.grad(special.ellipk)(np.array(0.5))
    assert str(caught.value) == (
        "scipy.special.ellipk has no operator, so it cannot see traced or fake arrays\n"
        "  do: wrap it with custom_op, then register_numpy_function("
        "scipy.special.ellipk, op); or pass stop_gradient(x) to use the value alone"
    )


def test_parameters_without_a_formula() -> None:
    """A derivative that is not known is an error, never zero."""
    for run in (
        lambda: co.grad(lambda a: special.gammainc(a, 0.5))(np.array(2.0)),
        lambda: co.jvp(lambda a: special.gammainc(a, 0.5), (HALF,), (1.0,)),
    ):
        with pytest.raises(co.GradientError) as caught:
            run()
        assert str(caught.value) == (
            "scipy.special.gammainc has no derivative by 'a' in closed form\n"
            "  do: pass stop_gradient(a), or wrap the function with custom_jvp"
        )
    both = co.grad(lambda a: special.gammainc(co.stop_gradient(a), a))(np.array(2.0))
    np.testing.assert_allclose(both, 2.0 * np.exp(-2.0))
    with pytest.raises(co.GradientError, match="no complex polygamma"):
        co.vjp(special.digamma, np.array(1j))[1](np.array(1j))
    with pytest.raises(co.ArgumentError, match="the order n is traced"):
        co.vmap(lambda n: ours.polygamma(n, 1.0))(np.array([1, 2]))
    with pytest.raises(co.ArgumentError, match="complex values have no operator"):
        co.vmap(ours.softmax)(np.ones((2, 2)) * 1j)


def test_complex_numbers() -> None:
    """Complex derivatives by central differences; an error where there is none."""
    for z in (np.array(0.3 + 0.1j), np.array(1.0 + 0.05j), np.array(1.0 + 0.0j)):
        slope = co.vjp(special.spence, z)[1](np.array(1.0 + 0.0j))[0]
        want = (special.spence(z + 1e-6) - special.spence(z - 1e-6)) / 2e-6
        np.testing.assert_allclose(slope, want, rtol=1e-7)
    with pytest.raises(co.NoDerivativeError, match="it is not holomorphic"):
        co.vjp(lambda x: special.ive(0.5, x), np.array(1j))[1](np.array(1j))


@pytest.mark.parametrize(
    "name", sorted(n for n in operators if n.startswith("scipy::"))
)
def test_operators_pass_opcheck(name: str) -> None:
    """Every check of an operator, by the arguments that have derivatives."""
    found = co.opcheck(operators[name], raise_exception=False)
    assert found.failed == [], "\n".join(str(found[name]) for name in found.failed)


def test_opcheck_names_what_has_no_derivative() -> None:
    """A table that says which derivatives were not checked."""
    found = co.opcheck(co.ops.scipy.jv.default, test_utils="test_gradients")
    assert found.notes == {
        "test_gradients": "no derivative by 'v': scipy.special.jv has no derivative by 'v'"
        " in closed form"
    }


def test_without_the_import() -> None:
    """The error for a function of SciPy says what to import."""
    program = """
import numpy as np, customop as co
from scipy import special
try:
    co.grad(special.erf)(np.array(1.0))
except co.MissingRuleError as error:
    print(error.do)
import customop.scipy
print(co.grad(special.erf)(np.array(0.0)))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "import customop.scipy, which has operators for SciPy's functions",
        repr(float(2 / np.sqrt(np.pi))),
    ]


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.float64, np.complex128])
def test_plain_arrays_are_scipys(dtype: Any) -> None:
    """On plain arrays every function is SciPy's own, also for lists."""
    x = np.array([[1, 2], [3, 4]], dtype)
    np.testing.assert_array_equal(ours.logsumexp(x, 0), special.logsumexp(x, 0))
    np.testing.assert_array_equal(ours.softmax(x), special.softmax(x))
    assert ours.erf is special.erf
    if dtype is not np.complex128:
        np.testing.assert_array_equal(
            ours.polygamma(1, [1, 2]), special.polygamma(1, [1, 2])
        )
        np.testing.assert_array_equal(ours.zeta(x + 1), special.zeta(x + 1))
        np.testing.assert_array_equal(
            ours.multigammaln(x + 2, 2), special.multigammaln(x + 2, 2)
        )


def test_integers() -> None:
    """Integers give floats, and have no gradient themselves."""
    found = co.vmap(special.gammaln)(np.array([1, 2, 5]))
    np.testing.assert_array_equal(found, special.gammaln([1, 2, 5]))
    assert co.grad(lambda x: special.xlogy(np.array(3), x))(np.array(2.0)) == 1.5
    rows = co.vmap(ours.softmax)(np.array([[1, 1], [2, 2]]))
    np.testing.assert_array_equal(rows, np.full((2, 2), 0.5))


def test_in_place_and_out() -> None:
    """Ufuncs of SciPy write into traced arrays."""

    def written(x: Any) -> Any:
        y = np.zeros_like(x)
        special.erf(x, out=y)
        y *= 2.0
        return np.sum(y)

    x = np.array([0.0, 0.5])
    np.testing.assert_allclose(co.grad(written)(x), 4 / np.sqrt(np.pi) * np.exp(-x * x))
