"""What a model declares of its values does not outweigh what is true."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import onnx
import onnx.parser
import pytest

import tinycomp
from tinycomp.errors import DeclaredShapeError, TinycompWarning
from tinycomp.frontend import import_model
from tinycomp.ir.types import TensorType

HEAD = '<ir_version: 10, opset_import: ["": 21]>'
X = np.arange(20, dtype=np.float32).reshape(5, 4) - 7

# Declared numbers over open sizes, each true for one row only.
STALE = {
    "output": "g (float[n,4] x) => (float[1,4] y) { y = Relu(x) }",
    "inner": "g (float[n,4] x) => (float[k,4] y) <float[1,4] t> { t = Relu(x) y = Neg(t) }",
    "two outputs": "g (float[n,4] x) => (float[1,2] y, float[1,2] z) { y, z = Split<axis=1, num_outputs=2>(x) }",
    "rank": "g (float[n,4] x) => (float[4] y) { y = Relu(x) }",
    "expression": "g (float[n,4] x) => (float[2,4] y) { y = Concat<axis=0>(x, x) }",
    "If": """g (float[n,4] x) => (float[1,4] y) <float zero = {0.0}> { s = ReduceSum<keepdims=0>(x) b = Greater(s, zero)
        y = If(b) <then_branch = t () => (float[1,4] u) { u = Relu(x) },
            else_branch = e () => (float[1,4] v) { v = Neg(x) }> }""",
    "Loop": """g (float[n,4] x) => (float[1,4] y, float[3,1,4] z) <int64 t = {3}> { y, z = Loop(t, , x) <body = b
        (int64 i, bool q, float[1,4] s) => (bool r, float[1,4] u, float[1,4] v)
        { r = Identity(q) u = Neg(s) v = Exp(s) }> }""",
    "Scan": """g (float[3,n,4] x, float[n,4] a) => (float[1,4] y, float[3,1,4] z)
        { y, z = Scan<num_scan_inputs=1, body = b
        (float[1,4] s, float[1,4] e) => (float[1,4] u, float[1,4] v) { u = Add(s, e) v = Neg(u) }>(a, x) }""",
    "sequence": """g (float[n,4] x) => (float[1,4] y) <seq(float[1,4]) q, int64 i = {1}>
        { r = Neg(x) q = SequenceConstruct(x, r) y = SequenceAt(q, i) }""",
    "optional": """g (float[n,4] x) => (float[1,4] y) <optional(float[1,4]) o>
        { o = Optional(x) y = OptionalGetElement(o) }""",
    "input": "g (float[n,4] x) => (float[1,4] x, float[1,4] y) { y = Relu(x) }",
    "symbol of another input": "g (float[n,4] x, float[m,4] a) => (float[m,4] y) { y = Relu(x) z = Neg(a) }",
}
FUNCTION = """g (float[n,4] x) => (float[1,4] y) { y = own.twice(x) }
    <domain: "own", opset_import: ["": 21]> twice (a) => (b) { c = Add(a, a) b = Relu(c) }"""


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{HEAD} {text}")


def silent(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model that declares no shape of an inner value or output."""
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    graphs = [bare.graph]
    for graph in graphs:
        graph.ClearField("value_info")
        for value in graph.output if graph is bare.graph else (*graph.output, *graph.input):
            value.type.tensor_type.ClearField("shape")
        graphs.extend(a.g for node in graph.node for a in node.attribute if a.HasField("g"))
    return bare


def feeds_of(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    feeds = {}
    for value in proto.graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = [{"n": 5, "m": 6}.get(dim.dim_param, dim.dim_value) for dim in dims]
        feeds[value.name] = rng.standard_normal(shape).astype(np.float32)
    return feeds


def same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert [array.shape for array in found.values()] == [array.shape for array in wanted.values()]
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-6)


@pytest.mark.parametrize("target", ["c", "host", "npu_sim"])
@pytest.mark.parametrize("name", [*STALE, "function"])
@pytest.mark.filterwarnings("ignore:.*the declaration is ignored")
def test_a_declared_number_does_not_outweigh_an_open_size(name: str, target: str) -> None:
    proto = (
        onnx.parser.parse_model(HEAD.replace("]>", ', "own": 1]>') + FUNCTION)
        if name == "function"
        else model(STALE[name])
    )
    feeds = feeds_of(proto)
    wanted = tinycomp.compile(silent(proto), "host").run(feeds)
    for options in ({}, {"verify": True}, {"optimize": False}):
        module = tinycomp.compile(proto, target, **options)
        same(module.run(feeds), wanted)
    same(tinycomp.load(module.to_bytes()).run(feeds), wanted)


@pytest.mark.parametrize("rows", ["batch", None, 5, (1, 8), ("batch", 1, 8)])
@pytest.mark.parametrize("target", ["c", "host", "npu_sim"])
def test_given_shapes_open_what_the_model_declares_as_a_number(target: str, rows: object) -> None:
    proto = model("g (float[1,4] x) => (float[1,4] y) <float[1,4] t> { t = Relu(x) y = Neg(t) }")
    for verify in (False, True):
        module = tinycomp.compile(proto, target, shapes={"x": (rows, 4)}, verify=verify)
        same(module.run({"x": X}), {"y": -np.maximum(X, 0)})
    same(tinycomp.load(module.to_bytes()).run({"x": X}), {"y": -np.maximum(X, 0)})


def test_an_image_network_of_one_image_runs_many() -> None:
    text = """g (float[1,3,8,8] x, float[4,3,3,3] k) => (float[1,8] y)
        <float[1,4,8,8] c, float[1,4,1,1] p, float[1,4] f, int64[2] s = {1, -1}, int64[2] o = {0, -1}>
        { c = Conv<pads=[1,1,1,1]>(x, k) p = GlobalAveragePool(c) f = Reshape(p, TO) y = Concat<axis=1>(f, f) }"""
    one, many = model(text.replace("TO", "s")), model(text.replace("TO", "o"))
    rng = np.random.default_rng(3)
    x, k = (rng.standard_normal(shape).astype(np.float32) for shape in ((5, 3, 8, 8), (4, 3, 3, 3)))
    module = tinycomp.compile(many, shapes={"x": ("batch", 3, 8, 8)})
    wanted = np.concatenate([tinycomp.compile(one)(x[i : i + 1], k) for i in range(5)])
    np.testing.assert_allclose(module(x, k), wanted, rtol=1e-5)
    reshaped = tinycomp.compile(one, shapes={"x": ("batch", 3, 8, 8)})
    assert reshaped(x, k).shape == (1, 40)  # what the Reshape to [1, -1] says of 5 images


def messages(found: Sequence[warnings.WarningMessage]) -> list[str]:
    return [str(each.message) for each in found if issubclass(each.category, TinycompWarning)]


def test_one_warning_names_the_value_and_counts_the_others() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        import_model(model(STALE["two outputs"]))
    assert messages(found) == [
        'value "y": declared as float32[1, 2], but it is float32[n, 2]; the declaration is ignored, '
        "as is that of 1 more"
    ]


def test_names_contradict_nothing() -> None:
    graph = import_model(
        model("g (float[n,4] x, float[m,4] a) => (float[m,4] y, float[k,4] z) { y = Relu(x) z = Neg(a) }")
    )
    assert [str(value.type) for value in graph.outputs] == ["float32[n, 4]", "float32[m, 4]"]


@pytest.mark.parametrize("name", ["?", "-1", "None", "none", "", "unknown", "3", " ? ", "NULL"])
def test_placeholders_are_unknown_each_on_its_own(name: str) -> None:
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("GlobalAveragePool", ["x"], ["y"])], "g",
        [info("x", 1, [-1, 3, name, name])], [info("y", 1, [name, 3, name, name])],
    )  # fmt: skip
    module = tinycomp.compile(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)]))
    assert module(np.ones((2, 3, 4, 5), np.float32)).shape == (2, 3, 1, 1)


def test_names_that_only_look_like_placeholders_are_names() -> None:
    text = 'g (float["unk__12"] x, float["unk__12"] a) => (float[k] y) { y = Add(x, a) }'
    text = text.replace('"', "")
    module = tinycomp.compile(model(text))
    with pytest.raises(tinycomp.TinycompError, match='the sizes of "unk__12" differ'):
        module(np.ones(2, np.float32), np.ones(3, np.float32))


COUNTED = """g (float[2,4] x) => (float[a,b] y) <int64[2,K] v> { v = NonZero(x) w = Cast<to=1>(v) y = Relu(w) }"""
RESHAPED = "g (float[8] x, int64[2] s) => (float[a,b] y) <float[2,4] v> { v = Reshape(x, s) y = Relu(v) }"
THREE = np.float32([[1, 0, 2, 0], [0, 3, 0, 0]])


@pytest.mark.parametrize("target", ["c", "host", "npu_sim"])
@pytest.mark.parametrize("how", ["made", "loaded"])
def test_what_only_the_model_says_is_relied_on_until_a_run_refutes_it(target: str, how: str) -> None:
    module = tinycomp.compile(model(COUNTED.replace("K", "3")), target)
    assert module.graph.outputs[0].type == TensorType("float32", (2, 3))
    module = module if how == "made" else tinycomp.load(module.to_bytes())
    np.testing.assert_array_equal(module(THREE), np.argwhere(THREE).T)
    ones = np.ones((2, 4), np.float32)
    with pytest.warns(
        TinycompWarning, match=r'v \((tinycomp::)?Declared\): .*"v" .*int64\[2, 3\].*ignored from now on'
    ):
        np.testing.assert_array_equal(module(ones), np.argwhere(ones).T)
    for x in (ones, THREE):  # without another warning
        np.testing.assert_array_equal(module(x), np.argwhere(x).T)
        np.testing.assert_array_equal(module.run({"x": x})["y"], np.argwhere(x).T)
    assert module.profile({"x": ones}, runs=1).by_position()
    assert module.bind(ones)().shape == (2, 8)


@pytest.mark.parametrize("optimize", [True, False])
def test_what_follows_from_a_declared_size_is_known_where_the_module_is_loaded(optimize: bool) -> None:
    proto = model("g (float[] x) => (float[a,b] y) <float[1,6] v> { v = Flatten(x) y = Relu(v) }")
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    module = tinycomp.load(tinycomp.compile(proto, optimize=optimize).to_bytes())
    assert module(X[:1, :3].reshape(1, 3, 1).repeat(2, 2)).shape == (1, 6)
    with pytest.warns(TinycompWarning, match='"v"'):
        assert module(X).shape == (5, 4)


@pytest.mark.parametrize("target", ["c", "host"])
def test_a_declared_shape_of_a_shape_that_is_fed(target: str) -> None:
    module = tinycomp.compile(model(RESHAPED), target)
    assert module(np.arange(8, dtype=np.float32), np.array([2, 4])).shape == (2, 4)
    with pytest.warns(TinycompWarning, match=r'"v".*float32\[2, 4\]'):
        assert module.run({"x": np.arange(8, dtype=np.float32), "s": np.array([4, 2])})["y"].shape == (4, 2)


# Sizes that data decide, of which whoever computes them is told what is declared.
COMPUTED = {
    "Resize": """g (float[1,1,4] x, float[3] s) => (float[1,1,3] y, float[1,1,3] z)
        { y = Resize<mode="nearest">(x, , s) z = Neg(y) }""",
    "Loop": """g (float[1,1,4] x, float[3] s) => (float[1,1,3] y, float[1,1,3] z) { two = Constant<value_int=2>()
        y = Loop(two, , x) <body = b (int64 i, bool q, float[1,1,k] c) => (bool p, float[1,1,m] d)
            { p = Identity(q) d = Concat<axis=2>(c, x) }> z = Neg(y) }""",
    "Tile": """g (float[1,1,4] x, float[3] s) => (float[1,1,3] y, float[1,1,3] z)
        { r = Cast<to=7>(s) y = Tile(x, r) z = Neg(y) }""",
}


@pytest.mark.parametrize("target", ["c", "host"])
@pytest.mark.parametrize("how", ["made", "loaded"])
@pytest.mark.parametrize("name", COMPUTED)
def test_who_computes_a_size_that_is_declared_wrongly_computes_it_without(name: str, how: str, target: str) -> None:
    module = tinycomp.compile(model(COMPUTED[name]), target)
    module = module if how == "made" else tinycomp.load(module.to_bytes())
    x, scales = np.arange(4, dtype=np.float32).reshape(1, 1, 4), np.float32([1, 1, 3])
    wanted = x.repeat(3, axis=2) if name == "Resize" else np.tile(x, 3)
    with pytest.warns(TinycompWarning, match="ignored from now on"):
        y, z = module(x, scales)
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(z, -wanted)


def test_bound_arrays_are_for_the_declared_sizes() -> None:
    bound = tinycomp.compile(model(COUNTED.replace("K", "3"))).bind(np.ones((2, 4), np.float32))
    with pytest.raises(DeclaredShapeError, match='"v" is not int64'):
        bound()


@pytest.mark.parametrize("target", ["c", "host"])
def test_what_nothing_reads_is_what_the_run_shows(target: str) -> None:
    """A rule that made the Reshape's target of the declared output would give the right elements in another shape."""
    reshaped = tinycomp.compile(model("g (float[8] x, int64[2] s) => (float[2,4] v) { v = Reshape(x, s) }"), target)
    assert reshaped(np.arange(8, dtype=np.float32), np.array([4, 2])).shape == (4, 2)
    rows = tinycomp.compile(model("g (float[2,4] x) => (int64[2,5] v) { v = NonZero(x) }"), target)
    assert rows(THREE).shape == (2, 3)


def test_a_declaration_that_does_not_fit_is_no_reason_to_refuse_a_model() -> None:
    text = """g (float[8] x, float[3,8] z, int64[2] s) => (float[a,b] y) <float[2,4] v>
        { v = Reshape(x, s) y = Add(v, z) }"""
    with pytest.warns(TinycompWarning, match='what the model declares of "v" cannot be right, and is ignored: node y'):
        module = tinycomp.compile(model(text))
    assert module(np.ones(8, np.float32), np.ones((3, 8), np.float32), np.array([1, 8])).shape == (3, 8)


def test_a_declaration_is_dropped_where_sizes_follow_by_then() -> None:
    """The rank of the Squeeze is not known before its axes are computed."""
    text = """g (float[1,4] x) => (float[a] y) <float[3] v, float[1] zero = {0.0}>
        { i = Cast<to=7>(zero) v = Squeeze(x, i) y = Relu(v) }"""
    module = tinycomp.compile(model(text))
    assert "Declared" not in str(module.graph)
    assert module(np.ones((1, 4), np.float32)).shape == (4,)


def test_names_of_unknown_sizes_stand_for_one_size_each() -> None:
    text = """g (float[n] x) => (int64[1,k] y, int64[1,k] z, int64[1,n] w)
        { y = NonZero(x) r = Neg(x) z = NonZero(r) w = NonZero(r) }"""
    graph = import_model(model(text))
    assert [str(value.type) for value in graph.outputs] == ["int64[1, k]", "int64[1, ?]", "int64[1, ?]"]


def test_what_is_declared_of_an_unknown_operator_is_its_type() -> None:
    text = """<ir_version: 10, opset_import: ["": 21, "vendor": 1]> g (float[batch,4] x, float[n] z)
        => (float[n,10] y) <float[batch,8,k] v> { v = vendor.Expand(x) y = vendor.Shrink(v) }"""
    graph = import_model(onnx.parser.parse_model(text))
    assert [str(node.output.type) for node in graph.nodes] == ["float32[batch, 8, k]", "float32[?, 10]"]


def test_an_export_declares_what_was_declared() -> None:
    exported = tinycomp.to_onnx(tinycomp.from_onnx(model(COUNTED.replace("K", "3"))))
    onnx.checker.check_model(exported, full_check=True)
    module = tinycomp.compile(exported)
    np.testing.assert_array_equal(module(THREE), np.argwhere(THREE).T)
    with pytest.warns(TinycompWarning, match='"v"'):
        module(np.ones((2, 4), np.float32))


def test_a_quantized_layer_of_an_input_whose_rank_is_unknown() -> None:
    """Only the weight tells the rank of the input, and what is declared of it is wrong."""
    text = """g (float[] x) => (float[3,1,11,5] y)
        <float s = {0.5}, uint8 z = {1}, int8[1,1,1,1] k = {3}, uint8[5,11,5] q, float[5,11,5] d>
        { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) w = DequantizeLinear(k, s) y = Conv(d, w) }"""
    proto = model(text)
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.warns(TinycompWarning, match='"q"'):
        module = tinycomp.compile(proto, "c")
    x = np.arange(24, dtype=np.float32).reshape(2, 1, 3, 4)
    np.testing.assert_allclose(module(x), 1.5 * x)
