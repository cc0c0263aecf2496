"""The operators of ``ai.onnx.ml`` between categories, labels, maps and tensors."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError, ModelError
from tinycomp.ir.graph import Node
from tinycomp.ir.types import UNKNOWN_DTYPE, MapType, SequenceType, TensorType, dtype_name, tensor
from tinycomp.memory.budget import reserve
from tinycomp.ops.cast import cast_array
from tinycomp.ops.numeric import Array
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results
from tinycomp.ops.trees import row_sizes

_objects: Any = importlib.import_module("tinycomp.ops._objects")

FAMILY = OpFamily("maps")
_ML = "ai.onnx.ml"
_DENSE = 16
"""Integer keys that span at most so many numbers each are looked up by index instead of by search."""
_TABLES_SINCE = 2
"""The version of LabelEncoder from which on it has keys and values."""
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
    """Turn names into numbers, or numbers into names, by a table; what is not in the table becomes the default."""
    keys, values = (cats_strings, cats_int64s) if x.dtype == object else (cats_int64s, cats_strings)
    default: Any = default_int64 if x.dtype == object else default_string
    table: dict[Any, Any] = dict(zip(keys, values, strict=True))
    mapped = [table.get(key, default) for key in x.reshape(-1).tolist()]
    return np.array(mapped, dtype=np.int64 if x.dtype == object else object).reshape(x.shape)


@FAMILY.op("LabelEncoder", domain=_ML)
def class_encoder(
    x: Array, *, classes_strings: Sequence[Any] = (), default_int64: int = -1, default_string: Any = "_Unused"
) -> Array:
    """Turn names of classes into their places in a list, or places into names: LabelEncoder before opset 2.

    A name that stands in the list twice is its last place, as in onnxruntime.
    """
    names = list(classes_strings)
    if x.dtype == object:
        places = {name: place for place, name in enumerate(names)}
        return np.array([places.get(t, default_int64) for t in x.reshape(-1).tolist()], np.int64).reshape(x.shape)
    table = np.array([*names, default_string], object)
    return table[np.where((x >= 0) & (x < len(names)), x, len(names))]


_COLUMNS = frozenset({
    "keys_floats", "keys_int64s", "keys_strings", "values_floats", "values_int64s", "values_strings", "default_float",
    "default_int64", "default_string",
})  # fmt: skip
_TENSORS = frozenset({"keys_tensor", "values_tensor", "default_tensor"})


@FAMILY.op("LabelEncoder", domain=_ML, since=2, passed=_COLUMNS)
def label_encoder(x: Array, **columns: Any) -> Array:
    """Return the value of each element's key; what is not in the table becomes the default of the values' type.

    Of equal keys the first counts. NaN equals no key.

    Raises:
        ModelError: If not exactly one list of keys and one of values is given, or their lengths differ.
    """
    return _looked_up(x, False, **columns)


@FAMILY.op("LabelEncoder", domain=_ML, since=4, passed=_COLUMNS | _TENSORS)
def tensor_label_encoder(x: Array, **columns: Any) -> Array:
    """Return the value of each element's key as :func:`label_encoder` does; NaN equals a key that is NaN."""
    return _looked_up(x, True, **columns)


def _looked_up(
    x: Array,
    nan: bool,
    *,
    keys_floats: Sequence[float] = (),
    keys_int64s: Sequence[int] = (),
    keys_strings: Sequence[Any] = (),
    keys_tensor: Any = None,
    values_floats: Sequence[float] = (),
    values_int64s: Sequence[int] = (),
    values_strings: Sequence[Any] = (),
    values_tensor: Any = None,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: Any = "_Unused",
    default_tensor: Any = None,
) -> Array:
    keys = _column("keys", keys_floats, keys_int64s, keys_strings, keys_tensor)
    values = _column("values", values_floats, values_int64s, values_strings, values_tensor)
    default = _default(values, default_float, default_int64, default_string)
    if default_tensor is not None:
        default = np.asarray(default_tensor).reshape(-1)[0]
    return _encoded(x, keys, values, default, nan=nan)


@FAMILY.op("OneHotEncoder", domain=_ML)
def one_hot_encoder(
    x: Array, *, cats_int64s: Sequence[int] = (), cats_strings: Sequence[Any] = (), zeros: int = 1
) -> Array:
    """Return a vector per element that is 1 at the place of the element in a list, float32 [..., categories].

    An element that stands in the list nowhere is all zeros.

    Raises:
        ModelError: If not exactly one list of categories is given, or it is of another type than ``x``.
        ExecutionError: If an element is not in the list, and ``zeros`` is 0.
    """
    categories = _column("categories", (), cats_int64s, cats_strings, op="OneHotEncoder")
    if (x.dtype == object) != (categories.dtype == object):
        raise ModelError(
            "OneHotEncoder: the categories are of another type than the input",
            expected=str(x.dtype), found=str(categories.dtype),
        )  # fmt: skip
    places = dict(zip(categories.tolist(), range(len(categories)), strict=True))
    numbers = x if x.dtype == object else x.astype(np.int64)
    found = np.array([places.get(t, -1) for t in numbers.reshape(-1).tolist()], np.intp)
    if not zeros and (found < 0).any():
        unknown = numbers.reshape(-1)[np.flatnonzero(found < 0)[0]]
        raise ExecutionError(
            "OneHotEncoder: an element is of no category", expected=f"one of {list(places)[:10]}", found=repr(unknown)
        )
    reserve((len(found), len(categories)), 4, "OneHotEncoder")
    result = np.zeros((len(found), len(categories)), np.float32)
    result[np.flatnonzero(found >= 0), found[found >= 0]] = 1
    return result.reshape(*x.shape, len(categories))


def label_table(attrs: Mapping[str, Any], version: int) -> tuple[Array, Array, Any]:
    """Return keys, values and the default of a LabelEncoder's node; of equal keys the first counts.

    Raises:
        ModelError: If attributes are missing, or contradict each other.
    """
    if version < _TABLES_SINCE:
        names = np.array(attrs.get("classes_strings", ()), object)
        return names[::-1], np.arange(len(names))[::-1], attrs.get("default_int64", -1)
    sides = (
        [attrs.get(f"{side}_{kind}", ()) for kind in ("floats", "int64s", "strings")] + [attrs.get(f"{side}_tensor")]
        for side in ("keys", "values")
    )
    keys, values = (_column(side, *given) for side, given in zip(("keys", "values"), sides, strict=True))
    if len(keys) != len(values):
        raise ModelError("LabelEncoder: the table is uneven")
    default = _default(
        values, attrs.get("default_float", -0.0), attrs.get("default_int64", -1),
        attrs.get("default_string", "_Unused"),
    )  # fmt: skip
    given = attrs.get("default_tensor")
    return keys, values, default if given is None else np.asarray(given).reshape(-1)[0]


def _column(
    which: str, floats: Sequence[float], ints: Sequence[int], strings: Sequence[Any], tensor: Any = None,
    op: str = "LabelEncoder",
) -> Array:  # fmt: skip
    """Return the one column of a table that is given."""
    given = [np.asarray(floats, np.float32)] if len(floats) else []
    given += [np.asarray(ints, np.int64)] if len(ints) else []
    given += [np.array(strings, object)] if len(strings) else []
    if tensor is not None:
        array = np.asarray(tensor).reshape(-1)
        given.append(np.array(array.tolist(), object) if array.dtype.kind in "OSU" else array)
    if len(given) != 1:
        raise ModelError(f"{op}: bad {which}", expected=f"one attribute of {which}", found=f"{len(given)} of them")
    return given[0]


def _default(values: Array, number: float, whole: int, text: Any) -> Any:
    if values.dtype == object:
        return text
    return number if values.dtype.kind == "f" else whole


def _encoded(x: Array, keys: Array, values: Array, default: Any, *, nan: bool) -> Array:
    """Look every element up in a table.

    Args:
        x: Any shape.
        keys: [entries].
        values: [entries].
        default: What elements become that are no key.
        nan: Whether NaN equals NaN.
    """
    if len(keys) != len(values):
        raise ModelError(
            "LabelEncoder: the table is uneven",
            expected="as many keys as values",
            found=f"{len(keys)} and {len(values)}",
        )
    if (x.dtype == object) != (keys.dtype == object):
        raise ModelError(
            "LabelEncoder: the keys are of another type than the input", expected=str(x.dtype), found=str(keys.dtype)
        )
    results = np.append(values, np.array([default], values.dtype))
    if keys.dtype == object:
        places = dict(zip(reversed(keys.tolist()), range(len(keys) - 1, -1, -1), strict=True))
        found = np.array([places.get(t, -1) for t in x.reshape(-1).tolist()], np.intp).reshape(x.shape)
        return results[found]
    if keys.dtype.kind in "iu" and len(keys):
        low, high = int(keys.min()), int(keys.max())
        if high - low <= _DENSE * len(keys):
            index = np.full(high - low + 2, -1, np.intp)
            index[keys[::-1] - low] = np.arange(len(keys) - 1, -1, -1)  # of equal keys the first counts
            # A difference that wraps is outside, too, as one without a sign.
            outside = high - low + 1
            near: Array = np.minimum((x - keys.dtype.type(low)).view(f"u{x.itemsize}"), outside)
            return results[index][near]
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    # NaN sorts behind all numbers, in both.
    near = np.minimum(np.searchsorted(ordered, x), len(keys) - 1)
    same = ordered[near] == x
    if nan:
        same |= np.isnan(ordered[near]) & np.isnan(x)
    return results[np.where(same, order[near], -1)]


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
    """
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


@FAMILY.op("DictVectorizer", domain=_ML)
def dict_vectorizer(
    x: Mapping[Any, Any], *, int64_vocabulary: Sequence[int] = (), string_vocabulary: Sequence[Any] = ()
) -> Array:
    """Return the values of a map in the order of a vocabulary, [1, words]; those that are missing are 0 or empty."""
    words = list(string_vocabulary) if len(string_vocabulary) else list(int64_vocabulary)
    some = next(iter(x.values()), np.float32(0))
    if isinstance(some, str):
        return np.array([[x.get(word, "") for word in words]], object)
    kinds = ((int, np.int64), (float, np.float32))
    dtype = next((np.dtype(own) for kind, own in kinds if isinstance(some, kind)), np.asarray(some).dtype)
    return np.array([[x.get(word, 0) for word in words]], dtype)


@FAMILY.op("ZipMap", domain=_ML, traits={"silent"})
def zip_map(
    x: Array, *, classlabels_int64s: Sequence[int] = (), classlabels_strings: Sequence[str] = ()
) -> list[dict[Any, float]]:
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
    rows: list[dict[Any, float]] | None = _objects.rows_of(labels)(x)
    if rows is None:
        raise ExecutionError(
            "ZipMap: the labels do not fit the columns", expected=f"floats [n, {len(labels)}]",
            found=f"{x.dtype.name} {list(x.shape)}",
        )  # fmt: skip
    return rows


@FAMILY.objects("ZipMap", domain=_ML)
def _rows_of_labels(node: Node) -> Callable[[Any], Any] | None:
    """Return what makes the rows, unless the kernel would refuse the labels."""
    numbers, names = (node.attrs.get(f"classlabels_{kind}") for kind in ("int64s", "strings"))
    rows: Callable[[Any], Any] | None = _objects.rows_of(numbers or names) if bool(numbers) != bool(names) else None
    return rows


# Rules -------------------------------------------------------------------------------------------------------------

_KINDS = {"floats": "float32", "int64s": "int64", "strings": "string"}


@FAMILY.infer("CategoryMapper", domain=_ML)
def _mapped(facts: Facts) -> Results:
    numbers, names = (len(facts.attr(name) or ()) for name in ("cats_int64s", "cats_strings"))
    facts.require(numbers == names, "the table is uneven", expected="as many cats_int64s as cats_strings",
                  found=f"{numbers} and {names}")  # fmt: skip
    dtype = {"string": "int64", UNKNOWN_DTYPE: UNKNOWN_DTYPE}.get(facts.dtype(0), "string")
    return [facts.tensor(dtype, facts.shape(0))]


@FAMILY.infer("LabelEncoder", domain=_ML)
def _encoded_type(facts: Facts) -> Results:
    if facts.version < _TABLES_SINCE:
        dtype = {"string": "int64", UNKNOWN_DTYPE: UNKNOWN_DTYPE}.get(facts.dtype(0), "string")
        return [facts.tensor(dtype, facts.shape(0))]
    given = [dtype for kind, dtype in _KINDS.items() if facts.attr(f"values_{kind}")]
    if (values := facts.attr("values_tensor")) is not None:
        held = np.asarray(values).dtype
        given.append("string" if held.kind in "OSU" else dtype_name(held))
    facts.require(len(given) == 1, "bad values", expected="one attribute of values", found=f"{len(given)} of them")
    return [facts.tensor(given[0], facts.shape(0))]


@FAMILY.infer("OneHotEncoder", domain=_ML)
def _hot(facts: Facts) -> Results:
    shape, count = facts.shape(0), len(facts.attr("cats_int64s") or facts.attr("cats_strings") or ())
    return [facts.tensor("float32", None if shape is None else (*shape, count))]


@FAMILY.infer("CastMap", domain=_ML)
def _values(facts: Facts) -> Results:
    cast = facts.require_one_of("cast_to", tuple(_CASTS), "TO_FLOAT")
    form = facts.require_one_of("map_form", ("DENSE", "SPARSE"), "DENSE")
    count = int(facts.attr("max_map", 1)) if form == "SPARSE" else None
    return [facts.tensor("string" if cast == "TO_STRING" else dtype_name(_CASTS[cast]), (1, count))]


@FAMILY.infer("DictVectorizer", domain=_ML)
def _vector(facts: Facts) -> Results:
    held = facts.type(0)
    dtype = tensor(held.value).dtype if isinstance(held, MapType) else UNKNOWN_DTYPE
    return [facts.tensor(dtype, (1, len(facts.attr("string_vocabulary") or facts.attr("int64_vocabulary") or ())))]


@FAMILY.infer("ZipMap", domain=_ML)
def _rows(facts: Facts) -> Results:
    numbers, texts = (facts.attr(f"classlabels_{kind}") or () for kind in ("int64s", "strings"))
    facts.require(bool(numbers) != bool(texts), "bad labels", expected="classlabels_int64s or classlabels_strings",
                  found="both or none")  # fmt: skip
    _, columns = row_sizes(facts)
    facts.require_equal(columns, len(numbers or texts), "the labels do not fit the columns")
    return [SequenceType(MapType("string" if texts else "int64", TensorType("float32", ())))]
