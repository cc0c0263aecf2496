"""Classes 21 to 32 and 45 to 50: the graph's structure and names, and its constants."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.bad_input.case import Case, rejected, right
from tests.bad_input.models import floats, graph, info, one, relu, scalar, text
from tinycomp.errors import TypeInferenceError, UnsupportedError

N = helper.make_node
X = np.array([-1, 2], np.float32)


def nodes(*made: onnx.NodeProto, output: str = "y") -> onnx.ModelProto:
    """A model of these nodes from x, float[2], to y."""
    return graph(made, [info("x", "f[2]")], [info(output, "f[2]")])


def nested(depth: int) -> onnx.ModelProto:
    """An If inside an If, ``depth`` times; made in place, since protobuf does not parse what is nested too deeply."""
    model = graph([], [info("x", "f[2]"), info("c", "b[]")], [info("y", "f[2]")])
    nodes, result = model.graph.node, "y"
    for level in range(depth):
        node = nodes.add(op_type="If", input=["c"], output=[result])
        other = helper.make_graph([N("Abs", ["x"], [f"e{level}"])], "e", [], [info(f"e{level}", "f[2]")])
        node.attribute.append(helper.make_attribute("else_branch", other))
        branch = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH)
        result = f"r{level}"
        branch.g.name = "t"
        branch.g.output.append(info(result, "f[2]"))
        nodes = branch.g.node
    nodes.add(op_type="Neg", input=["x"], output=[result])
    return model


def chain(length: int) -> onnx.ModelProto:
    made = [N("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(length)]
    return graph(made, [info("v0", "f[2]")], [info(f"v{length}", "f[2]")])


def branches(left: str, right_: str, count: int = 1) -> onnx.ModelProto:
    """An If whose branches return values of these types."""

    def body(name: str, of: str, number: int) -> onnx.GraphProto:
        made = [N("Cast", ["x"], [f"{name}{i}"], to=info("r", of).type.tensor_type.elem_type) for i in range(number)]
        return helper.make_graph(made, name, [], [info(f"{name}{i}", of) for i in range(number)])

    node = N("If", ["c"], ["y"], "n", then_branch=body("t", left, 1), else_branch=body("e", right_, count))
    return graph([node], [info("x", "f[2]"), info("c", "b[]")], [helper.make_empty_tensor_value_info("y")])


def recursive(*calls: tuple[str, str]) -> onnx.ModelProto:
    """Functions that call each other."""
    model = one(calls[0][0], "f[2]", domain="local", opset=1)
    model.opset_import[0].version = 17
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    for name, callee in calls:
        inner = N(callee, ["v"], ["r"], domain="local")
        model.functions.append(helper.make_function("local", name, ["v"], ["r"], [inner], imports))
    return model


def named(name: str) -> onnx.ModelProto:
    """Two nodes with the same strange name everywhere, so that a region has an inner value of it."""
    made = [N("Neg", ["x"], [name], name), N("Relu", [name], ["y"], f"{name}2")]
    return graph(made, [info("x", "f[2]")], [info("y", "f[2]")])


def not_utf8(place: bytes) -> bytes:
    data = nodes(N("Neg", ["x"], ["inner"], "label"), N("Relu", ["inner"], ["y"])).SerializeToString()
    assert place in data
    return data.replace(place, b"\xff" * len(place))


def tensor(**fields: object) -> onnx.ModelProto:
    """A model that adds the constant w, made of these fields, to x."""
    base = {"name": "w", "data_type": TensorProto.FLOAT, "dims": [2], "raw_data": bytes(8)}
    proto = TensorProto(**{k: v for k, v in (base | fields).items() if v is not None})
    return graph([N("Add", ["x", "w"], ["y"], "n")], [info("x", "f[2]")], [info("y", "f[2]")], [proto])


def packed(dtype: int, dims: list[int], raw: bytes) -> onnx.ModelProto:
    proto = TensorProto(name="w", data_type=dtype, dims=dims, raw_data=raw)
    node = N("Cast", ["w"], ["y"], "n", to=TensorProto.FLOAT)
    return graph([node], [], [helper.make_empty_tensor_value_info("y")], [proto], opset=25)


def quantized(op: str, scale: float, *, channels: int = 0) -> onnx.ModelProto:
    scales = np.full(channels, 1, np.float32) if channels else scalar(scale)
    if channels:
        scales[-1] = scale
    source = "f[1,3]" if op == "QuantizeLinear" else "uint8[1,3]"
    return one(op, source, scales, np.zeros(scales.shape, np.uint8))


def qlinear_conv(x_scale: float = 1, w_scale: float = 1, y_scale: float = 1) -> onnx.ModelProto:
    zero, weight = scalar(0, np.uint8), np.ones((1, 1, 1, 1), np.uint8)
    return one("QLinearConv", "uint8[1,1,2,2]", scalar(x_scale), zero, weight, scalar(w_scale), zero, scalar(y_scale),
               zero)  # fmt: skip


def changed(change: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
    model = relu()
    change(model)
    return model


def declared(of: str) -> onnx.ModelProto:
    return graph([N("Neg", ["x"], ["v"]), N("Relu", ["v"], ["y"])], [info("x", "f[2]")], [info("y", of)])


NAMES = {
    "quotes": "a\"b'c", "comment": "a*/ int x; /*", "newline": "a\nb\r\tc", "path": "../../etc/passwd", "slash": "/a/b",
    "backslash": "a\\", "percent": "%s%n{}", "shell": "$(touch x); `ls` | rm", "nul": "a\0b", "unicode": "ünï🦊",
    "keyword": "double", "space": " ", "trigraph": "??/", "preprocessor": "#include <x>", "tir": "%x: int8 = const",
    "bidi": "\u202eabc", "megabyte": "n" * (1 << 20),
}  # fmt: skip

CASES: list[Case] = [
    # 21 cycles
    rejected("21-two", nodes(N("Neg", ["b"], ["a"], "p"), N("Exp", ["a"], ["b"], "q"), N("Add", ["a", "x"], ["y"])),
        "the graph has a cycle: p -> q -> p"),
    rejected("21-self", nodes(N("Add", ["x", "y"], ["y"], "p")), "the graph has a cycle: p -> p"),
    rejected("21-long",
        nodes(*(N("Neg", [f"v{(i - 1) % 99}"], [f"v{i}"], f"n{i}") for i in range(99)), N("Neg", ["v5"], ["y"])),
        "the graph has a cycle: ", " -> … -> "),
    # 22 unsorted
    right("22-unsorted", nodes(N("Relu", ["v"], ["y"]), N("Neg", ["x"], ["v"])), {"x": X}, np.float32([1, 0]),
        warns="not in topological order; they have been sorted"),
    right("22-reversed-chain",
        nodes(*(N("Neg", [f"v{i}" if i else "x"], [f"v{i + 1}" if i < 9 else "y"]) for i in reversed(range(10)))),
        {"x": X}, X, warns="they have been sorted"),
    # 23 doubled names
    rejected("23-results", nodes(N("Neg", ["x"], ["y"]), N("Exp", ["x"], ["y"])),
        'the value name "y" is defined twice; found a second result'),
    rejected("23-input-as-result", nodes(N("Neg", ["x"], ["x"]), N("Exp", ["x"], ["y"])),
        'the value name "x" is defined twice'),
    rejected("23-inputs", graph([N("Neg", ["x"], ["y"])], [info("x", "f[2]")] * 2, [info("y", "f[2]")]),
        "found a second input"),
    rejected(
        "23-initializers",
        graph(
            [N("Neg", ["x"], ["y"])],
            [info("x", "f[2]")],
            [info("y", "f[2]")],
            [numpy_helper.from_array(floats(2), "w")] * 2,
        ),
        "found a second initializer",
    ),
    rejected(
        "23-initializer-as-result",
        graph(
            [N("Neg", ["x"], ["y"])],
            [info("x", "f[2]")],
            [info("y", "f[2]")],
            [numpy_helper.from_array(floats(2), "y")],
        ),
        'the value name "y" is defined twice',
    ),
    rejected("23-one-node", nodes(N("Split", ["x"], ["y", "y"], num_outputs=2)), '"y" is defined twice'),
    # 24, 25 never produced
    rejected("24-operand", nodes(N("Neg", ["hiden"], ["y"], "n"), N("Exp", ["x"], ["hidden"])),
        'n (Neg): reads the value "hiden", which is never produced', 'Did you mean "hidden"?'),
    rejected(
        "24-from-a-body",
        text(
            "g (bool c, float[2] x) => (float[2] y) { y = If (c) <then_branch = t () => (float[2]"
            " r) { i = Neg(x) r = Neg(i) }, else_branch = e () => (float[2] q) { q = Neg(i) }> }"
        ),
        'reads the value "i", which is never produced',
    ),
    rejected("25-output", nodes(N("Neg", ["x"], ["y"]), output="z"), 'output "z"', "which is never produced"),
    rejected("25-empty", nodes(N("Neg", ["x"], ["y"]), output=""), "an output has no name"),
    rejected(
        "25-body",
        text(
            "g (bool c, float[2] x) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] r) "
            "{ q = Neg(x) }, else_branch = e () => (float[2] q) { q = Neg(x) }> }"
        ),
        '"r"',
        "never produced",
    ),
    # 26 recursion
    rejected("26-itself", recursive(("f", "f")), "f"),
    rejected("26-each-other", recursive(("f", "g"), ("g", "f")), "f", "g"),
    rejected("26-missing-function", recursive(("f", "h")), "n/r", "operator h", '"local"', error=UnsupportedError),
    # 27 nesting
    rejected("27-65-levels", nested(66), "nested too deeply; expected up to 64 levels", error=UnsupportedError),
    rejected("27-bytes", nested(90).SerializeToString(), "nested too deeply"),
    right("27-20-levels", nested(20), {"x": X, "c": np.array(True)}, -X),
    # 28 length
    right("28-12000-nodes", lambda folder: chain(12000), {"v0": X}, X, target="host"),
    # 29 branches
    rejected("29-dtypes", branches("f[2]", "i[2]"), "n (If", "the branches disagree", "float32[2]", "int64[2]",
        error=TypeInferenceError),
    rejected("29-counts", branches("f[2]", "f[2]", 2), "n (If", "wrong number of outputs"),
    right(
        "29-shapes-may-differ",
        text(
            "g (bool c, float[2] x) => (float[N] y) { y = If (c) <then_branch = t () => "
            "(float[2] r) { r = Neg(x) }, else_branch = e () => (float[4] q) { q = Concat<axis=0>(x, x) }> }"
        ),
        {"x": X, "c": np.array(False)},
        np.float32([-1, 2, -1, 2]),
    ),
    # 30 strange names
    *(right(f"30-{label}", named(name), {"x": X}, np.float32([1, 0])) for label, name in NAMES.items()),
    # 31 not UTF-8
    *(rejected(f"31-{place.decode()}", not_utf8(place), "not UTF-8") for place in (b"inner", b"label", b"Relu")),
    # 32 declared against inferred
    rejected("32-dtype", declared("i[2]"), 'value "y": the declared type contradicts the inferred one',
        "expected float32[2]; found int64[2]"),
    rejected(
        "32-sequence",
        graph(
            [N("Neg", ["x"], ["y"])],
            [info("x", "f[2]")],
            [helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, [2])],
        ),
        "contradicts",
        "found seq<float32[2]>",
    ),
    rejected("32-no-type",
        graph([N("Neg", ["x"], ["y"])], [helper.make_empty_tensor_value_info("x")], [info("y", "f[2]")]),
        'input "x": the input has no type'),
    right("32-shape", declared("f[3]"), {"x": X}, np.float32([1, 0]),
        warns='value "y": declared as float32[3], but it is float32[2]; the declaration is ignored'),
    right("32-rank", declared("f[2,1]"), {"x": X}, np.float32([1, 0]), warns="declared as float32[2, 1], but"),
    right(
        "32-shape-of-data",
        graph(
            [N("NonZero", ["x"], ["v"]), N("Cast", ["v"], ["w"], to=1), N("Relu", ["w"], ["y"], "n")],
            [info("x", "f[2]")],
            [info("v", "i[1,5]"), info("y", "f[1,5]")],
        ),
        {"x": X},
        np.int64([[0, 1]]),
        np.float32([[0, 1]]),
        warns='"v"',
    ),
    # 45 raw_data
    rejected("45-short", tensor(raw_data=bytes(7)), '"w"', "too short for float32[2]; expected 8 bytes"),
    rejected("45-long", tensor(raw_data=bytes(9)), '"w"', "too long for float32[2]", "found 9"),
    rejected("45-empty", tensor(raw_data=b""), "expected 8 bytes; found 0 bytes"),
    rejected("45-none", tensor(raw_data=None), "expected 2 elements; found 0 elements"),
    rejected("45-float-data", tensor(raw_data=None, float_data=[1, 2, 3]), "found 3 elements"),
    rejected("45-wrong-field", tensor(raw_data=None, int64_data=[1, 2]), '"w"'),
    # 46, 47 dims
    rejected("46-product", tensor(dims=[1 << 40, 1 << 40]), '"w"', "the product of the dims is too large"),
    rejected("46-product-behind-zero", tensor(dims=[0, 1 << 62, 1 << 62], raw_data=b""), "too large"),
    rejected("46-wraps-to-2", tensor(dims=[2, 1 << 63 - 1, 4]), '"w"'),
    rejected("47-negative", tensor(dims=[-2]), "a dimension is negative", "found [-2]"),
    rejected("47-two-negatives", tensor(dims=[-1, -2]), "a dimension is negative"),
    rejected("47-input-huge", one("Relu", "f[4611686018427387904,4]"), "bytes", error=Exception),
    # 48 dtypes
    *(
        rejected(f"48-{n}", tensor(data_type=n), '"w"', part)
        for n, part in ((99, "unknown element type 99"), (0, "no element type"), (-1, "element type"))
    ),
    rejected("48-input", changed(lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 77)), "77"),
    # 49 packed
    rejected("49-int4-short", packed(TensorProto.INT4, [3], b"\0"), "expected 2 bytes; found 1"),
    rejected("49-uint4-long", packed(TensorProto.UINT4, [3], bytes(3)), "expected 2 bytes; found 3"),
    rejected("49-uint2-long", packed(TensorProto.UINT2, [5], bytes(3)), "expected 2 bytes; found 3"),
    right("49-int4-odd", packed(TensorProto.INT4, [3], bytes([0xF1, 0x07])), {}, np.float32([1, -1, 7])),
    right("49-uint4-odd-padding", packed(TensorProto.UINT4, [3], bytes([0xF1, 0xA7])), {}, np.float32([1, 15, 7])),
    right("49-uint2-odd", packed(TensorProto.UINT2, [5], bytes([0b11100100, 0b01])), {}, np.float32([0, 1, 2, 3, 1])),
    # 50 scales
    *(
        rejected(f"50-{scale}", quantized("QuantizeLinear", scale), "n (Quant", "not positive", str(scale))
        for scale in (0.0, -1.0, np.nan, np.inf)
    ),
    *(
        rejected(f"50-back-{scale}", quantized("DequantizeLinear", scale), "n (Dequ", "not finite")
        for scale in (np.nan, np.inf)
    ),
    rejected("50-per-channel", quantized("QuantizeLinear", 0, channels=3), "scale is not positive"),
    rejected("50-conv-x", qlinear_conv(x_scale=0), "n (QLinearConv", "scale is not positive"),
    rejected("50-conv-w", qlinear_conv(w_scale=-1), "n (QLinearConv", "found -1.0"),
    rejected("50-conv-y", qlinear_conv(y_scale=np.nan), "n (QLinearConv", "found nan"),
    rejected("50-scales-count", one("QuantizeLinear", "f[1,3]", floats(2), np.zeros(2, np.uint8)), "n (QuantizeLinear",
        "the scale has the wrong size; expected 3"),
    rejected("50-zero-point-shape", one("QuantizeLinear", "f[1,3]", floats(3), np.zeros(2, np.uint8)),
        "scale and zero point differ in shape"),
    rejected("50-zero-point-dtype", one("DequantizeLinear", "uint8[1,3]", scalar(1), scalar(0, np.int8)),
        "n (DequantizeLinear"),
]  # fmt: skip
