"""Plans and lowering: slots are freed, failures name their step, bodies become plans of their own."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from onnx import helper, parser

import tinycomp
from tests.targets.c.harness import make_model
from tinycomp.errors import ExecutionError
from tinycomp.runtime.binding import direct_call
from tinycomp.runtime.plan import ABSENT, DISCARD, FIRST_FREE, Plan, Step
from tinycomp.runtime.regions import NativeRegion
from tinycomp.runtime.spec import TensorSpec

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
SPEC = (TensorSpec("x", "float32", (3, 4)),)


def plan_of(*runs, frees=()):
    """A chain of steps, each from one slot to the next."""
    steps = tuple(
        Step(f"s{i}", "Op", "numpy", run, (FIRST_FREE + i,), (FIRST_FREE + i + 1,), (FIRST_FREE + i,) if frees else ())
        for i, run in enumerate(runs)
    )
    slots = (None,) * (FIRST_FREE + len(runs) + 1)
    return Plan(SPEC, SPEC, steps, slots, (FIRST_FREE,), (FIRST_FREE + len(runs),))


def test_values_are_let_go_after_their_last_use():
    alive = []

    def make(operands):
        result = operands[0] + 1
        alive.append(weakref.ref(result))
        return [result]

    def look(operands):
        return [np.array([r() is not None for r in alive])]

    plan = plan_of(make, make, make, look, frees=True)
    (result,) = plan.run([X])
    assert result.tolist() == [False, False, True]


def test_a_failing_step_is_named_with_its_operands():
    plan = plan_of(lambda operands: [operands[0].reshape(7)])
    with pytest.raises(ExecutionError) as error:
        plan.run([X])
    text = str(error.value)
    assert text.startswith("node s0 (Op, numpy tier): ValueError: cannot reshape array of size 12 into shape (7,)")
    assert "found operands (float32[3, 4])" in text


def test_interrupts_pass_through():
    def interrupt(operands):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan_of(interrupt).run([X])


def test_special_slots_are_distinct():
    assert len({ABSENT, DISCARD, FIRST_FREE}) == 3


def test_skipped_results_and_absent_operands():
    nodes = [
        helper.make_node("Dropout", ["x"], ["d", ""], name="dropout"),
        helper.make_node("Clip", ["d", "", "high"], ["y"], name="clip"),
    ]
    module = tinycomp.compile(make_model(nodes, {"x": X}, {"high": np.float32(0.5)}, ["y"]), "host", passes="")
    np.testing.assert_array_equal(module(X), np.minimum(X, np.float32(0.5)))


def test_one_native_region_is_called_directly():
    module = tinycomp.compile(make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": X}, {}, ["y"]))
    plan = module._parts.plan
    assert isinstance(plan.steps[0].run, NativeRegion)
    direct = direct_call(plan)
    assert direct is not None
    np.testing.assert_array_equal(direct([X])[0], np.maximum(X, 0))
    for other in (X.astype("f8"), X[:2], X.tolist(), X.astype(">f4")):
        assert direct([other]) is None
    assert direct([X, X]) is None


def test_a_loop_runs_its_body():
    feeds = {"x": X, "trips": np.array(5)}
    module = tinycomp.compile(
        parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[3, 4] x, int64 trips) => (float[3, 4] y) { zero = Sub(x, x)
        y = Loop(trips, , zero) <body = b (int64 i, bool going, float[3, 4] carried) => (bool go, float[3, 4] sum)
            { go = Identity(going)  [add] sum = Add(carried, x) }> }""")
    )
    assert module.report().where("add") in {r.symbol for r in module.report().regions}
    np.testing.assert_allclose(module.run(feeds)["y"], 5 * X, rtol=1e-6)
    np.testing.assert_array_equal(module.run({**feeds, "trips": np.array(0)})["y"], np.zeros((3, 4)))
