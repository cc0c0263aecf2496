"""Recurrent operators on the C target beyond the table: random cases, composition, sizes known late, errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import tinycomp
from tests.cases.recurrent import ACTIVATIONS, DIRECTIONS, FUNCTIONS, GATES, recurrent_case
from tests.targets.c.harness import Case, Const, check, compile_for, make_model
from tinycomp.errors import ExecutionError, FeedError


@st.composite
def cases(draw: st.DrawFn) -> Case:
    op = draw(st.sampled_from(sorted(GATES)))
    steps, batch = draw(st.integers(1, 6)), draw(st.integers(1, 15))
    size = (steps, batch, draw(st.integers(1, 20)), draw(st.integers(1, 40)))
    direction = draw(st.sampled_from(DIRECTIONS))
    count = FUNCTIONS[op] * (2 if direction == "bidirectional" else 1)
    attrs = {
        "direction": direction,
        "layout": draw(st.sampled_from([0, 1])),
        "lengths": draw(st.none() | st.lists(st.integers(0, steps), min_size=batch, max_size=batch)),
        "bias": draw(st.booleans()),
        "states": draw(st.booleans()),
        "seed": draw(st.integers(0, 999)),
    }
    if draw(st.booleans()):
        attrs["clip"] = draw(st.sampled_from([0.1, 0.5, 2.0]))
    if draw(st.booleans()):
        attrs["activations"] = draw(st.lists(st.sampled_from(sorted(ACTIVATIONS)), min_size=count, max_size=count))
        attrs["clip"] = 0.5  # gates without a bound would let states and their rounding errors grow with every step
    if op == "GRU":
        attrs["linear_before_reset"] = draw(st.sampled_from([0, 1]))
    if op == "LSTM":
        attrs |= {"peepholes": draw(st.booleans()), "input_forget": draw(st.sampled_from([0, 1]))}
    return recurrent_case(op, size, **attrs)


@given(cases())
@settings(deadline=None, max_examples=60)
def test_random_cases_agree_with_the_host(case):
    # Where onnxruntime's reading of a rare attribute differs from the host's is for the host's own tests.
    check(Case(case.op, case.operands, case.attrs, outputs=case.outputs, rtol=1e-4, atol=1e-4, onnxruntime=False))


def two_layers() -> tuple[Case, object]:
    """A bidirectional LSTM, its directions side by side, and a GRU on top; the batch is symbolic."""
    first = recurrent_case("LSTM", (7, 3, 5, 8), direction="bidirectional", states=False)
    second = recurrent_case("GRU", (7, 3, 16, 9), states=False, seed=1)
    feeds = {"x": first.feeds["x0"]}
    constants = {f"l{i}": x.array for i, x in enumerate(first.operands) if isinstance(x, Const)}
    constants |= {f"g{i}": x.array for i, x in enumerate(second.operands) if isinstance(x, Const)}
    constants["shape"] = np.array([0, 0, -1])
    nodes = [
        helper.make_node("LSTM", ["x", "l1", "l2", "l3"], ["y"], hidden_size=8, direction="bidirectional"),
        helper.make_node("Transpose", ["y"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["t", "shape"], ["joined"]),
        helper.make_node("GRU", ["joined", "g1", "g2", "g3"], ["", "last"], hidden_size=9),
    ]
    return first, make_model(nodes, feeds, constants, ["last"], symbolic={"x": (7, "n", 5)})


def test_layers_are_one_region_for_every_batch():
    first, model = two_layers()
    module, host = compile_for(model, strict=True), compile_for(model, "host")
    assert len(module.report().regions) == 1
    for batch in (1, 2, 3):
        x = first.feeds["x0"][:, :batch]
        np.testing.assert_allclose(module.run({"x": x})["last"], host.run({"x": x})["last"], rtol=1e-4, atol=1e-5)


def test_macs_are_those_of_both_products():
    module = check(recurrent_case("LSTM", (5, 2, 3, 8), direction="bidirectional"))
    assert module.report().regions[0].macs == 5 * 2 * 2 * (4 * 8 * 3 + 4 * 8 * 8)


def test_a_length_out_of_range_fails_and_names_the_region():
    case = recurrent_case("GRU", (4, 2, 3, 8), lengths=[4, 5])
    with pytest.raises(ExecutionError, match=r"c_0, node \S+ \(recurrent_f32\): a sequence length is out of range"):
        compile_for(case.model(), strict=True).run(case.feeds)


def test_states_of_the_wrong_size_are_refused_when_they_are_seen():
    case = recurrent_case("RNN", (4, 2, 3, 8))
    shapes = {"x0": (4, "n", 3), "x5": (1, "m", 8)}
    constants = {f"x{i}": x.array for i, x in enumerate(case.operands) if isinstance(x, Const)}
    node = helper.make_node("RNN", ["x0", "x1", "x2", "x3", "", "x5"], ["y"], name="node", hidden_size=8)
    module = tinycomp.compile(make_model([node], case.feeds, constants, ["y"], symbolic=shapes), "c")
    np.testing.assert_allclose(
        module.run(case.feeds)["y"], next(iter(compile_for(case.model(), "host").run(case.feeds).values())), atol=1e-5
    )
    with pytest.raises(FeedError, match=r"found n = 3\. .*node \(RNN\): axis 1 of the initial hidden state"):
        module.run({**case.feeds, "x5": np.zeros((1, 3, 8), np.float32)})
