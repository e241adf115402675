"""How pytest loads the plugin, and other plugins next to it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib

import pytest

from customop.pytest import entry
from tests.pytest._project import ROOT, SUITE, Project, lines

pytest_plugins = ("pytester",)


def test_nothing_is_imported_unless_asked_for(pytester: pytest.Pytester) -> None:
    """The entry point works, and does not import NumPy until a test needs it."""
    path = ROOT / "customop" / "pytest" / "entry.py"
    (pytester.path / "_customop_pytest.py").write_bytes(path.read_bytes())
    pytester.makeconftest("""
    from _customop_pytest import plugin
    pytest_plugins = [plugin.__name__]
    """)
    light = """
    import sys
    def test_it(pytestconfig):
        assert pytestconfig.getoption("opcheck") == []
        heavy = {"customop", "numpy", "hypothesis"}
        assert heavy & {name.partition(".")[0] for name in sys.modules} == set()
    """
    with_kinds = """
    def test_it(all_devices):
        assert all_devices.kind == "cpu"
    """
    pytester.makepyfile(test_light=light, test_kinds=with_kinds)
    paths = os.pathsep.join([str(ROOT), str(pytester.path)])
    settings = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": paths}
    for name in ("test_light.py", "test_kinds.py"):
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "--strict-markers", name],
            cwd=pytester.path,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("order", [1, -1], ids=["option first", "entry point first"])
def test_the_plugin_may_come_twice(project: Project, order: int) -> None:
    """As an entry point and with -p the file is loaded twice, and works once."""
    project.tests(SUITE + "\ndef test_kind(all_devices): pass\n")
    names = ["customop.pytest.plugin", entry.plugin.__name__][::order]
    result = project.pytester.runpytest_inprocess(
        *(part for name in names for part in ("-p", name)), "--opcheck", "mylib::far"
    )
    result.assert_outcomes(passed=5, failed=1)


def test_the_wheel_has_the_entry_point() -> None:
    """The wheel has the file of the entry point outside of the package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (point,) = settings["project"]["entry-points"]["pytest11"].values()
    module, _, name = point.partition(":")
    wheel = settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"]["customop/pytest/entry.py"] == f"{module}.py"
    assert name in entry.__all__


@pytest.mark.parametrize(
    "before", [{}, {"opcheck": "that of the outer run"}], ids=["none", "an outer run"]
)
def test_markers_are_as_before_afterwards(
    project: Project, monkeypatch: pytest.MonkeyPatch, before: dict[str, str]
) -> None:
    """A run inside a run restores the markers of the outer run."""
    monkeypatch.delitem(vars(pytest.mark), "opcheck", raising=False)
    for name, marker in before.items():
        monkeypatch.setitem(vars(pytest.mark), name, marker)
    project.tests("def test_it(): pass")
    project.run()
    found = {n: m for n, m in vars(pytest.mark).items() if n == "opcheck"}
    assert found == before


def test_without_capture(project: Project) -> None:
    """Reports are printed without capture too."""
    project.tests(SUITE)
    for args in (("-s",), ("-p", "no:capture")):
        result = project.run("--opcheck", "mylib::far", *args)
        assert result.parseoutcomes() == {"passed": 4, "failed": 1}


@pytest.mark.exhaustive
def test_with_workers(project: Project) -> None:
    """pytest-xdist does not change reports and accepted failures."""
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    project.tests(SUITE)
    result = project.run("--opcheck", "mylib", "-p", "xdist", "-n", "2")
    result.assert_outcomes(passed=4, failed=2)
    assert lines(result, "3 calls of 3 operators: ")
    assert (
        project.run(
            "--opcheck", "mylib", "-p", "xdist", "-n", "2", "--opcheck-accept"
        ).ret
        == 0
    )
    assert [*project.entries()] == ["mylib::far", "mylib::steep"]
    result = project.run("--opcheck", "mylob", "-p", "xdist", "-n", "2")
    error = "error: --opcheck mylob: there is no such operator (did you mean 'mylib'?)"
    assert error in result.outlines
