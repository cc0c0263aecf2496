"""Columns of Arrow tables as the arrays that a model takes, and its results as columns.

A row of a column is a number, a text, or a list of lists of them; where the model's sizes are known, it may also be one
flat list. Numbers become those of the input where that loses no more than digits; what does not fit is an error.
"""

from __future__ import annotations

import math
import re
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tinycomp.errors import FeedError, UnsupportedError
from tinycomp.runtime.spec import TensorSpec

_NUMBERS = tuple(f"{kind}{size}" for kind in ("int", "uint") for size in (8, 16, 32, 64))
_LEAVES: dict[str, pa.DataType] = {
    **{name: getattr(pa, name)() for name in _NUMBERS},
    "float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64(), "bfloat16": pa.float32(),
    "bool": pa.bool_(), "string": pa.string(),
}  # fmt: skip
"""What the elements of a tensor are in a column; bfloat16 is widened, because Arrow does not have it."""
_MOST_IN_A_LIST = (1 << 31) - 1
_MAPS = re.compile(r"seq<map<(?P<key>\w+), (?P<value>\w+)\[\]>>")


def check_column(spec: TensorSpec, field: pa.Field, where: str) -> None:
    """Refuse a column that can never be an input.

    Args:
        spec: The input.
        field: The column's name and type.
        where: The file, for the message.

    Raises:
        FeedError: If it cannot.
    """
    leaf = field.type
    while isinstance(leaf, pa.FixedShapeTensorType) or _is_list(leaf) or pa.types.is_dictionary(leaf):
        leaf = leaf.value_type
    texts = pa.types.is_string(leaf) or pa.types.is_large_string(leaf)
    numbers = pa.types.is_integer(leaf) or pa.types.is_floating(leaf) or pa.types.is_decimal(leaf)
    flags = pa.types.is_boolean(leaf)
    fits = {"string": texts, "bool": flags}.get(spec.dtype, numbers or flags)
    if not fits:
        raise FeedError(
            "the column cannot be the input", where=f'{where}, column "{field.name}"', expected=str(spec),
            found=str(field.type), hint="Convert the column, or map another one with columns=.",
        )  # fmt: skip


def check_input(spec: TensorSpec) -> None:
    """Refuse an input that has no rows, or none that a column could hold.

    Raises:
        UnsupportedError: If it does.
    """
    if spec.dtype not in _LEAVES:
        raise UnsupportedError("no column can hold this input", where=f'input "{spec.name}"', found=str(spec))
    if not spec.shape or spec.shape[0] == 0:
        raise UnsupportedError(
            "the input has no dimension for rows", where=f'input "{spec.name}"', expected="a batch in front",
            found=str(spec), hint="Give the model a first dimension for rows, or fix this input in the model.",
        )  # fmt: skip


def type_of(spec: TensorSpec, rows: int | str | None) -> pa.DataType:
    """Return the type of the column that holds an output.

    Args:
        spec: The output.
        rows: The size of the first dimension of the inputs.

    Raises:
        UnsupportedError: If the output does not have one entry per row, or no column can hold those.
    """
    maps = _MAPS.fullmatch(spec.dtype)
    if maps is not None and {maps["key"], maps["value"]} <= _LEAVES.keys():
        return pa.map_(_LEAVES[maps["key"]], _LEAVES[maps["value"]])
    if spec.dtype not in _LEAVES or spec.shape is None:
        raise UnsupportedError(
            "no column can hold this output", where=f'output "{spec.name}"', found=str(spec),
            expected="a tensor of known rank, of numbers or texts",
        )  # fmt: skip
    if not spec.shape or spec.shape[0] not in (rows, None):
        raise UnsupportedError(
            "the output does not have one entry per row", where=f'output "{spec.name}"',
            expected=f"{rows} in front, as in the inputs", found=str(spec),
            hint="Score a model without this output.",
        )  # fmt: skip
    if math.prod(dim for dim in spec.shape[1:] if isinstance(dim, int)) > _MOST_IN_A_LIST:
        raise UnsupportedError(
            "too many elements for one row of a column", where=f'output "{spec.name}"', found=str(spec),
            expected=f"at most {_MOST_IN_A_LIST}", hint="Score a model without this output.",
        )  # fmt: skip
    kind = _LEAVES[spec.dtype]
    for dim in reversed(spec.shape[1:]):
        kind = pa.list_(kind, dim) if isinstance(dim, int) and dim > 0 else pa.list_(kind)
    return kind


def array_of(spec: TensorSpec, column: pa.Array) -> NDArray[Any]:
    """Return a column as an input of the model, one entry per row.

    Raises:
        FeedError: If the rows have no such form.
    """
    where, rows = f'input "{spec.name}"', len(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    _refuse_nulls(where, column)
    column, sizes, axes = _flattened(spec, column)
    flat = _elements(spec, column)
    if axes:
        array = flat.reshape(rows, *sizes).transpose(0, *axes)
        flat, sizes = array.reshape(-1), [*array.shape[1:]]
    inner = (spec.shape or ())[1:]
    known = [dim for dim in inner if isinstance(dim, int)]
    if len(sizes) <= 1 and len(known) == len(inner) and math.prod(known) == math.prod(sizes):
        sizes = known
    return flat.reshape(rows, *sizes)


def lengths(column: pa.Array) -> NDArray[Any] | None:
    """Return how long the list in each row is; None where they have one length by their type, or are none."""
    if not _is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        return None
    import pyarrow.compute as pc  # imported here: it loads slowly, and most workers do not need it

    counted: NDArray[Any] = pc.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
    return counted


def column_of(spec: TensorSpec, kind: pa.DataType, result: Any) -> pa.Array:
    """Return an output as a column of the type that :func:`type_of` gave."""
    if pa.types.is_map(kind):
        return pa.array([list(entry.items()) for entry in result], type=kind)
    rows, *sizes = result.shape
    flat = np.ascontiguousarray(result).reshape(-1)
    column = pa.array(flat.astype(np.float32) if flat.dtype == ml_dtypes.bfloat16 else flat, type=_LEAVES[spec.dtype])
    kinds = [kind]
    while _is_list(kinds[-1]):
        kinds.append(kinds[-1].value_type)
    for axis in range(len(sizes) - 1, -1, -1):
        if pa.types.is_fixed_size_list(kinds[axis]):
            column = pa.FixedSizeListArray.from_arrays(column, type=kinds[axis])
        else:
            count = rows * math.prod(sizes[:axis])
            offsets = np.arange(count + 1, dtype=np.int64) * sizes[axis]
            if offsets[-1] > _MOST_IN_A_LIST:
                raise UnsupportedError(
                    "too many elements for one column", where=f'output "{spec.name}"', hint="Use a smaller batch."
                )
            column = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), column, type=kinds[axis])
    return column


def _is_list(kind: pa.DataType) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(kind) for test in tests)


def _refuse_nulls(where: str, column: pa.Array) -> None:
    if column.null_count:
        raise FeedError("a value is missing", where=where, found="null", hint="Fill the column before.")


def _flattened(spec: TensorSpec, column: pa.Array) -> tuple[pa.Array, list[int], list[int]]:
    """Return the elements of lists and tensors in lists in one column, how many each has, and the order of axes."""
    where, sizes, axes = f'input "{spec.name}"', list[int](), list[int]()
    while True:
        if isinstance(column.type, pa.FixedShapeTensorType):
            first, shape, order = 1 + len(sizes), column.type.shape, column.type.permutation
            axes = [*range(1, first), *(first + axis for axis in order)] if order else []
            sizes += shape
            column = column.storage
        elif pa.types.is_fixed_size_list(column.type):
            sizes.append(column.type.list_size)
        elif _is_list(column.type):
            import pyarrow.compute as pc  # see lengths

            found = pc.unique(pc.list_value_length(column)).to_pylist()
            if len(found) > 1:
                raise FeedError(
                    "the rows differ in length",
                    where=where,
                    expected=str(spec),
                    found=f"lists of {found[0]}, {found[1]}",
                )
            sizes.append(found[0] if found else 0)
        else:
            return column, sizes, axes
        column = column.flatten()
        _refuse_nulls(where, column)


def _elements(spec: TensorSpec, column: pa.Array) -> NDArray[Any]:
    """Return numbers or texts as an array of the input's dtype."""
    where = f'input "{spec.name}"'
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
        _refuse_nulls(where, column)
    kind = _LEAVES[spec.dtype]
    try:
        cast = column if column.type == kind else column.cast(kind)
        flat: NDArray[Any] = cast.to_numpy(zero_copy_only=False)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        problem = "not a text in UTF-8" if spec.dtype == "string" else "a number does not fit"
        raise FeedError(problem, where=where, expected=spec.dtype, found=f"{column.type}: {error}") from error
    is_narrower = spec.dtype == "bfloat16"
    if is_narrower:
        flat = flat.astype(ml_dtypes.bfloat16)
    if pa.types.is_floating(kind) and (cast is not column or is_narrower):
        infinite = np.isinf(flat)
        if infinite.any() and not (
            pa.types.is_floating(column.type)
            and np.array_equal(infinite, np.isinf(column.to_numpy(zero_copy_only=False)))
        ):
            raise FeedError("a number does not fit", where=where, expected=spec.dtype, found="one that is too large")
    return flat
