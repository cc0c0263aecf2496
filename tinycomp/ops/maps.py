"""The operators of ``ai.onnx.ml`` that onnx.reference lacks: between categories, maps and tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError, ModelError
from tinycomp.memory.budget import reserve
from tinycomp.ops.cast import cast_array
from tinycomp.ops.numeric import Array
from tinycomp.ops.record import OpFamily

FAMILY = OpFamily("maps")
_ML = "ai.onnx.ml"
_CASTS = {"TO_FLOAT": np.dtype(np.float32), "TO_STRING": np.dtype(object), "TO_INT64": np.dtype(np.int64)}


@FAMILY.op("CategoryMapper", domain=_ML)
def category_mapper(
    x: Array,
    *,
    cats_int64s: Sequence[int] = (),
    cats_strings: Sequence[str] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Array:
    """Turn names into numbers, or numbers into names, by a table; what is not in the table becomes the default.

    Raises:
        ModelError: If the two columns of the table differ in length.
    """
    if len(cats_int64s) != len(cats_strings):
        raise ModelError(
            "CategoryMapper: the table is uneven",
            expected="as many cats_int64s as cats_strings",
            found=f"{len(cats_int64s)} and {len(cats_strings)}",
        )
    keys, values = (cats_strings, cats_int64s) if x.dtype == object else (cats_int64s, cats_strings)
    default: Any = default_int64 if x.dtype == object else default_string
    table: dict[Any, Any] = dict(zip(keys, values, strict=True))
    mapped = [table.get(key, default) for key in x.reshape(-1).tolist()]
    return np.array(mapped, dtype=np.int64 if x.dtype == object else object).reshape(x.shape)


@FAMILY.op("CastMap", domain=_ML)
def cast_map(x: Mapping[int, Any], *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1) -> Array:
    """Return the values of a map (int64 to float or string) in order of their keys, as [1, n].

    Args:
        x: The map.
        cast_to: ``TO_FLOAT``, ``TO_STRING`` or ``TO_INT64``.
        map_form: ``DENSE`` for one value per key; ``SPARSE`` to put each value at the index that is its key.
        max_map: The size of a sparse result.

    Raises:
        ExecutionError: If a key lies outside a sparse result.
        ModelError: If an attribute has a value that ONNX does not know.
    """
    if cast_to not in _CASTS or map_form not in ("DENSE", "SPARSE"):
        raise ModelError(
            "CastMap: unknown form",
            expected=f"cast_to one of {', '.join(_CASTS)}, map_form DENSE or SPARSE",
            found=f"{cast_to}, {map_form}",
        )
    keys = sorted(x)
    text = any(isinstance(v, str) for v in x.values())
    values = cast_array(np.array([x[k] for k in keys], object if text else np.float32), _CASTS[cast_to])
    if map_form == "DENSE":
        return values.reshape(1, -1)
    if keys and not 0 <= keys[0] <= keys[-1] < max_map:
        raise ExecutionError(
            "CastMap: a key lies outside the result", expected=f"keys in [0, {max_map - 1}]", found=str(keys[-1])
        )
    reserve((1, max_map), values.itemsize, "CastMap")
    result = np.full((1, max_map), "" if cast_to == "TO_STRING" else 0, dtype=values.dtype)
    result[0, keys] = values
    return result


@FAMILY.op("ZipMap", domain=_ML)
def zip_map(
    x: Array, *, classlabels_int64s: Sequence[int] = (), classlabels_strings: Sequence[str] = ()
) -> list[dict[Any, np.float32]]:
    """Return one map per row of a matrix, from the labels of its columns to its values; a vector is one row.

    Raises:
        ModelError: If not exactly one of the two lists of labels is given.
        ExecutionError: If there is not one label per column.
    """
    if bool(classlabels_int64s) == bool(classlabels_strings):
        raise ModelError(
            "ZipMap: bad labels", expected="classlabels_int64s or classlabels_strings", found="both or none"
        )
    labels: Sequence[Any] = classlabels_int64s or classlabels_strings
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    if rows.ndim != 2 or rows.shape[1] != len(labels):
        raise ExecutionError(
            "ZipMap: the labels do not fit the columns", expected=f"[n, {len(labels)}]", found=str(list(x.shape))
        )
    return [dict(zip(labels, row, strict=True)) for row in rows]
