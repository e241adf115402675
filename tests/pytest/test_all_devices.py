"""The fixture ``all_devices``."""

from __future__ import annotations

import pytest

from tests.pytest._project import Project

pytest_plugins = ("pytester",)


KINDS = """
class Boxed:
    def __init__(self, array):
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype

co.register_array_type("boxed", Boxed, from_numpy=Boxed, to_numpy=lambda b: b.array)

def test_it(all_devices):
    x = all_devices.asarray([[1, 2], [3, 4]])
    assert type(x).__name__ == {"cpu": "ndarray", "boxed": "Boxed"}[all_devices.kind]
    np.testing.assert_array_equal(all_devices.to_numpy(x), [[1, 2], [3, 4]])
    assert all_devices.asarray(np.ones(2), np.float32).dtype == np.float32
"""


def test_all_devices_runs_a_test_for_each_kind(project: Project) -> None:
    """The fixture runs a test once for each kind, with its name as id."""
    project.tests(KINDS)
    result = project.run("-v")
    result.stdout.fnmatch_lines(
        [
            "test_it.py::test_it[[]cpu[]] PASSED*",
            "test_it.py::test_it[[]boxed[]] PASSED*",
        ]
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("cpu", {"passed": 1}),
        ("boxed, cpu", {"passed": 2}),
        ("cpu,cpu", {"passed": 1}),
    ],
    ids=["one", "two", "one twice"],
)
def test_kinds_may_be_chosen(
    project: Project, given: str, expected: dict[str, int]
) -> None:
    """--opcheck-devices chooses the kinds."""
    project.tests(KINDS)
    project.run("--opcheck-devices", given).assert_outcomes(**expected)


def test_a_kind_that_cannot_be_made_is_skipped(project: Project) -> None:
    """A kind that cannot be made here is skipped with a reason."""
    project.tests("""
    co.register_array_type("distant", "nowhere.Array")

    def test_it(all_devices):
        assert all_devices.kind == "cpu"
    """)
    result = project.run("--opcheck-devices", "distant,cpu", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    message = "arrays of the kind 'distant' cannot be made here"
    result.stdout.fnmatch_lines([f"SKIPPED [[]1[]] *: {message}"])


def test_an_unknown_kind(project: Project) -> None:
    """An unknown kind is an error with a near name."""
    project.tests("def test_it(all_devices): pass")
    result = project.run("--opcheck-devices", "cpuu")
    assert result.ret != 0
    result.stdout.fnmatch_lines(
        [
            (
                "*--opcheck-devices: there is no kind of array 'cpuu' (did you mean 'cpu'?);"
                " known: 'cpu', *"
            ),
            '*do: register_array_type("cpuu", cls, from_numpy=...) in conftest.py',
        ]
    )


def test_a_fixture_of_the_user(project: Project) -> None:
    """A fixture of that name in a project goes before that of the plugin."""
    project.tests("""
    @pytest.fixture
    def all_devices():
        return 1

    def test_it(all_devices, request):
        assert (all_devices, request.node.name) == (1, "test_it")
    """)
    project.run().assert_outcomes(passed=1)
