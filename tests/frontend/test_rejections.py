from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.frontend.samples import FUNCTIONS, RELU, parse
from tests.frontend.test_import import float_info, make
from tinycomp.errors import ModelError, TypeInferenceError, UnsupportedError
from tinycomp.frontend import import_model

N = helper.make_node


def node(op: str, inputs: list[str], **attrs: object) -> onnx.ModelProto:
    """A model of one node over inputs ``x`` float[1, 4, 8, 8], ``w`` float[4, 4, 3, 3] and ``i`` int64[2]."""
    known = {
        "x": float_info("x", [1, 4, 8, 8]),
        "w": float_info("w", [4, 4, 3, 3]),
        "i": helper.make_tensor_value_info("i", TensorProto.INT64, [2]),
    }
    return make([N(op, inputs, ["y"], **attrs)], inputs=[known[name] for name in sorted({*inputs} - {""})])


def with_constant(op: str, operand: list[int], **attrs: object) -> onnx.ModelProto:
    constant = numpy_helper.from_array(np.array(operand, np.int64), "c")
    return make([N(op, ["x", "c"], ["y"], **attrs)], initializers=[constant])


@pytest.mark.parametrize(
    ("model", "error", "text"),
    [
        (make([N("Neg", ["b"], ["a"], "first"), N("Exp", ["a"], ["b"], "second"), N("Add", ["a", "x"], ["y"])]),
         ModelError, "the graph has a cycle: first -> second -> first"),
        (make([N("Add", ["x", "y"], ["y"], "self")]), ModelError, "the graph has a cycle: self -> self"),
        (make([N("Neg", ["x"], ["y"]), N("Exp", ["x"], ["y"])]), ModelError,
         'the value name "y" is defined twice; found a second result'),
        (make([N("Neg", ["x"], ["x"])]), ModelError, 'the value name "x" is defined twice; found a second result'),
        (make([N("Neg", ["x"], ["y"])], inputs=[float_info("x", [1]), float_info("x", [1])]), ModelError,
         'the value name "x" is defined twice; found a second input'),
        (make([N("Neg", ["x"], ["y"])], initializers=[numpy_helper.from_array(np.ones(1), "w")] * 2), ModelError,
         'the value name "w" is defined twice; found a second initializer'),
        (make([N("Neg", ["hiden"], ["y"]), N("Exp", ["x"], ["hidden"])]), ModelError,
         'node y (Neg): reads the value "hiden", which is never produced. Did you mean "hidden"?'),
        (make([N("Neg", ["x"], ["z"])]), ModelError, 'output "y": reads the value "y", which is never produced'),
        (make([N("Rleu", ["x"], ["y"])]), ModelError,
         'node y (Rleu): unknown operator Rleu in domain "ai.onnx"; expected an operator of opset 17. '
         'Did you mean "Relu"?'),
        (make([N("Gelu", ["x"], ["y"])]), ModelError, 'operator Gelu came with opset 20 of domain "ai.onnx"'),
        (make([N("Upsample", ["x", "x"], ["y"])]), ModelError, "operator Upsample was withdrawn in opset 10"),
        (make([N("Magic", ["x"], ["y"], domain="com.vendor")]), UnsupportedError,
         'node y (Magic): operator Magic belongs to the unknown domain "com.vendor"'),
        (make([N("Scaler", ["x"], ["y"], domain="ai.onnx.m")]), UnsupportedError, 'Did you mean "ai.onnx.ml"?'),
        (node("Conv", ["x"]), ModelError, "node y (Conv): wrong number of inputs; expected 2 to 3; found 1"),
        (node("Conv", ["", "w"]), ModelError, 'node y (Conv): required input "X" is missing'),
        (node("Relu", ["x", "w"]), ModelError, "wrong number of inputs; expected 1; found 2"),
        (make([N("Relu", ["x"], ["y", "z"])]), ModelError, "wrong number of outputs; expected 1; found 2"),
        (node("Cast", ["x"]), ModelError, 'node y (Cast): attribute "to" is missing; expected INT'),
        (node("Conv", ["x", "w"], strids=[1, 1]), ModelError,
         'node y (Conv): operator Conv has no attribute "strids"'),
        (node("Conv", ["x", "w"], strids=[1, 1]), ModelError, 'Did you mean "strides"?'),
        (node("Conv", ["x", "w"], strides=1.0), ModelError,
         'node y (Conv): attribute "strides" is of the wrong kind; expected INTS; found FLOAT'),
        (node("Conv", ["i", "i"]), TypeInferenceError, 'node y (Conv): input "X" has a type that Conv version 11'),
        (node("Add", ["x", "i"]), TypeInferenceError,
         'node y (Add): inputs "A" and "B" must have one type; expected tensor(float); found tensor(int64)'),
        (node("Softmax", ["x"], axis=4), TypeInferenceError, "node y (Softmax, version 13)"),
        (node("Concat", ["x", "x"], axis=9), TypeInferenceError, "node y (Concat, version 13)"),
        (node("Transpose", ["x"], perm=[0, 1, 1, 2]), TypeInferenceError, "node y (Transpose, version 13)"),
        (node("Conv", ["x", "w"], strides=[0, 1]), TypeInferenceError, "node y (Conv, version 11)"),
        (with_constant("Reshape", [-1, -1]), TypeInferenceError, "node y (Reshape, version 14)"),
        (with_constant("Split", [1, 2], axis=0), TypeInferenceError, "node y (Split, version 13)"),
        (make([N("Einsum", ["x"], ["y"], equation="i->")]), TypeInferenceError, "node y (Einsum, version 12)"),
        (make([N("Constant", [], ["y"])]), ModelError, "node y (Constant): a Constant needs exactly one value"),
        (make([N("Neg", ["x"], ["y"])], outputs=[helper.make_tensor_value_info("y", TensorProto.INT8, [2, 4])]),
         ModelError,
         'value "y": the declared type contradicts the inferred one; expected float32[2, 4]; found int8[2, 4]'),
        (make([N("Neg", ["x"], ["y"])],
              outputs=[helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, [2, 4])]),
         ModelError,
         "the declared type contradicts the inferred one; expected float32[2, 4]; found seq<float32[2, 4]>"),
        (make([N("Neg", ["x"], ["y"])], inputs=[helper.make_empty_tensor_value_info("x")]), ModelError,
         'input "x": the input has no type; expected a type in graph.input'),
        (make([N("Neg", ["x"], ["y"])], inputs=[float_info("", [1]), float_info("x", [1])]), ModelError,
         "a graph input has no name"),
        (make([N("Neg", ["x"], ["y"])], initializers=[numpy_helper.from_array(np.ones(1))]), ModelError,
         "an initializer has no name"),
    ],
)  # fmt: skip
def test_invalid_models(model: onnx.ModelProto, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        import_model(model)


def test_an_attribute_given_twice() -> None:
    model = parse(RELU)
    model.graph.node[0].op_type = "LeakyRelu"
    model.graph.node[0].attribute.extend([helper.make_attribute("alpha", 0.5)] * 2)
    with pytest.raises(ModelError, match=r'node y \(LeakyRelu\): attribute "alpha" is given twice'):
        import_model(model)


NAMES = ["main", "local", "scaled", "twice", "factor", "bias", "leaky", "alpha", "LeakyRelu", "N"]


@pytest.mark.parametrize("name", NAMES)
def test_names_that_are_not_utf8(name: str) -> None:
    data = parse(FUNCTIONS).SerializeToString()
    assert name.encode() in data
    with pytest.raises(ModelError, match="not UTF-8"):
        import_model(data.replace(bytes([len(name)]) + name.encode(), bytes([len(name)]) + b"\xff" * len(name)))


def test_a_cycle_of_nodes_whose_names_are_not_utf8() -> None:
    model = parse(RELU)
    model.graph.node[0].name = "looped"
    model.graph.node[0].input[0] = model.graph.node[0].output[0]
    with pytest.raises(ModelError, match="a name is not UTF-8"):
        import_model(model.SerializeToString().replace(b"looped", b"loope\xff"))


def test_a_reference_that_is_not_utf8() -> None:
    model = parse(RELU)
    model.graph.node[0].op_type = "LeakyRelu"
    attribute = helper.make_attribute("alpha", 0.5)
    attribute.ref_attr_name = "outer"
    model.graph.node[0].attribute.append(attribute)
    data = model.SerializeToString()
    with pytest.raises(ModelError, match=r"node y \(LeakyRelu\): a name is not UTF-8"):
        import_model(data.replace(b"outer", b"oute\xff"))
