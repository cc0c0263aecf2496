"""Calls that follow from sizes alone: they come first, and run only where sizes are new."""

from __future__ import annotations

import numpy as np

import tinycomp
from tinycomp.ir.types import TensorType
from tinycomp.runtime.native.program import Program
from tinycomp.symbolic import evaluate, symbol
from tinycomp.targets.c.codegen.emitter import Buffer, Emitter

FLOAT = "float32"


def masked() -> tinycomp.Graph:
    """Score rows of x, with a causal mask that is made of positions, in two steps."""
    g = tinycomp.Graph("masked", opsets={"": 21})
    x = g.add_input("x", TensorType(FLOAT, ("n", 4)))
    zero, one = (g.add_const(np.array(v, np.int64), name) for v, name in ((0, "zero"), (1, "one")))
    axes = g.add_const(np.array([1], np.int64), "axes")
    n = g.add("Squeeze", [g.add("Shape", [x], {"start": 0, "end": 1}).output]).output
    positions = g.add("Range", [zero, n, one], sources=["positions"]).output
    rows = g.add("Unsqueeze", [positions, axes]).output
    seen = g.add("LessOrEqual", [positions, rows], sources=["seen"]).output
    mask = g.add("Cast", [seen], {"to": 1}, sources=["mask"]).output
    scores = g.add("MatMul", [x, g.add("Transpose", [x], {"perm": [1, 0]}).output], sources=["scores"]).output
    g.set_outputs([g.add("Mul", [scores, mask], sources=["masked"]).output, mask], ["y", "m"])
    return g


def program_of(module: tinycomp.Module) -> Program:
    (step,) = module._parts.plan.steps
    return step.run.program


def test_what_follows_from_sizes_comes_first():
    program = program_of(tinycomp.compile(masked(), "c", strict=True))
    assert {name for call in program.instructions[: program.setup] for name in call.source} >= {"positions"}
    assert not {"scores", "masked"} & {s for call in program.instructions[: program.setup] for s in call.source}
    assert program.setup >= 1
    assert "the calls above run only for new sizes" in program.to_text()


def test_known_sizes_need_no_setup():
    assert program_of(tinycomp.compile(masked(), "c", shapes={"x": (3, 4)})).setup == 0


def test_runs_with_the_same_and_with_other_sizes():
    module = tinycomp.compile(masked(), "c", strict=True)
    rng = np.random.default_rng(0)
    for n in (3, 3, 7, 7, 7, 0, 1, 3, 3, 40, 7):
        x = rng.standard_normal((n, 4)).astype(np.float32)
        y, m = module(x)
        np.testing.assert_array_equal(m, np.tril(np.ones((n, n), np.float32)))
        np.testing.assert_allclose(y, np.tril(x @ x.T), rtol=1e-5, atol=1e-5)


def test_a_place_has_room_for_whatever_is_found():
    emit = Emitter(tinycomp.Graph("g", opsets={"": 21}), most={"found": 10 * symbol("n")})
    found, n = symbol("found"), symbol("n")
    for size, least in [(4 * found, 40), (10 * n - found, 10), (found + n, 11), (n * 8, 8), (80 // (found + 1), 80)]:
        room = emit._room(Buffer(size))
        assert evaluate(room, {"n": 1}) == least
