"""If, Loop, Scan and SequenceMap with Python bodies."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tinycomp
from tests.ops.harness import run_ours
from tinycomp.errors import ExecutionError, ModelError, ParseError
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types


def i64(value):
    return np.array(value, dtype=np.int64)


def flag(value):
    return np.array(value)


@pytest.mark.parametrize(("cond", "want"), [(True, 5), (False, 6)])
def test_if_passes_all_captures_to_either_branch(cond, want):
    attrs = {"then_branch": lambda a, b: (a + b,), "else_branch": lambda a, b: (a * b,), "captures": 2}
    assert run_ours("If", [flag([cond]), i64(2), i64(3)], attrs)[0] == want


def test_an_if_that_sizes_decide_has_the_type_of_the_branch_it_takes():
    """PyTorch's older exporter asks so before a Squeeze."""
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 17]>
        m (float[n, 1] x, float[n, k] z) => (y, w) <int64 at = {1}, int64 one = {1}, int64[1] axis = {1}> {
            s = Shape(x)  d = Gather(s, at)  c = Equal(d, one)
            y = If (c) <then_branch = t () => (float[a] b) { b = Squeeze(x, axis) },
                        else_branch = e () => (float[a, b] f) { f = Identity(x) }>
            s2 = Shape(z)  d2 = Gather(s2, at)  c2 = Equal(d2, one)
            w = If (c2) <then_branch = t () => (float[a] g) { g = Squeeze(z, axis) },
                         else_branch = e () => (float[a, b] h) { h = Identity(z) }>
        }""")
    graph = tinycomp.from_onnx(model)
    assert [str(value.type) for value in graph.outputs] == ["float32[n]", "float32[...]"]


def test_if_returns_several_outputs_and_sequences():
    attrs = {"then_branch": lambda: ([i64(1), i64(2)], i64(3)), "else_branch": lambda: ([], i64(0))}
    assert run_ours("If", [flag(True)], attrs, outputs=2) == [[1, 2], 3]


def test_if_needs_one_condition():
    with pytest.raises(ExecutionError, match=r"If: the condition is not one value; .*found shape \[2\]"):
        run_ours("If", [flag([True, False])], {"then_branch": tuple, "else_branch": tuple})


def count(limit):
    """Return a body that carries a running sum, scans it, and stops at a limit captured from outside."""

    def body(trip, cond, total, step):
        assert (trip.shape, trip.dtype, cond.dtype) == ((), np.int64, np.bool_)
        total = total + step
        return flag(total < limit), total, np.stack([total, trip])

    return body


LOOP = {"body": count(100), "captures": 1}
TYPES = [("bool", ()), ("int64", ()), ("int64", (2,))]


@pytest.mark.parametrize(
    ("trips", "cond", "rows"),
    [
        (i64(3), flag(True), 3),
        (i64([3]), None, 3),
        (i64(1000), flag(True), 34),
        (None, None, 34),
        (None, flag(True), 34),
        (i64(3), flag(False), 0),
        (i64(0), None, 0),
        (i64(-1), None, 0),
    ],
)
def test_loop(trips, cond, rows):
    total, scanned = run_ours(
        "Loop", [trips, cond, i64(0), i64(3)], {**LOOP, "output_types": lambda *_: TYPES}, outputs=2
    )
    assert total == 3 * rows
    assert scanned.dtype == np.int64
    np.testing.assert_array_equal(scanned, np.array([[3 * (i + 1), i] for i in range(rows)]).reshape(rows, 2))


def test_loop_with_only_a_condition_and_sequences_as_state():
    body = lambda trip, cond, items: (flag(len(items) < 4), [*items, trip])  # noqa: E731
    assert run_ours("Loop", [None, None, []], {"body": body}) == [[0, 1, 2, 3, 4]]


def test_loop_without_trips_uses_declared_types():
    types = [("bool", ()), ("string", ("N", 3)), ("float16", ("N", 3))]
    attrs = {"body": tuple, "output_types": lambda *_: types}
    names, halves = run_ours("Loop", [i64(0), None], attrs, outputs=2)
    assert (names.dtype, names.shape, halves.dtype, halves.shape) == (object, (0, 0, 3), np.float16, (0, 0, 3))
    for types in ([], [("bool", ()), ("float32", None)]):
        with pytest.raises(
            ExecutionError, match=r"scan output 0 has no rows and no declared type.*Run shape inference"
        ):
            run_ours("Loop", [i64(0), None], {"body": tuple, "output_types": lambda *_, types=types: types})


def test_loop_errors():
    with pytest.raises(ExecutionError, match="Loop: the body returned a wrong number of values; expected 2; found 1"):
        run_ours("Loop", [i64(2), None], {"body": lambda t, c: (c,)})
    growing = lambda t, c: (c, np.zeros(int(t)))  # noqa: E731
    with pytest.raises(ExecutionError, match=r"scan output 0 changes its shape between trips; .*\[\(0,\), \(1,\)\]"):
        run_ours("Loop", [i64(2), None], {"body": growing})
    with pytest.raises(ModelError, match="Loop: too few inputs; expected at least 1 captured values; found 0"):
        run_ours("Loop", [i64(2), None], {"body": growing, "captures": 1})


def test_an_endless_loop_can_be_interrupted():
    def body(trip, cond):
        if trip == 1000:
            raise KeyboardInterrupt
        return (cond,)

    with pytest.raises(KeyboardInterrupt):
        run_ours("Loop", [i64(2**63 - 1), None], {"body": body}, outputs=0)


def running_sum(state, x, factor):
    state = state + factor * x
    return state, state


def scan(x, outputs=2, **attrs):
    attrs = {"body": running_sum, "num_scan_inputs": 1, "captures": 1, **attrs}
    return run_ours("Scan", [np.zeros(2), x, np.array(10.0)], attrs, 9, outputs)


def test_scan():
    x = np.arange(6.0).reshape(3, 2)
    final, sums = scan(x)
    np.testing.assert_array_equal(sums, 10 * x.cumsum(axis=0))
    np.testing.assert_array_equal(final, sums[-1])


def test_scan_axes_and_directions():
    x = np.arange(6.0).reshape(2, 3)
    _, sums = scan(x, scan_input_axes=[-1], scan_output_axes=[1])
    np.testing.assert_array_equal(sums, 10 * x.cumsum(axis=1))
    _, sums = scan(x.T, scan_input_directions=[1], scan_output_directions=[1])
    np.testing.assert_array_equal(sums, 10 * x.T[::-1].cumsum(axis=0)[::-1])


def test_scan_of_nothing():
    attrs = {"output_types": lambda *_: [("float64", (2,)), ("float64", (2,))], "scan_output_axes": [1]}
    final, sums = scan(np.zeros((0, 2)), **attrs)
    assert (final.tolist(), sums.shape) == ([0, 0], (2, 0))


def test_scan_errors():
    attrs = {"body": lambda a, b: (a,), "num_scan_inputs": 2}
    with pytest.raises(ExecutionError, match=r"Scan: scan inputs differ in length; .*\[2, 3\]"):
        run_ours("Scan", [np.zeros(2), np.zeros(3)], attrs, 9)
    for number in (0, 3):
        with pytest.raises(ModelError, match=rf"num_scan_inputs is out of range; .*\[1, 2\]; found {number}"):
            scan(np.zeros((3, 2)), num_scan_inputs=number)
    with pytest.raises(ModelError, match="scan_input_axes has the wrong length; expected 1; found 2"):
        scan(np.zeros((3, 2)), scan_input_axes=[0, 1])
    with pytest.raises(ExecutionError, match="Scan: axis out of range"):
        scan(np.zeros((3, 2)), scan_input_axes=[2])


@pytest.mark.parametrize("lengths", [None, [3, 1]])
@pytest.mark.parametrize("direction", [0, 1])
def test_scan_with_batch(lengths, direction):
    x = np.arange(12.0).reshape(2, 3, 2)
    attrs = {"body": running_sum, "num_scan_inputs": 1, "captures": 1, "directions": [direction]}
    inputs = [None if lengths is None else i64(lengths), np.zeros((2, 2)), x, np.array(10.0)]
    final, sums = run_ours("Scan", inputs, attrs, 8, 2)
    assert (final.shape, sums.shape) == ((2, 2), (2, 3, 2))
    for b, n in enumerate(lengths or [3, 3]):
        rows = x[b, :n][::-1] if direction else x[b, :n]
        np.testing.assert_array_equal(sums[b, :n], 10 * rows.cumsum(axis=0))
        np.testing.assert_array_equal(final[b], sums[b, n - 1])
        assert not sums[b, n:].any()
    with pytest.raises(
        ExecutionError, match=r"Scan: bad sequence_lens; expected 2 lengths in \[0, 3\]; found \[4, 1\]"
    ):
        run_ours("Scan", [i64([4, 1]), *inputs[1:]], attrs, 8, 2)


def test_sequence_map():
    attrs = {"body": lambda x, y, z, c: (x + y * z, c), "captures": 1}
    sums, captured = run_ours(
        "SequenceMap", [[i64(1), i64(2)], [i64(3), i64(4)], i64(10), i64(7)], attrs, 17, outputs=2
    )
    assert (sums, captured) == ([31, 42], [7, 7])
    assert run_ours("SequenceMap", [[]], {"body": lambda x: (x,)}, 17) == [[]]
    with pytest.raises(ExecutionError, match="SequenceMap: the sequences differ in length; expected 1; found 2"):
        run_ours("SequenceMap", [[i64(1)], [i64(3), i64(4)]], {"body": lambda x, y: (x,)}, 17)


def test_a_branch_with_more_inputs_than_the_node_captures_is_refused():
    text = """graph @main opset {"" = 17} (%c: bool[], %x: float32[2]) -> (%y) {
      %y = If(%c, %x)
        then_branch = graph @a (%v: float32[2]) -> (%v) { }
        else_branch = graph @b (%v: float32[2]) -> (%v) { }
    }"""
    with pytest.raises(ParseError, match="then_branch has the wrong number of inputs; expected 0; found 1"):
        parse_graph(text, infer=infer_node_types)
