"""Models of fuzzers that once got past every check, or were taken for what they are not: what each must get."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tinycomp
from tinycomp.errors import MemoryLimitError, ModelError, TinycompError, TinycompWarning
from tinycomp.frontend.definition_body import sizes_of
from tinycomp.ir import Graph, TensorType


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18, "ai.onnx.preview": 1]> {text}')


def test_operands_of_unknown_elements_stay_on_the_host() -> None:
    damaged = model("m (float[4] data, int64[2, 1] at, float[2] new) => (float[4] y) { y = ScatterND(data, at, new) }")
    damaged.graph.input[2].type.tensor_type.elem_type = 0
    report = tinycomp.compile(damaged, "c").report()
    assert report.where("y") is None or report.why("y")
    assert 'the element type of operand 2 ("new") is unknown' in str(report.why("y")[0].reasons)


def test_a_shape_beyond_what_integers_hold_is_refused() -> None:
    huge = model("m (float[3, 9223372036854775807, 5] x) => (float[a, b] y) { y = Flatten<axis = 1>(x) }")
    with pytest.raises(MemoryLimitError, match="more memory would be needed"):
        tinycomp.compile(huge, "c")


def test_a_scan_along_an_axis_that_is_not_there_fails_with_its_name() -> None:
    text = """m (float s, float[4] x) => (float t) {
        t = Scan<num_scan_inputs = 1, scan_input_axes = [1], body = b (float a, float c) => (float d) { d = Add(a, c) }>
            (s, x) }"""
    with pytest.raises(TinycompError, match="Scan"):
        tinycomp.compile(model(text), "c")(np.float32(0), np.zeros(4, np.float32))


def test_bounds_of_more_axes_than_an_array_can_have() -> None:
    text = """m (float[4] x, int64[1] a, int64[1] b, int64[1] c, int64[2147483648] d) => (float[n] y) {
        y = Slice(x, a, b, c, d) }"""
    tinycomp.compile(model(text), "c", memory_limit=1 << 40)


def test_a_kernel_of_four_billion_positions() -> None:
    text = "m (float[2, 4, 2] x, float[4, 1, 4294967296] w) => (float[2, 4, 2] y) { y = Conv<group = 4>(x, w) }"
    with pytest.raises(TinycompError):
        tinycomp.compile(model(text), "c")(np.ones((2, 4, 2), np.float32), np.ones((4, 1, 0), np.float32))


def test_an_operator_of_scikit_learn_without_operands() -> None:
    text = """<ir_version: 9, opset_import: ["ai.onnx.ml": 4]> m (float[5] x) => (int64[5] y) {
        y = ai.onnx.ml.LabelEncoder<keys_strings = ["a"], values_int64s = [0]>() }"""
    with pytest.raises(TinycompError, match="LabelEncoder"):
        tinycomp.compile(onnx.parser.parse_model(text), "c")


def test_a_trip_count_without_elements() -> None:
    text = """m (float s) => (float t) {
        n = Constant<value = int64[0] {}>()
        t = Loop<body = b (int64 i, bool go, float a) => (bool went, float d) { went = Identity(go) d = Add(a, a) }>
            (n, , s) }"""
    with pytest.raises(TinycompError):
        tinycomp.compile(model(text), "c")(np.float32(1))


def test_contents_that_do_not_fill_the_declared_shape() -> None:
    text = "m (float[2, 3] x) => (int64[0] y) { a = Shape<start = 0, end = 1>(x) y = Identity(a) }"
    with pytest.warns(TinycompWarning, match="the declaration is ignored"):
        tinycomp.compile(model(text), "c")


@pytest.mark.parametrize(
    "scales", ["float[4] {1, 1, inf, 1}", "float[1, 4] {1, 1, 2, 2}", "float {2}", "float[3] {1, 1, 2}"]
)
def test_scales_of_a_resize_that_are_none(scales: str) -> None:
    text = f"""m (float[1, 1, 2, 2] x) => (float[a, b, c, d] y) {{
        s = Constant<value = {scales.replace("inf", "3e38")}>() y = Resize<mode = "nearest">(x, , s) }}"""
    with pytest.raises(TinycompError):
        tinycomp.compile(model(text), "c")(np.ones((1, 1, 2, 2), np.float32))


def test_a_dimension_copied_from_an_unknown_rank() -> None:
    """Squeeze may drop the first axis or not: what 0 copies is known in the run only."""
    text = """m (int32[N, 2, 4, 4] x) => (int32[a, b, c, d, e] y) {
        s = Squeeze(x) c = Constant<value = int64[5] {0, 4, 1, 4, 1}>() y = Reshape(s, c) }"""
    module = tinycomp.compile(model(text), "c")
    assert module(np.zeros((1, 2, 4, 4), np.int32)).shape == (2, 4, 1, 4, 1)


def test_a_table_of_bytes_for_a_constant() -> None:
    text = """m (int8[4] z) => (int8[4] y) {
        x = Constant<value = int8[4] {1, -2, 3, 4}>()
        s = Constant<value = float {0.5}>() p = Constant<value = int8 {0}>()
        f = DequantizeLinear(x, s, p) e = Exp(f) q = QuantizeLinear(e, s, p) y = Max(q, z) }"""
    result = tinycomp.compile(model(text), "c", optimize=False)(np.full(4, -128, np.int8))
    np.testing.assert_array_equal(result, tinycomp.compile(model(text), "host")(np.full(4, -128, np.int8)))


def test_skips_without_end() -> None:
    text = """m (int32[12] x) => (float[7] y) {
        y = TfIdfVectorizer<max_gram_length = 2, max_skip_count = 9223372036854775807, min_gram_length = 2, mode = "TF",
            ngram_counts = [0, 4], ngram_indexes = [0, 1, 2, 3, 4, 5, 6],
            pool_int64s = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]>(x)
        }"""
    given = np.array([5, 6, 1, 5, 6, 7, 8, 1, 1, 1, 1, 6], np.int32)
    all_skips = tinycomp.compile(model(text), "c")(given)
    few = tinycomp.compile(model(text.replace("9223372036854775807", "11")), "c")(given)
    np.testing.assert_array_equal(all_skips, few)
    assert all_skips.sum() > 2


def test_blocks_of_a_single_number() -> None:
    text = """<ir_version: 11, opset_import: ["": 23]> m (int8 x, float[2, 2] s) => (float y) {
        y = DequantizeLinear<axis = 0, block_size = 2>(x, s) }"""
    damaged = onnx.parser.parse_model(text)
    with pytest.raises(TinycompError, match="DequantizeLinear"):
        tinycomp.compile(damaged, "c")(np.int8(1), np.ones((2, 2), np.float32))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (onnx.helper.make_attribute("threshold", [1.0, 2.0]), "of the wrong kind; expected float; found list"),
        (onnx.helper.make_attribute("threshold", onnx.TypeProto()), "of the wrong kind; expected float"),
        (onnx.helper.make_attribute("limit", 1.0), 'has no attribute "limit"'),
    ],
)
def test_attributes_of_definitions_have_their_kind(given: onnx.AttributeProto, message: str) -> None:
    text = """<ir_version: 9, opset_import: ["ai.onnx.ml": 1, "": 17]> m (float[4] x) => (float[4] y) {
        y = ai.onnx.ml.Binarizer(x) }"""
    damaged = onnx.parser.parse_model(text)
    damaged.graph.node[0].attribute.append(given)
    with pytest.raises(TinycompError, match=message):
        tinycomp.compile(damaged, "c")


def test_texts_of_definitions_are_texts() -> None:
    text = """<ir_version: 9, opset_import: ["ai.onnx.ml": 1, "": 17]> m (float[4, 2] x) => (float[4, 2] y) {
        y = ai.onnx.ml.Normalizer(x) }"""
    damaged = onnx.parser.parse_model(text)
    damaged.graph.node[0].attribute.append(onnx.helper.make_attribute("norm", b"L\xff"))
    with pytest.raises(TinycompError, match="of the wrong kind; expected str"):
        tinycomp.compile(damaged, "c")


def test_a_definition_does_not_cover_what_has_no_known_rank() -> None:
    graph = Graph("g")
    with pytest.raises(ModelError, match='value "x": the rank is unknown'):
        sizes_of(graph.add_input("x", TensorType("float32", None)), [0])


@pytest.mark.parametrize("pieces", [0, 1, 2**40])
def test_a_split_into_another_number_of_pieces(pieces: int) -> None:
    text = f"m (float[4] x) => (float[n] y, float[m] z) {{ y, z = Split<num_outputs = {pieces}>(x) }}"
    with pytest.raises(TinycompError, match="Split"):
        tinycomp.compile(model(text), "c")(np.zeros(4, np.float32))


@pytest.mark.parametrize("text", ["y = Gemm(a, b, c)", "p = MatMul(a, b) y = Add(p, c)"])
def test_an_addend_of_unknown_elements(text: str) -> None:
    damaged = model(f"m (float[3, 6] a, float[6, 4] b, float[3, 4] c) => (float[3, 4] y) {{ {text} }}")
    damaged.graph.input[2].type.tensor_type.elem_type = 0
    report = tinycomp.compile(damaged, "c").report()
    assert "the element type" in str(report.why("y")[0].reasons)
    assert "is unknown" in str(report.why("y")[0].reasons)


def test_a_range_of_more_numbers_than_its_type_has() -> None:
    """The definition of Attention counts the keys."""
    node = helper.make_node("Attention", ["q", "k", "v", "mask", "", "", "c"], ["y"], is_causal=2, left_window_size=2)
    shapes = {"q": [2, 3, 4, 8], "k": [2, 3, (1 << 63) - 1, "d"], "v": ["n", 3, "s", "e"], "mask": ["a", "b"]}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    inputs.append(helper.make_tensor_value_info("c", TensorProto.INT64, [2]))
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3, 4, "e"])
    graph = helper.make_graph([node], "g", inputs, [result])
    with pytest.raises(TinycompError, match=r"Incompatible dimensions|do not broadcast|more memory"):
        tinycomp.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=10), "c")


@pytest.mark.parametrize("dims", ["8", "2, 8, 1, 1"])
def test_frames_of_a_signal_of_other_dimensions(dims: str) -> None:
    text = f"m (float[{dims}] x, int64 step, int64 length) => (float[a, b, c, 2] y) {{ y = STFT(x, step, , length) }}"
    with pytest.raises(ModelError, match=r"the signal has other dimensions; expected \[batch, length, 1 or 2\]"):
        tinycomp.compile(model(text), "c")


@pytest.mark.parametrize("attribute", ["group", "offset_group"])
def test_a_deformable_convolution_in_no_groups(attribute: str) -> None:
    text = f"""<ir_version: 9, opset_import: ["": 19]>
    m (float[1, 2, 5, 5] x, float[2, 2, 3, 3] w, float[1, 18, 3, 3] o) => (float[n, c, h, k] y) {{
        y = DeformConv<{attribute} = 0>(x, w, o) }}"""
    shapes = ((1, 2, 5, 5), (2, 2, 3, 3), (1, 18, 3, 3))
    with pytest.raises(TinycompError):
        tinycomp.compile(onnx.parser.parse_model(text), "c")(*[np.ones(shape, np.float32) for shape in shapes])


def test_operands_of_unknown_elements() -> None:
    """A definition that makes elements does not cover them; the run sees what they are."""
    damaged = model(
        "m (float[1, 1, 4] x, int64[1, 1, 4] i) => (float[a, b, c] y) { y = MaxUnpool<kernel_shape = [2]>(x, i) }"
    )
    damaged.graph.input[0].type.tensor_type.elem_type = 0
    y = tinycomp.compile(damaged, "c")(np.ones((1, 1, 4), np.float32), np.arange(4).reshape(1, 1, 4))
    assert y.tolist() == [[[1, 1, 1, 1, 0]]]


def test_strides_for_another_number_of_axes() -> None:
    text = """m (float[1, 2, 5] x, float[2, 2, 3] w) => (float[n, c, l] y) {
        y = ConvTranspose<strides = [3, 2], pads = [1, 2, 1, 2]>(x, w) }"""
    with pytest.raises(TinycompError, match="ConvTranspose"):
        tinycomp.compile(model(text), "c")(np.ones((1, 2, 5), np.float32), np.ones((2, 2, 3), np.float32))
