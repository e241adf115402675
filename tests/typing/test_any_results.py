"""Public functions and methods with results that checkers know nothing about, and why."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, get_overloads

import customop as co
import customop.testing

# Any alone, or a function whose result is Any.
_ANY = re.compile(r"(?:typing\.)?Any|(?:Callable|Transformed)\[.*, Any\]")

_VALUE = "a value of the program: an array, a number, a tree of them or a tracer"
_RESULT = "what an operator returns, which is known by name only when it runs"
_GRAPH = "a graph keeps no types of its function, and a file has none"
_RULE = "a kernel or rule takes what its kind says, which is a value"
_OWN = "the user's code decides what it keeps there"
_TREE = "a tree with other leaves, which only the plugin can type"
_POSITION = "arguments beyond the overloads, which only the plugin can type"
REASONS: dict[str, str] = {
    "FakeArray.box_like": _VALUE,
    "Tracer.box_like": _VALUE,
    "Interpreter.again": _VALUE,
    "Interpreter.constant": _VALUE,
    "Interpreter.lower": _VALUE,
    "Interpreter.take_out": _VALUE,
    "Interpreter.wrap": _VALUE,
    "as_kind": _VALUE,
    "getitem": _VALUE,
    "walk_graph": _VALUE,
    "walk_graph_back": _VALUE,
    "FakeMode.handle": _RESULT,
    "FakeMode.process": _RESULT,
    "autocast.handle": _RESULT,
    "autocast.process": _RESULT,
    "Interpreter.process": _RESULT,
    "OperatorPacket.__call__": _RESULT,
    "Observer.around": _RESULT,
    "profile.around": _RESULT,
    "Formula.forward": _RESULT,
    "GraphModule.__call__": _GRAPH,
    "GraphModule.consume": _GRAPH,
    "GraphModule.run": _GRAPH,
    "Operator.compile": _RULE,
    "Operator.rule": _RULE,
    "RuleKind.accept": _RULE,
    "broadcast_rule": _RULE,
    "get_kernel": _RULE,
    "Node.fact": _OWN,
    "Observer.enter": _OWN,
    "eval_shape": _TREE,
    "hessian": _TREE,
    "jacfwd": _TREE,
    "jacrev": _TREE,
    "grad": _POSITION,
}


def _functions() -> Iterator[tuple[str, Any]]:
    for module in (co, customop.testing):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isfunction(found):
                yield name, found
            elif inspect.isclass(found) and found.__module__.startswith("customop"):
                for method, member in vars(found).items():
                    is_public = not method.startswith("_") or method == "__call__"
                    if inspect.isfunction(member) and is_public:
                        yield f"{name}.{method}", member


def _gives_any(function: Any) -> bool:
    for overload in get_overloads(function) or [function]:
        result = overload.__annotations__.get("return", "Any")
        if _ANY.fullmatch(result if isinstance(result, str) else repr(result)):
            return True
    return False


def test_each_result_without_a_type_has_a_reason() -> None:
    """No public function returns Any, in one of its overloads, but for those listed."""
    found = {name for name, function in _functions() if _gives_any(function)}
    assert found == set(REASONS)
