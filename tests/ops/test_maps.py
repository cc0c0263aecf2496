"""CategoryMapper, CastMap and ZipMap against onnxruntime."""

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


@pytest.mark.parametrize(
    "x", [np.array([["b", "c"], ["?", "a"]], object), np.array([7, 8, 9, 10])], ids=["names", "numbers"]
)
def test_category_mapper(x: np.ndarray) -> None:
    made = model(
        "CategoryMapper", helper.make_tensor_type_proto(8 if x.dtype == object else 7, x.shape),
        cats_int64s=[7, 8, 9], cats_strings=["a", "b", "c"], default_int64=-5, default_string="none",
    )  # fmt: skip
    got = tinycomp.compile(made)(x)
    np.testing.assert_array_equal(got, theirs(made, x))


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


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [3, 1]}, {"classlabels_strings": ["a", "b"]}])
@pytest.mark.parametrize("shape", [(3, 2), (2,)])
def test_zip_map(labels: dict, shape: tuple) -> None:
    key = 7 if "classlabels_int64s" in labels else 8
    made_type = helper.make_sequence_type_proto(helper.make_map_type_proto(key, FLOATS))
    made = model("ZipMap", helper.make_tensor_type_proto(1, shape), made_type, **labels)
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    assert tinycomp.compile(made)(x) == theirs(made, x)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ModelError, match="CategoryMapper: the table is uneven"):
        run_ours("CategoryMapper", [np.array([1])], {"cats_int64s": [1]}, 1, domain=ML)
    with pytest.raises(ModelError, match="CastMap: unknown form"):
        run_ours("CastMap", [{0: 1.0}], {"cast_to": "TO_BOOL"}, 1, domain=ML)
    with pytest.raises(
        ExecutionError, match=r"CastMap: a key lies outside the result; expected keys in \[0, 0\]; found 3"
    ):
        run_ours("CastMap", [{3: 1.0}], {"map_form": "SPARSE"}, 1, domain=ML)
    with pytest.raises(ModelError, match="ZipMap: bad labels"):
        run_ours("ZipMap", [np.ones((1, 1), np.float32)], {}, 1, domain=ML)
    with pytest.raises(ExecutionError, match="ZipMap: the labels do not fit the columns"):
        run_ours("ZipMap", [np.ones((1, 3), np.float32)], {"classlabels_int64s": [1]}, 1, domain=ML)
