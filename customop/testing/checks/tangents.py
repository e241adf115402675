"""The check of an operator's jvp rule."""

from __future__ import annotations

import numpy as np

from customop.core.kinds import AUTOGRAD, JVP
from customop.core.samples import Sample
from customop.testing.checks.session import Session
from customop.testing.checks.smooth import (
    STEP,
    as_double,
    as_single,
    at_point,
    check_there,
    fixed_random,
    function_of,
    is_smooth_over,
    is_wide,
    parameter_of,
    problem_of,
    smooth_problem,
)
from customop.testing.fault import Fault
from customop.testing.inputs.memory import map_values
from customop.testing.inputs.trials import call_of
from customop.testing.jacobians import Problem, adjoint, difference, pushforward
from customop.testing.quiet import strict_numbers
from customop.testing.vectors import Vector
from customop.testing.watch import about_to_run
from customop.transforms.jvp import jvp

__all__ = ["check_jvp"]


def check_jvp(session: Session, sample: Sample) -> str:
    """The tangent is that of the values, by differences and by the gradient."""
    op = session.op
    if sample.note and op.find_rule(JVP) is not None:
        return check_there(session, sample, _check_pushforward)
    has_formula = op.find_rule(AUTOGRAD) is not None
    if op.find_rule(JVP) is None:
        if not has_formula:
            return "no jvp rule, and no autograd rule to transpose"
        return "no jvp rule: it follows from the autograd rule, see test_gradients"
    problem = smooth_problem(session, sample)
    if isinstance(problem, str):
        return problem
    direction = fixed_random(problem.inputs.size)
    tangent = _check_tangent(session, problem, direction)
    if len(problem.inputs.arrays) > 1:
        values = map_values(as_double, session.values(sample))
        point = at_point(session, values, problem, problem.inputs.arrays)
        for name, block in zip(
            problem.inputs.labels, problem.inputs.blocks, strict=True
        ):
            alone = problem_of(session, point, [name])
            _check_tangent(session, alone, direction[block])
    if has_formula:
        _check_transposed(problem, direction, tangent)
    _check_short_tangents(session, sample)
    return ""


def _check_short_tangents(session: Session, sample: Sample) -> None:
    """Tangents of short results are as short: the engine refuses others."""
    values = map_values(as_single, session.values(sample))
    about_to_run(lambda: call_of(session.op.schema, values))
    try:
        with strict_numbers():
            call, chosen = function_of(session, values)
            primals = tuple(chosen.values())
            out = call(*primals)
    except Exception:  # noqa: BLE001  # a dtype that the kernel refuses
        return
    if not any(map(is_wide, out)):
        jvp(call, primals, tuple(map(np.ones_like, primals)))


def _check_pushforward(session: Session, problem: Problem, step: float) -> None:
    if is_smooth_over(problem, step):
        _check_tangent(session, problem, fixed_random(problem.inputs.size), step)


def _check_tangent(
    session: Session, problem: Problem, direction: Vector, step: float = STEP
) -> Vector:
    """Raise unless the tangent along a direction is the difference; the tangent."""
    found = pushforward(problem)(direction)
    expected = difference(problem, step)(direction)
    for i, block in enumerate(problem.outputs.blocks):
        a, b = found[block], expected[block]
        scale = max(1.0, float(np.abs(b).max(initial=0.0)))
        if not np.all(np.abs(a - b) <= 1e-5 * scale + 1e-4 * np.abs(b)):
            names = problem.inputs.labels
            raise Fault(
                f"has a wrong tangent of output {i} along {', '.join(names)}",
                f"{a.tolist()}",
                f"by differences {b.tolist()}",
                do=f"correct the rule of @{session.op.name}.register_jvp",
                parameter=parameter_of(names[0]),
            )
    return found


def _check_transposed(problem: Problem, direction: Vector, tangent: Vector) -> None:
    """A cotangent of a tangent is a gradient along the direction."""
    cotangent = fixed_random(problem.outputs.size)
    forward = float(cotangent @ tangent)
    backward = float(adjoint(problem)[0](cotangent) @ direction)
    if not np.isclose(forward, backward, rtol=1e-6, atol=1e-8):
        raise Fault(
            "has a jvp rule that is not the transpose of its autograd formula",
            f"w . jvp(t) is {forward:.6g}, vjp(w) . t is {backward:.6g}",
            do="let both be the derivative of the kernel",
        )
