"""CategoryMapper, LabelEncoder, OneHotEncoder, CastMap and ZipMap against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import tinycomp
from tests.ops.harness import run_ours
from tinycomp.errors import ExecutionError, ModelError

ML = "ai.onnx.ml"
TEXTS = helper.make_tensor_type_proto(onnx.TensorProto.STRING, None)
FLOATS = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)


def model(op: str, given: onnx.TypeProto, made: onnx.TypeProto | None = None, **attrs: object) -> onnx.ModelProto:
    node = helper.make_node(op, ["x"], ["y"], domain=ML, **attrs)
    result = helper.make_empty_tensor_value_info("y") if made is None else helper.make_value_info("y", made)
    graph = helper.make_graph([node], "g", [helper.make_value_info("x", given)], [result])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def theirs(made: onnx.ModelProto, x: object) -> object:
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


COLUMNS: dict[str, list[object]] = {
    "floats": [1.5, float("nan"), 0.0, -7.0, 1.5],
    "int64s": [5, -3, 2**60, 0, 5],
    "strings": ["b", "", "ä", "a", "b"],
}
LOOKED_UP = {
    "floats": np.array([[-7, 1.5, np.nan], [-0.0, 9, np.inf]], np.float32),
    "int64s": np.array([[0, 5, 1], [2**60, 2**60 + 1, -3]]),
    "strings": np.array([["a", "b", "c"], ["", "ä", "B"]], object),
}
TYPES = {"floats": onnx.TensorProto.FLOAT, "int64s": onnx.TensorProto.INT64, "strings": onnx.TensorProto.STRING}


def encoder(version: int, given: int, shape: tuple[int, ...], made: int, **attrs: object) -> onnx.ModelProto:
    types = [helper.make_tensor_type_proto(t, shape) for t in (given, made)]
    labels = model("LabelEncoder", *types, **attrs)
    labels.opset_import[1].version = version
    return labels


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize("keys", COLUMNS)
@pytest.mark.parametrize("values", COLUMNS)
@pytest.mark.parametrize("default", [False, True])
def test_label_encoder(version: int, keys: str, values: str, default: bool) -> None:
    x = LOOKED_UP[keys]
    defaults = {"default_float": 2.5, "default_int64": 77, "default_string": "none"} if default else {}
    made = encoder(
        version, TYPES[keys], x.shape, TYPES[values],
        **{f"keys_{keys}": COLUMNS[keys], f"values_{values}": COLUMNS[values]}, **defaults,
    )  # fmt: skip
    for rows in (x, x[:0]):
        made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = len(rows)
        made.graph.output[0].type.tensor_type.shape.dim[0].dim_value = len(rows)
        got = tinycomp.compile(made)(rows)
        want = np.asarray(theirs(made, rows))
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype


@pytest.mark.parametrize(
    ("keys", "values", "default"),
    [
        (np.array([1.5, np.nan]), np.array([1.25, 2.5]), np.array([0.1])),
        (np.array([2, 3]), np.array([20, 30], np.int16), np.array([-5], np.int16)),
        (np.array(["a", "b"], object), np.array([20, 30], np.int64), np.array([-5])),
    ],
    ids=["float64", "int16", "strings"],
)
def test_label_encoder_of_tensors(keys: np.ndarray, values: np.ndarray, default: np.ndarray) -> None:
    x = np.array([keys[1], keys[0], keys[0] * 2], keys.dtype)
    kinds = [8 if a.dtype == object else helper.np_dtype_to_tensor_dtype(a.dtype) for a in (keys, values)]
    tensors = {
        f"{name}_tensor": onnx.numpy_helper.from_array(a, name)
        for name, a in (("keys", keys), ("values", values), ("default", default))
    }
    made = encoder(4, kinds[0], x.shape, kinds[1], **tensors)
    got = tinycomp.compile(made)(x)
    np.testing.assert_array_equal(got, [values[1], values[0], default[0]])
    assert got.dtype == values.dtype
    if values.dtype != np.int16:  # onnxruntime has no such encoder
        np.testing.assert_array_equal(got, np.asarray(theirs(made, x)))


@pytest.mark.parametrize("keys", [[3, 5, 4, 3], [-4, -2], [2**63 - 3, 2**63 - 1], [-(2**63), -(2**63) + 2]])
def test_label_encoder_of_near_integers(keys: list[int]) -> None:
    x = np.array([3, 4, 5, 6, -4, -2, -3, 2**63 - 1, 2**63 - 2, 2**63 - 3, -(2**63), -(2**63) + 2, 0])
    made = encoder(2, 7, x.shape, 7, keys_int64s=keys, values_int64s=list(range(10, 10 + len(keys))))
    np.testing.assert_array_equal(tinycomp.compile(made)(x), theirs(made, x))


def test_an_element_of_no_category() -> None:
    module = tinycomp.compile(model("OneHotEncoder", TEXTS, FLOATS, cats_strings=["a", "b"], zeros=0))
    with pytest.raises(ExecutionError, match=r"is of no category; expected one of \['a', 'b'\]; found 'z'"):
        module(np.array(["a", "z"], object))


@pytest.mark.parametrize("x", [np.array(["a", "b", "c"], object), np.array([0, 2, 3, -1])], ids=["names", "places"])
@pytest.mark.parametrize("default", [{}, {"default_int64": 7, "default_string": "none"}])
def test_label_encoder_of_classes(x: np.ndarray, default: dict[str, object]) -> None:
    kinds = [8, 7] if x.dtype == object else [7, 8]
    made = encoder(1, kinds[0], x.shape, kinds[1], classes_strings=["a", "b", "a"], **default)
    np.testing.assert_array_equal(tinycomp.compile(made)(x), theirs(made, x))


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"keys_int64s": [1], "values_int64s": [1, 2]}, "the table is uneven.*expected as many keys as values"),
        ({"keys_int64s": [1]}, "bad values.*expected one attribute of values.*found 0 of them"),
        ({"keys_strings": ["a"], "values_int64s": [1]}, "the keys are of another type than the input"),
    ],
)
def test_label_encoder_with_a_bad_table(attrs: dict[str, object], message: str) -> None:
    with pytest.raises((ExecutionError, ModelError), match=f"(?s){message}"):
        run_ours("LabelEncoder", [np.array([1])], attrs, 2, domain=ML)


@pytest.mark.parametrize("to", ["TO_FLOAT", "TO_INT64", "TO_STRING"])
@pytest.mark.parametrize("form", ["DENSE", "SPARSE"])
def test_cast_map(to: str, form: str) -> None:
    given = helper.make_map_type_proto(7, FLOATS)
    made = model("CastMap", given, cast_to=to, map_form=form, max_map=6)
    x = {4: 1.0, 0: 2.0, 3: -3.0}
    (got,) = run_ours("CastMap", [x], {"cast_to": to, "map_form": form, "max_map": 6}, 3, domain=ML)
    want = np.asarray(theirs(made, x))
    if to == "TO_STRING":  # the specification leaves open what stands where there is no key
        held = got != ""
        np.testing.assert_array_equal(
            held, [[True] * 3 if form == "DENSE" else [True, False, False, True, True, False]]
        )
        got, want = got[held].astype(np.float32), want[held].astype(np.float32)
    np.testing.assert_array_equal(got, want)
    assert got.dtype == want.dtype


def test_cast_map_of_texts() -> None:
    (got,) = run_ours("CastMap", [{1: "2.5", 0: "-1"}], {}, 3, domain=ML)
    np.testing.assert_array_equal(got, np.array([[-1, 2.5]], np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_maps_of_numbers_that_lie_apart(dtype: type) -> None:
    x = np.arange(24, dtype=dtype).reshape(4, 6)[::-2, ::3] / 7
    (got,) = run_ours("ZipMap", [x], {"classlabels_strings": ["a", "b"]}, 1, domain=ML)
    assert got == [{"a": row[0], "b": row[1]} for row in x.tolist()]
    got[0]["a"] = 0.0
    assert got[1]["a"] == x[1, 0], "each row has a map of its own"


def test_maps_of_no_rows() -> None:
    (got,) = run_ours("ZipMap", [np.ones((0, 2), np.float32)], {"classlabels_int64s": [1, 2]}, 1, domain=ML)
    assert got == []


def test_a_map_whose_keys_have_no_type() -> None:
    made = model("CastMap", helper.make_map_type_proto(7, FLOATS))
    made.graph.input[0].type.map_type.key_type = 0
    with pytest.raises(ModelError, match="the keys of a map have no type"):
        tinycomp.from_onnx(made)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ExecutionError, match="the table is uneven; expected as many"):
        run_ours("CategoryMapper", [np.array([1])], {"cats_int64s": [1]}, 1, domain=ML)
    with pytest.raises(ExecutionError, match="unknown cast_to; expected one of TO_FLOAT"):
        run_ours("CastMap", [{0: 1.0}], {"cast_to": "TO_BOOL"}, 1, domain=ML)
    with pytest.raises(
        ExecutionError, match=r"CastMap: a key lies outside the result; expected keys in \[0, 0\]; found 3"
    ):
        run_ours("CastMap", [{3: 1.0}], {"map_form": "SPARSE"}, 1, domain=ML)
    with pytest.raises(ExecutionError, match="bad labels; expected classlabels_int64s or"):
        run_ours("ZipMap", [np.ones((1, 1), np.float32)], {}, 1, domain=ML)
    with pytest.raises(ExecutionError, match="the labels do not fit the columns; expected 1; found 3"):
        run_ours("ZipMap", [np.ones((1, 3), np.float32)], {"classlabels_int64s": [1]}, 1, domain=ML)
    with pytest.raises(ExecutionError, match=r"expected floats \[n, 1\]; found int32 \[1, 1\]"):
        run_ours("ZipMap", [np.ones((1, 1), np.int32)], {"classlabels_int64s": [1]}, 1, domain=ML)
