"""Folders import from lower rows only, and NumPy's operators use public names."""

from __future__ import annotations

import ast
import gc
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import customop as co
from tests.cases import cases

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "customop"


@cache
def trees(folder: str = "") -> dict[str, ast.Module]:
    """Return the parsed modules of a folder, by their paths; all of them take a second.

    The collector of garbage, which would visit all nodes again and again, takes thrice that.
    """
    gc.disable()
    found = {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text("utf-8"))
        for path in (PACKAGE / folder).rglob("*.py")
    }
    gc.freeze()
    gc.enable()
    return found


@pytest.mark.exhaustive
def test_a_class_name_is_used_once() -> None:
    """No two classes of the package share a name; leading underscores do not count."""
    seen: dict[str, list[str]] = {}
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                seen.setdefault(node.name.lstrip("_"), []).append(path)
    assert {name: paths for name, paths in seen.items() if len(paths) > 1} == {}


@pytest.mark.exhaustive
def test_contracts_are_kept() -> None:
    """No folder imports from its own row or a higher one, and there is no cycle."""
    linter = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert linter is not None, "import-linter is in the extra 'dev'"
    run = subprocess.run(
        [linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout


def imports(tree: ast.AST) -> dict[str, set[str]]:
    """Return module -> names that a file imports from it, for modules of the package."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            pairs = [(alias.name, "*") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            pairs = [(node.module or "", alias.name) for alias in node.names]
        else:
            continue
        for module, name in pairs:
            if module.partition(".")[0] == "customop":
                found.setdefault(module, set()).add(name)
    return found


# ---- lazy imports: a module names another one as text, and imports it when needed ----

# Module -> module in a higher folder that it names as text -> why it may.
UPWARDS = {
    "arrays.kinds": {
        "interop.xarray.labels": "a table of classes of other libraries, which bridges handle"
    },
    "arrays.math_functions": {
        "scipy.special": "functions of Python that are operators of SciPy's ufuncs here"
    },
    "arrays.refusals": {
        "scipy": "a table of packages whose import defines the operators of a namespace"
    },
    "arrays.scipy_functions": {
        f"scipy.{name}": "functions of SciPy that its own ones give way to, in plain code"
        for name in ("fft", "linalg", "signal", "stats")
    },
    "compiling.backends": {
        "interop.jax.jax_backend": "a table of back ends by name, each imported at its first use"
    },
    "config": {
        "transforms.modes": "a setting that opens the mode which looks for nans"
    },
}

# Circles inside a folder that only a lazy import closes -> why they may.
LAZY_CIRCLES = {
    (
        "compiling.backends",
        "compiling.call_code",
        "compiling.cupy_backend",
        "compiling.entries",
        "compiling.kernel_code",
        "compiling.level_graphs",
        "compiling.native_backend.native_code",
        "compiling.numpy_backend.build",
        "compiling.numpy_backend.simplify",
        "compiling.report",
    ): "back ends are imported by name, and reports when someone asks",
    (
        "core.explain",
        "core.operator",
        "core.recipes",
        "core.registry",
    ): "`Operator.explain` and the page"
    " of an operator need the registry, which is above operators; what is sent of one is"
    " made where cloudpickle is at work",
    ("graph.load", "graph.module"): "a graph is copied and pickled by its file",
    (
        "interop.jax.jax_export",
        "interop.jax.jax_kind",
        "interop.jax.rule_programs",
    ): "the kind of array exports operators when one is called under jax.jit, and rules run"
    " on such arrays",
    ("shapes.sizes", "shapes.symbolic", "shapes.symbolic_operations"): "most programs"
    " have no symbolic sizes",
    (
        "transforms.functions.checkpoint",
        "transforms.functions.custom",
        "transforms.functions.function_calls",
        "transforms.functions.function_operators",
        "transforms.functions.given",
    ): "only captured programs need operators of functions",
}


def module_name(path: Path) -> str:
    """Return the name of a module without the package: ``core.table``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts).removesuffix("__init__").rstrip(".")


MODULES = {
    module_name(path): path
    for path in PACKAGE.rglob("*.py")
    if path != PACKAGE / "__init__.py"
}


def own_imports(tree: ast.AST) -> set[str]:
    """Return the modules of the package that a file imports when it is imported."""
    for_checkers = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node not in for_checkers:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
            found.add(node.module or "")
    own = {name.removeprefix("customop.") for name in found if "customop." in name}
    return own & MODULES.keys()


def lazy_imports(tree: ast.AST) -> set[str]:
    """Return the modules of the package that a file names as text."""
    texts = [
        node.value.partition(":")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    own = {text.removeprefix("customop.") for text in texts if "customop." in text}
    return own & MODULES.keys()


def rows() -> dict[str, int]:
    """Return the row of each folder, as pyproject.toml lists them from the highest."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contracts = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c["type"] == "layers")
    return {
        folder.strip(): -row
        for row, layer in enumerate(layers)
        for folder in layer.split("|")
    }


def module_trees() -> dict[str, ast.Module]:
    """Return the syntax trees of all modules, by their names."""
    return {
        name: trees()[path.relative_to(PACKAGE).as_posix()]
        for name, path in MODULES.items()
    }


@cache
def all_lazy_imports() -> dict[str, set[str]]:
    """Return, for each module, the others that it names as text."""
    return {name: lazy_imports(tree) - {name} for name, tree in module_trees().items()}


@pytest.mark.exhaustive
def test_lazy_imports_go_downwards() -> None:
    """import-linter does not see these: each upwards is in the table, with a reason."""
    row_of = rows()
    row = {name: row_of[name.partition(".")[0]] for name in MODULES}
    upwards = {
        name: {other for other in others if row[other] > row[name]}
        for name, others in all_lazy_imports().items()
    }
    found = {name: others for name, others in upwards.items() if others}
    assert found == {name: set(table) for name, table in UPWARDS.items()}


@pytest.mark.exhaustive
def test_lazy_imports_close_known_circles_only() -> None:
    """Modules of one folder that reach each other are in one circle of the table."""
    trees_of = module_trees()
    ahead = {
        name: own_imports(trees_of[name]) | others
        for name, others in all_lazy_imports().items()
    }
    packages = {name for name in ahead if MODULES[name].name == "__init__.py"}
    reached = {
        name: {o for o in others if o.partition(".")[0] == name.partition(".")[0]}
        - packages
        for name, others in ahead.items()
    }
    for middle, further in reached.items():  # Warshall's closure
        for others in reached.values():
            if middle in others:
                others.update(further)
    circles = {
        tuple(sorted(other for other in others if name in reached[other]))
        for name, others in reached.items()
        if name in others and name not in packages
    }
    known = [{*circle} for circle in LAZY_CIRCLES]
    assert [c for c in circles if not any(k.issuperset(c) for k in known)] == []


# ---- NumPy's operators use public names ----


@pytest.mark.exhaustive
def test_law_9_numpy_operators_are_made_of_public_names() -> None:
    """A NumPy module imports only from `customop.__all__` and its own folder.

    import-linter cannot see this: `from customop import jvp` is the function, yet
    there is a module of that name.
    """
    with cases() as case:
        for path, tree in trees("numpy").items():
            with case(path):
                found = imports(tree)
                assert found.pop("customop", set()) <= set(co.__all__)
                others = [n for n in found if not n.startswith("customop.numpy")]
                assert others == []


def test_law_9_numpy_operators_touch_nothing_private() -> None:
    """A NumPy module reads no attribute of an operator that starts with an underscore."""
    touched = [
        f"{path}:{node.lineno}: {ast.unparse(node)}"
        for path, tree in trees("numpy").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        # Private names of NumPy, such as np._NoValue, are allowed.
        and ast.unparse(node.value) != "np"
    ]
    assert touched == []


# Attributes of other packages. Python and NumPy document theirs; mypy and pytest have
# no public name for these two.
FOREIGN = {"_asdict", "_exit", "_fields", "_getframe", "_replace", "_NoValue"} | {
    "_watchers",
    "_arg2fixturedefs",
}


def untyped_operators(tree: ast.AST) -> list[str]:
    """Return parameters and attributes that are annotated `op: Any`."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            name, annotation = node.arg, node.annotation
        elif isinstance(node, ast.AnnAssign):
            name, annotation = ast.unparse(node.target), node.annotation
        else:
            continue
        if name.rpartition(".")[2] in ("op", "_op") and annotation is not None:
            found += [f"line {node.lineno}"] if ast.unparse(annotation) == "Any" else []
    return found


def own_names(tree: ast.AST) -> set[str]:
    """Return names that a module defines: functions, classes, attributes, slots."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found |= (
                {node.attr} if ast.unparse(node.value) in ("self", "cls") else set()
            )
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__":
            found |= set(ast.literal_eval(node.value))
    return found


def foreign_private(tree: ast.AST) -> list[str]:
    """Return the private names of other modules that a file uses."""
    known = own_names(tree) | FOREIGN
    imported = [
        f"line {node.lineno}: {alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]
    return imported + [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in known
        and ast.unparse(node.value) not in ("self", "cls")
    ]


def breaking(check: Callable[[ast.AST], list[str]]) -> dict[str, list[str]]:
    """Return the files of the package in which a check finds something."""
    found = {name: check(tree) for name, tree in trees().items()}
    return {name: lines for name, lines in found.items() if lines}


@pytest.mark.exhaustive
def test_operators_are_typed() -> None:
    """No module says `op: Any`; it says RuleTable or Operator."""
    found = breaking(untyped_operators)
    assert found == {}


@pytest.mark.exhaustive
def test_private_attributes_stay_in_their_module() -> None:
    """No module reads a private attribute that another one defines.

    Torch has no public names for what a bridge needs. One file lists those that it uses.
    Python has none for locks that are free in a forked child, as `threading` frees its own.
    """
    found = breaking(foreign_private)
    in_forks = found.pop("forks.py", [])
    assert [line.rpartition(".")[2] for line in in_forks] == ["_at_fork_reinit"]
    # NumPy makes its loops for compilers under private names, which carry a version.
    loops = found.pop("compiling/native_backend/ufunc_loops.py", [])
    assert {line.rpartition(".")[2] for line in loops} <= {
        "_get_strided_loop",
        "_resolve_dtypes_and_context",
    }
    # The ufunc of `np.clip` has no public name.
    clip = found.pop("compiling/native_backend/composed_rows.py", [])
    assert {line.rpartition(".")[2] for line in clip} <= {"_core"}
    # The table of its C interface, and the settings that `errstate` changes.
    layout = found.pop("compiling/native_backend/object_layout.py", [])
    assert {line.rpartition(".")[2] for line in layout} <= {
        "_ARRAY_API",
        "_extobj_contextvar",
    }
    c_loops = found.pop("library/c_loops.py", [])
    assert {line.rpartition(".")[2] for line in c_loops} <= {"_UFUNC_API"}
    # numba cannot be asked to launch its threads again in a forked child.
    limits = found.pop("testing/processes/limits.py", [])
    assert {line.rpartition(".")[2] for line in limits} <= {"_is_initialized"}
    assert found.keys() <= {"interop/torch/framework.py"}
