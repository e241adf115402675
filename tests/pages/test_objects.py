"""What notebooks show of operators, schemas, results, profiles, graphs and others."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.pages.html import visible
from tests.pages._reading import HOSTILE, ReadPage, read

NASTY = "".join(HOSTILE[:8])
NUMBERS = iter(range(1000))


def shown(value: Any) -> ReadPage:
    """What a notebook shows of a value."""
    return read(value._repr_html_())


def operator(
    doc: str = "Do it.", where: str = "ops.py", default: str = "x", fail: str = ""
) -> Any:
    """An operator with texts of a user in each place that takes one."""
    source = (
        "def scale(x: np.ndarray, how: str = DEFAULT) -> np.ndarray:\n"
        "    if FAIL: raise ValueError(FAIL)\n"
        "    return 2 * x\n"
    )
    where = where.replace("\0", "")  # no file has it in its name
    names: dict[str, Any] = {"np": np, "DEFAULT": default, "FAIL": fail}
    exec(compile(source, where, "exec"), names)
    fn = names["scale"]
    fn.__doc__ = doc
    made = co.custom_op(f"pages::scale_{next(NUMBERS)}", fn, mutates_args=())
    made.register_fake(lambda x, how=default: co.fake_like(x))
    return made


def result(text: str) -> Any:
    op = operator(where=text, default=text)
    op.waive("test_threads", reason=f"a{text}b")
    op.register_sample_inputs(lambda: [(np.ones(2), text)])
    return co.opcheck(op, raise_exception=False, test_utils=("test_schema", "test_jvp"))


def failing(text: str) -> Any:
    op = operator(fail=f"no: {text}")
    checks = ("test_schema", "test_faketensor")
    return co.opcheck(op, (np.ones(2),), raise_exception=False, test_utils=checks)


def compiled(text: str) -> Any:
    def fn(x: Any, how: str) -> Any:
        return x + len(how)

    fn.__name__ = f"f{text}".replace("\0", "")
    made = co.compile(fn)
    made(np.ones(2), text)
    return made.explain()


CASES: dict[str, Callable[[str], Any]] = {
    "docstring": lambda text: operator(doc=f"Do {text}\n\n{text}."),
    "place": lambda text: operator(where=f"/a{text}/b{text}.py"),
    "default": lambda text: operator(default=text),
    "waiver": lambda text: operator().waive("test_jvp", reason=f"a{text}b"),
    "schema": lambda text: operator(default=text).schema,
    "explanation": lambda text: operator(where=text).explain(np.ones(3), text),
    "opcheck": result,
    "failing opcheck": failing,
    "compiled": compiled,
}


@pytest.mark.parametrize("case", CASES)
def test_texts_of_users_are_escaped(case: str) -> None:
    """Elements are the same for all texts, and the texts can be read."""
    plain, nasty = shown(CASES[case]("plain")), shown(CASES[case](NASTY))
    names = [re.sub(r"^</?|\W.*", "", part) for part in nasty.structure]
    assert {"script", "img", "b", "a", "iframe"}.isdisjoint(names)
    assert [p for p in nasty.structure if p.startswith("<details")] == [
        p for p in plain.structure if p.startswith("<details")
    ]
    assert "alert(1)" in nasty.text
    assert "\u202e" not in nasty.text


class Loud:
    """An object that cannot be shown."""

    def __repr__(self) -> str:
        raise ValueError("no repr")


def test_any_value_can_be_shown() -> None:
    """A repr that raises, or has a megabyte, does not break or fill a page."""

    def fn(x: Any, other: Any) -> Any:
        return x + 1.0

    for value in (Loud(), "x" * 1_000_000, "\U0001f600" * 1_000_000):
        made = co.compile(fn)
        made(np.ones(2), value)
        assert len(made.explain()._repr_html_()) < 50_000
    why = operator().explain(np.ones(2), "y" * 1_000_000)
    assert len(why._repr_html_()) < 50_000
    op = operator(doc="z" * 1_000_000, default="w" * 1_000_000)
    assert len(op._repr_html_()) < 200_000
    found = co.opcheck(op, (np.ones(2),), test_utils="test_schema")
    assert len(found._repr_html_()) < 50_000


def test_an_operator_shows_its_table() -> None:
    """Rules with file and line, own ones apart from derived ones; tags; the docstring."""
    op = operator(doc="Twice.\n\nMore about it.", where="/home/me/ops.py")
    op.register_autograd(lambda ctx, g: (2 * g, None))
    text = shown(op).text
    own, derived = text.index("Rules"), text.index("Derived rules")
    assert op.schema.show(op.qualname) in text
    assert text.index("/home/me/ops.py:1") < own
    assert own < text.index("autograd") < derived < text.index("jvp")
    assert f"{__file__}:" in text[own:derived]
    assert "derived by transposing the backward formula" in text[derived:]
    assert "More about it." in text
    assert op.source.strip() in text
    assert repr(op) == f"<Operator {op.schema.show(op.qualname)}>"


def test_tags_and_disabled_rules_are_marked() -> None:
    """Badges say what an operator promises and which kernel does not run."""
    page = shown(co.ops.np.sin.default)
    assert "pointwise" in page.text.partition("Rules")[0]
    hints = [v for v in page.attributes if v.startswith("Each output element depends")]
    assert hints[0].endswith("if the first call of a kernel shows otherwise.")
    mine = operator().register_kernel("cpu", lambda x, how="x": 2 * x)
    with mine.set_kernel_enabled("cpu", False):
        assert "kernel cpu disabled" in shown(mine).text


def test_a_packet_shows_its_overloads() -> None:
    """The object that a namespace gives shows each operator of its name."""
    assert shown(co.ops.np.sin).text == shown(co.ops.np.sin.default).text


def test_a_schema_shows_its_parameters() -> None:
    """The line is that of `str`; the table has types, defaults and what is written."""
    schema = co.Schema.parse(
        "(Array(a!) x, int y=1, *, float? z=None) -> (Array a, Array b)"
    )
    text = shown(schema).text
    assert str(schema) in text
    assert "xArray(a!)written" in text.replace(" ", "")
    assert "zfloat?Noneby name only" in text


def test_a_fake_array_shows_what_it_has() -> None:
    """Shape, dtype, strides, order, size and device."""
    x = co.FakeArray((3, 4), np.float32, order=(1, 0))
    text = shown(x).text
    for part in (
        "f32[3, 4]",
        "(3, 4)",
        "float32",
        "(4, 12)",
        "Fortran",
        "48 bytes",
        "cpu",
    ):
        assert part in text


def test_symbolic_fake_arrays_are_shown() -> None:
    """Lengths that are names stay names."""
    graph = co.make_fx(np.sin, tracing_mode="symbolic")(np.ones((3, 4)))
    x = next(iter(graph.graph.nodes)).meta["val"]
    assert f"({x.shape[0]}, {x.shape[1]})" in shown(x).text


def test_an_opcheck_result_shows_checks_and_inputs() -> None:
    """Each check with what it found, the faults in full, and the calls."""
    op = operator()
    op.register_autograd(lambda ctx, g: (3 * g, None))
    checks = ("test_schema", "test_jvp", "test_gradients")
    found = co.opcheck(op, (np.ones(3),), raise_exception=False, test_utils=checks)
    text = shown(found).text
    assert [name for name in found if name not in text] == []
    assert found.inputs == [f"{op.qualname}(f64[3])"]
    assert found.inputs[0] in text
    assert found.failed == ["test_gradients"]
    assert str(found["test_gradients"]) in text
    assert "1 failed" in text


def test_an_explanation_shows_what_runs() -> None:
    """The rule that is taken, and each that is not."""
    why = operator().explain(np.ones(3))
    text = shown(why).text
    assert why.call in text
    assert why.taken is not None
    assert why.taken.why in text
    assert [other.name for other in why.others if other.name not in text] == []


def test_a_report_of_a_compiled_function() -> None:
    """What was compiled, and why again."""
    f = co.compile(lambda x: np.sin(x) + 1.0)
    f(np.ones(2))
    f(np.ones((2, 2)))
    text = shown(f.explain()).text
    assert "compiled 2 times" in text
    assert "compiled again: x is f64[2, 2], was f64[2]" in text


def data_of(page: str) -> Any:
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def framed(value: Any) -> str:
    """The page in the frame that a notebook shows."""
    page = value._repr_html_()
    return html.unescape(page.partition('srcdoc="')[2].rpartition('"></iframe>')[0])


def test_a_profile_shows_branches_calls_and_rows() -> None:
    """The numbers are those of the profile, the calls below those that make them."""
    op = operator()
    op.register_autograd(lambda ctx, g: (2 * g, None))
    with co.profile() as p:
        co.grad(lambda x: np.sum(op(x)))(np.ones(3))
    data = data_of(framed(p))
    texts = data["texts"]
    rows = {(texts[r[0]], texts[r[1]]): r[2:] for r in data["rows"]}
    assert {key: row[0] for key, row in rows.items()} == {
        (r.operator, r.rule): r.count for r in p.rows
    }
    assert [row[3] for row in rows.values()] == [r.self_ns for r in p.rows]
    assert len(data["events"]) == sum(r.count for r in p.rows)
    assert data["hidden"] == 0
    for begin, spent, number, *_ in data["events"]:
        above = data["branches"][number][0]
        assert above < number
        outer = [e for e in data["events"] if e[2] == above]
        assert above < 0 or any(
            e[0] <= begin and begin + spent <= e[0] + e[1] for e in outer
        )


def test_names_of_threads_are_data() -> None:
    """A thread may have any name."""
    op = operator()
    with co.profile(threads=True) as p:
        thread = threading.Thread(target=op, args=(np.ones(2),), name=NASTY)
        thread.start()
        thread.join()
    page = framed(p)
    assert page.count("<script") == 2
    assert data_of(page)["threads"][0].startswith(visible(NASTY, 100)[:20])


def test_a_notebook_keeps_so_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long profile does not fill a notebook; the page says how many are left out."""
    from customop.profiling import profile as page  # noqa: PLC0415  # it is loaded late

    monkeypatch.setattr(page, "_MOST_IN_NOTEBOOK", 3)
    with co.profile() as p:
        for _ in range(5):
            co.ops.np.sin(np.ones(2))
    data = data_of(framed(p))
    assert (len(data["events"]), data["hidden"]) == (3, 2)
    assert data["rows"][0][2] == 5


def test_the_import_loads_no_page() -> None:
    """Pages cost nothing until one is asked for."""
    code = (
        "import sys, customop as co\n"
        "assert not [m for m in sys.modules if m.startswith('customop.pages')"
        " or m.endswith('.page')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
