from __future__ import annotations

import doctest

import numpy as np
import onnx
import pytest
from onnx import helper

import tinycomp.backend
from tests.backend.suite import load_suite
from tinycomp.backend import TinycompBackend
from tinycomp.data import digits, digits_model
from tinycomp.errors import FeedError, ModelError, UnsupportedError


@pytest.fixture
def add() -> onnx.ModelProto:
    text = "g (float[2] a, float[2] b) => (float[2] d, float[2] c) { c = Add(a, b)  d = Sub(a, b) }"
    return onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]>' + text)


A, B = np.float32([1, 2]), np.float32([3, 5])


@pytest.mark.parametrize("inputs", [[A, B], (A, B), {"b": B, "a": A}], ids=["list", "tuple", "dict"])
def test_results_come_in_the_order_of_the_outputs(add, inputs) -> None:
    results = tinycomp.backend.prepare(add).run(inputs)
    assert isinstance(results, tuple)
    np.testing.assert_array_equal(results, [A - B, A + B])


def test_one_array_is_enough_for_one_input() -> None:
    images, labels = digits()
    (found,) = tinycomp.backend.run_model(onnx.load(digits_model()), images)
    assert (found.argmax(axis=1) == labels).mean() > 0.95


def test_a_default_may_be_left_out(add) -> None:
    add.graph.initializer.append(onnx.numpy_helper.from_array(B, "b"))
    np.testing.assert_array_equal(tinycomp.backend.run_model(add, [A]), [A - B, A + B])


def test_the_target_can_be_chosen(add) -> None:
    rep = tinycomp.backend.prepare(add, target="host")
    assert rep.module.report().targets == ()
    np.testing.assert_array_equal(rep.run([A, B]), [A - B, A + B])


def test_too_many_inputs(add) -> None:
    with pytest.raises(FeedError, match=r"too many inputs; expected 2: a, b; found 3"):
        tinycomp.backend.prepare(add).run([A, B, A])


@pytest.mark.parametrize(("device", "answer"), [("CPU", True), ("CPU:0", True), ("CUDA", False), ("TPU", False)])
def test_devices(device: str, answer: bool) -> None:
    assert tinycomp.backend.supports_device(device) is answer


def test_another_device_is_refused(add) -> None:
    with pytest.raises(UnsupportedError, match='the device is not supported; expected "CPU"; found "CUDA"'):
        tinycomp.backend.prepare(add, "CUDA")


def test_compatibility(add) -> None:
    assert tinycomp.backend.is_compatible(add)
    add.graph.node[0].op_type = "NoSuchOperator"
    assert not tinycomp.backend.is_compatible(add)


def test_a_wrong_model_says_what_is_wrong(add) -> None:
    add.graph.node[0].input[0] = "nowhere"
    with pytest.raises(ModelError, match="nowhere"):
        tinycomp.backend.prepare(add)


def test_run_node_by_order_and_by_name() -> None:
    node = helper.make_node("Sub", ["x", "y"], ["z"])
    np.testing.assert_array_equal(tinycomp.backend.run_node(node, [A, B])[0], A - B)
    np.testing.assert_array_equal(tinycomp.backend.run_node(node, {"y": A, "x": B})[0], B - A)


def test_run_node_with_absent_operands_and_results() -> None:
    clip = helper.make_node("Clip", ["x", "", "max"], ["y"])
    np.testing.assert_array_equal(tinycomp.backend.run_node(clip, [B, np.float32(4)])[0], [3, 4])
    norm = helper.make_node("LayerNormalization", ["x", "scale"], ["y", "", "inverse"], epsilon=0.0)
    found = tinycomp.backend.run_node(norm, [B[None], np.float32([1, 1])])
    assert [r.tolist() for r in found] == [[[-1, 1]], [[1]]]


def test_run_node_in_an_older_opset() -> None:
    node = helper.make_node("Clip", ["x"], ["y"], max=4.0)
    np.testing.assert_array_equal(tinycomp.backend.run_node(node, [B], opset_version=6)[0], [3, 4])


def test_run_node_with_declared_results() -> None:
    node = helper.make_node("Add", ["x", "y"], ["z"])
    info = [(np.dtype(np.float32), (2,))]
    np.testing.assert_array_equal(tinycomp.backend.run_node(node, [A, B], outputs_info=info)[0], A + B)


def test_run_node_counts_operands() -> None:
    with pytest.raises(FeedError, match=r"Add: wrong number of operands; expected 2: x, y; found 1"):
        tinycomp.backend.run_node(helper.make_node("Add", ["x", "y"], ["z"]), [A])


def test_the_interface_is_complete() -> None:
    for name in ("prepare", "run_model", "run_node", "supports_device", "is_compatible"):
        assert getattr(tinycomp.backend, name) == getattr(TinycompBackend, name)


def test_a_sequence_of_scalars() -> None:
    """The case that ONNX's runner cannot compare: its first result holds a 0-d array."""
    from onnx.backend.test.loader import load_model_tests

    load_suite(__name__)  # makes the cases without warnings
    case = next(c for c in load_model_tests(kind="node") if c.name == "test_loop16_seq_none")
    given, wanted = case.data_sets[0]
    (found,) = tinycomp.backend.run_model(case.model, given)
    assert len(found) == len(wanted[0])
    for array, expected in zip(found, wanted[0], strict=True):
        np.testing.assert_array_equal(array, expected, strict=True)


def test_examples() -> None:
    assert doctest.testmod(tinycomp.backend).failed == 0
