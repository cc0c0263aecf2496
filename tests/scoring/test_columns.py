"""Columns become inputs and outputs become columns, and what cannot is refused with a reason."""

from __future__ import annotations

from decimal import Decimal

import ml_dtypes
import numpy as np
import pytest

from tinycomp.errors import FeedError, UnsupportedError
from tinycomp.runtime.spec import TensorSpec

pa = pytest.importorskip("pyarrow", reason="scoring needs pyarrow")

from tinycomp.scoring.columns import array_of, check_column, check_input, column_of, lengths, type_of  # noqa: E402


def spec(dtype: str, *shape: int | str | None) -> TensorSpec:
    return TensorSpec("x", dtype, shape)


COUNTING = np.arange(12, dtype=np.float32)


def tensors(column: pa.Array, *shape: int, permutation: list[int] | None = None) -> pa.Array:
    kind = pa.fixed_shape_tensor(column.type.value_type, shape, permutation=permutation)
    return pa.ExtensionArray.from_storage(kind, column)


def in_lists(column: pa.Array) -> pa.Array:
    """Return a column with a list of one element for each."""
    return pa.ListArray.from_arrays(pa.array(range(len(column) + 1), pa.int32()), column)


SIXES = pa.array(COUNTING.reshape(2, 6).tolist(), pa.list_(pa.float32(), 6))
DECIMALS = pa.array(
    [[Decimal(i) for i in row] for row in ((0, 1, 2, 3, 4, 5), (6, 7, 8, 9, 10, 11))], pa.list_(pa.decimal128(9, 1), 6)
)
NO_TEXT = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.int32([0, 1])), pa.py_buffer(b"\xff")])
TURNED = pa.array(COUNTING.reshape(2, 2, 3).transpose(0, 2, 1).reshape(2, 6).tolist(), pa.list_(pa.float32(), 6))


@pytest.mark.parametrize(
    ("wanted", "column"),
    [
        (spec("float32", "N", 2, 3), pa.array(COUNTING.reshape(2, 2, 3).tolist())),
        (spec("float32", "N", 2, 3), pa.array(COUNTING.reshape(2, 6).tolist())),
        (spec("float32", "N", 2, 3), pa.array(COUNTING.reshape(2, 6).tolist(), pa.list_(pa.float32(), 6))),
        (spec("float32", "N", 2, 3), pa.array(COUNTING.reshape(2, 6).tolist(), pa.large_list(pa.int16()))),
        (spec("float32", "N", 2, 3), pa.FixedShapeTensorArray.from_numpy_ndarray(COUNTING.reshape(2, 2, 3))),
        (spec("float32", "N", None, 3), pa.array(COUNTING.reshape(2, 2, 3).tolist())),
        (spec("float32", "N", 6, 1), pa.array(COUNTING.reshape(2, 6).tolist())),
        (spec("float32", "N", 2, 3), tensors(TURNED, 3, 2, permutation=[1, 0])),
        (spec("float32", "N", 1, 2, 3), in_lists(tensors(SIXES, 2, 3))),
        (spec("float32", "N", 1, 2, 3), in_lists(tensors(TURNED, 3, 2, permutation=[1, 0]))),
        (spec("float32", "N", 2, 3), tensors(DECIMALS, 6)),
    ],
    ids=[
        "nested",
        "flat",
        "fixed",
        "integers",
        "tensors",
        "open",
        "one more",
        "axes in another order",
        "tensors in lists",
        "tensors in lists in another order",
        "decimals in tensors",
    ],
)
def test_lists_become_tensors(wanted: TensorSpec, column: pa.Array) -> None:
    found = array_of(wanted, column)
    assert found.dtype == np.float32
    assert wanted.admits(found.shape)
    np.testing.assert_array_equal(found.reshape(-1), COUNTING)
    np.testing.assert_array_equal(array_of(wanted, column.slice(1)).reshape(-1), COUNTING[6:])


@pytest.mark.parametrize(
    ("wanted", "column", "values"),
    [
        (spec("float32", "N"), pa.array([0.1, 2.0]), np.float32([0.1, 2])),
        (spec("float32", "N", 1), pa.array([1, 2], pa.int64()), np.float32([[1], [2]])),
        (spec("int64", "N"), pa.array([1.0, 2.0]), np.int64([1, 2])),
        (spec("uint8", "N"), pa.array([1, 255]), np.uint8([1, 255])),
        (spec("float16", "N"), pa.array([1.5, 2]), np.float16([1.5, 2])),
        (spec("bfloat16", "N"), pa.array([1.5, 2]), np.array([1.5, 2], ml_dtypes.bfloat16)),
        (spec("bool", "N"), pa.array([True, False]), np.array([True, False])),
        (spec("string", "N"), pa.array(["a", "ü"]), np.array(["a", "ü"], object)),
        (spec("string", "N"), pa.array(["a", "ü"]).dictionary_encode(), np.array(["a", "ü"], object)),
        (
            spec("bool", "N", 1),
            tensors(pa.array([[True], [False]], pa.list_(pa.bool_(), 1)), 1),
            np.array([[True], [False]]),
        ),
        (
            spec("string", "N", 1),
            tensors(pa.array([["a"], ["ü"]], pa.list_(pa.string(), 1)), 1),
            np.array([["a"], ["ü"]], object),
        ),
        (spec("float16", "N"), pa.array([2048, np.inf]), np.float16([2048, np.inf])),
        (
            spec("float32", "N"),
            pa.array([Decimal("1.5"), Decimal(10) ** 30], pa.decimal128(38, 1)),
            np.float32([1.5, 1e30]),
        ),
        (spec("bfloat16", "N"), pa.array([np.inf, -np.inf]), np.array([np.inf, -np.inf], ml_dtypes.bfloat16)),
    ],
)
def test_elements_take_the_dtype_of_the_input(wanted: TensorSpec, column: pa.Array, values: np.ndarray) -> None:
    found = array_of(wanted, column)
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize(
    ("wanted", "column", "message"),
    [
        (spec("float32", "N"), pa.array([1.0, None]), 'input "x": a value is missing; found null'),
        (spec("float32", "N", 2), pa.array([[1.0, None], [1.0, 2.0]]), "a value is missing"),
        (spec("float32", "N", 2), pa.array([[1.0], [1.0, 2.0]]), "the rows differ in length; .* lists of 1, 2"),
        (spec("int64", "N"), pa.array([1.5]), "a number does not fit; expected int64; found double: .*truncated"),
        (spec("uint8", "N"), pa.array([256]), "a number does not fit; expected uint8"),
        (spec("float32", "N"), pa.array([1e300]),
            "a number does not fit; expected float32; found one that is too large"),
        (spec("float16", "N"), pa.array([1 << 40]), "expected float16; found one that is too large"),
        (spec("float16", "N"), pa.array([Decimal(70000)]), "a number does not fit; expected float16"),
        (spec("bfloat16", "N"), pa.array([3.4e38]), "expected bfloat16; found one that is too large"),
        (spec("bfloat16", "N"), pa.array(np.float32([3.4e38])), "expected bfloat16; found one that is too large"),
        (spec("string", "N"), NO_TEXT, "not a text in UTF-8; expected string; found string"),
        (spec("string", "N"), NO_TEXT.cast(pa.binary()).cast(pa.large_binary()).view(pa.large_string()),
            "not a text in UTF-8; expected string; found large_string"),
        (spec("float32", "N", 2), tensors(pa.array([[None, 1.0]], pa.list_(pa.float32(), 2)), 2),
            "a value is missing"),
        (spec("float32", "N", 2), tensors(pa.array([None, [1.0, 2.0]], pa.list_(pa.float32(), 2)), 2),
            "a value is missing"),
        (spec("int64", "N"), pa.array([Decimal(10) ** 30]), "a number does not fit; expected int64"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(wanted: TensorSpec, column: pa.Array, message: str) -> None:
    with pytest.raises(FeedError, match=message):
        array_of(wanted, column)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [("float32", pa.string()), ("string", pa.int32()), ("bool", pa.int8()), ("float32", pa.timestamp("s"))],
)
def test_columns_of_other_kinds_are_refused_before_anything_runs(dtype: str, kind: pa.DataType) -> None:
    for each in (kind, pa.list_(kind), pa.dictionary(pa.int8(), kind)):
        with pytest.raises(FeedError, match=r'f.parquet, column "c": the column cannot be the input; expected x: '):
            check_column(spec(dtype, "N"), pa.field("c", each), "f.parquet")


def test_inputs_without_rows_are_refused() -> None:
    check_input(spec("float32", "N"))
    with pytest.raises(UnsupportedError, match="no dimension for rows"):
        check_input(spec("float32"))
    with pytest.raises(UnsupportedError, match="no dimension for rows"):
        check_input(spec("float32", 0))
    with pytest.raises(UnsupportedError, match="no column can hold this input"):
        check_input(TensorSpec("x", "seq<float32[]>", None))


@pytest.mark.parametrize(
    ("given", "array"),
    [
        (spec("float32", "N", 2, 3), COUNTING.reshape(2, 2, 3)),
        (spec("float32", "N", "M", 3), COUNTING.reshape(2, 2, 3)),
        (spec("int8", "N"), np.int8([1, -2])),
        (spec("bfloat16", "N", 1), np.array([[1.5], [2]], ml_dtypes.bfloat16)),
        (spec("string", "N", 1), np.array([["a"], ["ü"]], object)),
        (spec("float32", "N", 0), np.zeros((2, 0), np.float32)),
        (spec("float32", "N", "M", 2), np.zeros((2, 0, 2), np.float32)),
    ],
)
def test_results_become_columns(given: TensorSpec, array: np.ndarray) -> None:
    kind = type_of(given, "N")
    column = column_of(given, kind, array)
    column.validate(full=True)
    assert column.type == kind
    assert column.to_pylist() == array.tolist()


def test_maps_become_columns() -> None:
    given = TensorSpec("p", "seq<map<int64, float32[]>>", None)
    kind = type_of(given, "N")
    assert column_of(given, kind, [{0: 0.25, 1: 0.75}]).to_pylist() == [[(0, 0.25), (1, 0.75)]]


def test_outputs_without_rows_are_refused() -> None:
    for other in (spec("float32"), spec("float32", 4), spec("float32", "M", 2)):
        with pytest.raises(UnsupportedError, match="does not have one entry per row; expected N in front"):
            type_of(other, "N")
    with pytest.raises(UnsupportedError, match="too many elements for one row of a column"):
        type_of(spec("float32", "N", 1 << 16, 1 << 16), "N")
    with pytest.raises(UnsupportedError, match="no column can hold this output"):
        type_of(TensorSpec("x", "complex64", ("N",)), "N")


def test_lengths_of_lists() -> None:
    found = lengths(pa.array([[1], [1, 2], None]))
    assert found is not None
    assert found.tolist() == [1, 2, -1]
    assert lengths(pa.array([1])) is None
    assert lengths(pa.array([[1]], pa.list_(pa.int8(), 1))) is None
