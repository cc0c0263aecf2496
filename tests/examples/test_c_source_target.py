"""The example that generates C: right for every operator, one loop per chain, reasons for what it does not take."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tinycomp
from examples.c_source_target import EXPRESSIONS, TARGET, gated_mlp, main
from tinycomp.driver.pipeline import partitioning_passes
from tinycomp.ir import Graph, Node, TensorType

UNARY = sorted(op for op, text in EXPRESSIONS.items() if "{1}" not in text)
BINARY = sorted(EXPRESSIONS.keys() - set(UNARY))
STEPS = st.tuples(st.sampled_from(["MatMul", "Add", "Mul", "Tanh", "Neg", "Sigmoid"]), st.integers(0, 9))


def texts(graph: Graph) -> list[str]:
    """The C text of every region."""
    partitioned = tinycomp.Pipeline(partitioning_passes([TARGET]))(graph)
    return [TARGET.build(node).text for node in partitioned.nodes if node.is_region]


def check(graph: Graph, *arrays: np.ndarray) -> tinycomp.Module:
    """Compile a graph with checks and compare a run with the host."""
    module = tinycomp.compile(graph, TARGET, verify=True)
    found, expected = (m.run(dict(zip("xz", arrays, strict=False))) for m in (module, tinycomp.compile(graph, "host")))
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)
    return module


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def start(*shape: int | str) -> tuple[Graph, Node]:
    graph = Graph("g", opsets={"": 17})
    return graph, graph.add_input("x", TensorType("float32", shape))


@pytest.mark.parametrize("op", UNARY)
def test_every_operator_of_one_operand(op: str) -> None:
    graph, x = start(3, 4)
    graph.set_outputs([graph.add(op, [x]).output], ["y"])
    array = numbers(3, 4)
    check(graph, np.abs(array) if op == "Sqrt" else array)
    special = np.full((3, 4), np.nan, np.float32)
    special[1:] = [[np.inf], [0.0]]
    check(graph, special)


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("shape", [(2, 3, 4), (3, 4), (1, 3, 4), (4,), (1, 1, 4), (1,), ()])
@pytest.mark.parametrize("swapped", [False, True])
def test_every_operator_of_two_operands(op: str, shape: tuple[int, ...], swapped: bool) -> None:
    graph, x = start(2, 3, 4)
    operands = [x, graph.add_const(np.abs(numbers(*shape)) + np.float32(0.5), "c")]
    graph.set_outputs([graph.add(op, operands[::-1] if swapped else operands).output], ["y"])
    module = check(graph, np.abs(numbers(2, 3, 4)) + np.float32(0.5))
    assert len(module.report().regions) == 1


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.sampled_from(["MatMul", "Add", "Mul", "Tanh", "Neg", "Sigmoid"]), st.integers(0, 9)),
        min_size=1,
        max_size=8,
    )
)
def test_random_chains_with_side_ways_and_several_results(steps: list[tuple[str, int]]) -> None:
    graph, x = start(3, 3)
    values = [x]
    for op, pick in steps:
        operand = values[pick % len(values)]
        operands = [values[-1]] if op in UNARY else [values[-1], operand]
        values.append(graph.add(op, operands).output)
    outputs = list(dict.fromkeys([values[-1], values[len(values) // 2]]))
    graph.set_outputs(outputs, [f"y{i}" for i in range(len(outputs))])
    check(graph, numbers(3, 3) * np.float32(0.3))


def test_a_chain_is_one_loop_and_a_product_ends_it() -> None:
    (text,) = texts(gated_mlp())
    assert text.count("++i)") == 2
    assert text.count("++r)") == 2
    assert "v_add" not in text  # what only the loop itself reads needs no memory
    assert "0.5f" in text


def test_symbolic_sizes() -> None:
    graph, x = start("N", 4)
    graph.set_outputs([graph.add("Relu", [graph.add("Add", [x, x]).output]).output], ["y"])
    module = tinycomp.compile(graph, TARGET)
    for rows in (0, 1, 5):
        np.testing.assert_array_equal(module(numbers(rows, 4)), np.maximum(2 * numbers(rows, 4), 0))


@pytest.mark.parametrize(
    ("op", "left", "right", "dtype", "reason"),
    [
        ("Add", (2, 3), (2, 1), "float32", "an operand must have the shape of the result, its last dimensions, or one"),
        ("Add", (2, 3), (2, 3), "float64", "Add is float32 only, got float64"),
        ("MatMul", (2, 2, 3), (3, 2), "float32", "both operands must be matrices"),
        ("MatMul", (256, 256), (256, 256), "float32", "at most 1048576 products, got 16777216"),
        ("MatMul", (2, 3), (3, 2), "float64", "MatMul is float32 only, got float64"),
    ],
)
def test_what_stays_behind_has_a_reason(
    op: str, left: tuple[int, ...], right: tuple[int, ...], dtype: str, reason: str
) -> None:
    graph = Graph("g", opsets={"": 17})
    operands = [graph.add_input(n, TensorType(dtype, shape)) for n, shape in (("x", left), ("z", right))]
    graph.set_outputs([graph.add(op, operands, sources=["node"]).output], ["y"])
    (row,) = tinycomp.compile(graph, TARGET).report().hosts
    assert reason in str(row.reasons)


def test_the_program_shows_the_text_and_the_difference() -> None:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        main()
    assert texts(gated_mlp())[0] in output.getvalue()
    difference = float(output.getvalue().rpartition(":")[2])
    assert difference < 1e-6
