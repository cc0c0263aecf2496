"""The interface of a module: names, dtypes and shapes, and checks of the arguments of callers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinycomp.errors import ExecutionError, FeedError, did_you_mean, shown, visible
from tinycomp.lazy import LazyModule, cached_property
from tinycomp.records import dataclass, field, replace

if TYPE_CHECKING:
    import ml_dtypes
else:
    ml_dtypes = LazyModule("ml_dtypes")

_UNREADABLE = "cannot be read as an array"
_FROM_BITS = (
    "Pass a numpy array. Other libraries do not hand bfloat16 to numpy: pass the bits, for PyTorch as"
    " tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)."
)


# Looked up and not asked of numpy, which reads texts as if they were Python.
_NUMPY = {
    "string": np.dtype(object), "bool": np.dtype(bool),
    **{f"{kind}{8 * size}": np.dtype(f"{kind[0]}{size}") for kind in ("int", "uint") for size in (1, 2, 4, 8)},
    **{f"float{8 * size}": np.dtype(f"f{size}") for size in (2, 4, 8)},
    **{f"complex{8 * size}": np.dtype(f"c{size}") for size in (8, 16)},
}  # fmt: skip


_HOLDER = r"(?s:(?:seq|optional)<(?P<element>.*)>)"
_MAP = r"map<(?P<key>\w+),"
_TENSOR = r"(?s:(?P<dtype>[a-z0-9_]+)\[(?P<dims>.*)\])"
_DIM = r'"(?:[^"\\]|\\.)*"|[^\s,"]+'


@dataclass(frozen=True)
class TensorSpec:
    """Hold name, dtype and shape of an input or output.

    Attributes:
        name: The name in the model.
        dtype: numpy/ml_dtypes name, ``"string"``, or a longer text for sequences, optionals and maps.
        shape: A size, a symbol or None per dimension; None if even the rank is unknown.
        reason: Which nodes demand sizes that the model itself leaves open, and why; empty for none.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None
    reason: str = field(default="", compare=False, repr=False)

    @cached_property
    def numpy_dtype(self) -> np.dtype | None:
        """Return the numpy dtype (object for strings), or None for a value that is not a tensor."""
        if self.dtype in _NUMPY:
            return _NUMPY[self.dtype]
        scalar = getattr(ml_dtypes, self.dtype, None)
        return np.dtype(scalar) if isinstance(scalar, type) and issubclass(scalar, np.generic) else None

    @cached_property
    def is_static(self) -> bool:
        """Tell whether every dimension is an integer."""
        return self.shape is not None and all(isinstance(d, int) for d in self.shape)

    def admits(self, shape: tuple[int, ...]) -> bool:
        """Tell whether an array of this shape fits: symbols take every size."""
        if self.shape is None:
            return True
        if len(self.shape) != len(shape):
            return False
        for axis, size in self._fixed:  # noqa: SIM110 -- every run asks, and a generator takes longer than the rest
            if shape[axis] != size:
                return False
        return True

    @cached_property
    def _fixed(self) -> tuple[tuple[int, int], ...]:
        """The axes whose sizes are known, and these."""
        return tuple([(axis, dim) for axis, dim in enumerate(self.shape or ()) if isinstance(dim, int)])

    @cached_property
    def element(self) -> TensorSpec | None:
        """Return the spec of the elements of a sequence or an optional, under the same name; None for other values."""
        match = re.fullmatch(_HOLDER, self.dtype)
        if match is None:
            return None
        inside = match["element"]
        tensor = re.fullmatch(_TENSOR, inside)
        if tensor is None:
            return TensorSpec(self.name, inside, None)
        texts = re.findall(_DIM, tensor["dims"].partition(";")[0])
        dims = tuple(None if d == "?" else int(d) if d.isdecimal() else d for d in texts)
        return TensorSpec(self.name, tensor["dtype"], None if texts == ["..."] else dims)

    @cached_property
    def is_open(self) -> bool:
        """Tell whether nothing is known that a value could depart from; so it is with maps and sequences of them."""
        if self.element is not None:
            return self.element.numpy_dtype is None and self.element.element is None
        return self.shape is None

    def __str__(self) -> str:
        if self.numpy_dtype is None and self.shape is None:
            return visible(f"{self.name}: {self.dtype}")
        dims = "..." if self.shape is None else ", ".join("?" if d is None else str(d) for d in self.shape)
        return visible(f"{self.name}: {self.dtype}[{dims}]")

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        about = {"name": self.name, "dtype": self.dtype, "shape": None if self.shape is None else list(self.shape)}
        return about | ({"reason": self.reason} if self.reason else {})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TensorSpec:
        """Return the specification that :meth:`to_dict` described."""
        shape = data["shape"]
        return cls(data["name"], data["dtype"], None if shape is None else tuple(shape), data.get("reason", ""))


def check_feed(spec: TensorSpec, value: Any) -> Any:
    """Return ``value`` as a native-endian array that fits ``spec``, or a list of such for a sequence.

    Raises:
        FeedError: If dtype, rank or a size differs, or the value is of another kind.
    """
    dtype = spec.numpy_dtype
    if dtype is None:
        return _check_holder(spec, value)
    array = value if type(value) is np.ndarray else _as_array(spec, value, dtype)
    if array.dtype != dtype:
        array = _native(spec, array, dtype)
    if array.shape != spec.shape and not spec.admits(array.shape):
        raise misfit(spec, "wrong shape", f"shape {tuple(array.shape)}", _shape_hint(spec, array.shape))
    return array


def _check_holder(spec: TensorSpec, value: Any) -> Any:
    """Return a sequence as a list, or the value of an optional, after checking it; check that a map is one."""
    element = spec.element
    found = type(value).__name__
    if element is None:
        if spec.dtype.startswith("map<") and not isinstance(value, Mapping):
            raise misfit(spec, "not a map", found, "Pass a dict.")
        key_type = re.match(_MAP, spec.dtype)
        wanted = {"string": str}.get(key_type["key"], (int, np.integer)) if key_type else object
        wrong = next((key for key in value if not isinstance(key, wanted) or isinstance(key, bool)), None)
        if wrong is not None:
            raise misfit(spec, "a key of the map is of another type", shown(wrong))
        return value
    if spec.dtype.startswith("optional<"):
        return None if value is None else check_feed(element, value)
    if not isinstance(value, (list, tuple)):
        raise misfit(spec, "not a sequence", found, "Pass a list, even for one element.")
    return [check_feed(replace(element, name=f"{spec.name}[{i}]"), each) for i, each in enumerate(value)]


def check_results(specs: Sequence[TensorSpec], results: Sequence[Any]) -> None:
    """Refuse results that are not as a model says, where it gives types and numbers.

    Raises:
        ExecutionError: If one is not.
    """
    for spec, result in zip(specs, results, strict=True):
        if spec.is_open or (isinstance(result, np.ndarray) and result.shape == spec.shape):
            continue
        if type(result) is np.ndarray and result.dtype is spec.numpy_dtype and spec.admits(result.shape):
            continue
        found = departure(spec, result)
        if found is not None:
            raise ExecutionError(
                "the result has another shape than the model declares", where=f'output "{found[0].name}"',
                expected=str(found[0]), found=found[1],
                hint="Correct the output's shape in the model, or leave unknown dimensions open there.",
            )  # fmt: skip


def departure(spec: TensorSpec, result: Any) -> tuple[TensorSpec, str] | None:
    """Return the expected and the found property of a result that differs from ``spec``; None if none does."""
    element = spec.element
    if element is not None:
        several = isinstance(result, list)
        for i, each in enumerate(result if several else [result]):
            found = departure(element, each)
            if found is not None:
                name = found[0].name.removeprefix(spec.name)
                return (replace(found[0], name=f"{spec.name}[{i}]{name}"), found[1]) if several else found
    elif isinstance(result, np.ndarray):
        if result.dtype != spec.numpy_dtype and spec.numpy_dtype is not None:
            return spec, f"dtype {result.dtype.name}"
        if not spec.admits(result.shape):
            return spec, f"shape {list(result.shape)}"
    return None


def _as_array(spec: TensorSpec, value: Any, dtype: np.dtype) -> np.ndarray:
    """Return an array: those of other libraries keep their dtype, plain Python values and lists take the input's."""
    found, kind = type(value).__name__, dtype.kind
    refuse_masked(spec, value)
    if isinstance(value, Mapping):
        raise misfit(spec, _UNREADABLE, found, "Pass inputs by name as module.run(feeds), or as module(**feeds).")
    plain = isinstance(value, (int, float, bool, str, list, tuple))
    try:
        shared = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
        array: np.ndarray = np.from_dlpack(value) if shared else np.asarray(value, dtype=dtype if plain else None)
        cut = plain and kind in "iu" and np.asarray(value).dtype.kind == "f"
    except (TypeError, ValueError, OverflowError, RuntimeError, BufferError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        hint = _FROM_BITS if dtype.name == "bfloat16" else "Pass a numpy array."
        raise misfit(spec, _UNREADABLE, f"{found}: {reason}" if reason else found, hint) from error
    if cut:
        raise misfit(spec, "wrong dtype", "numbers with a fraction", "Pass whole numbers.")
    if array.dtype.kind == "O" != kind:
        raise misfit(spec, _UNREADABLE, found, "Pass a numpy array.")
    return array


def refuse_masked(spec: TensorSpec, value: Any, kind: str = "input") -> None:
    """Refuse an array with masked elements, as what is behind them is no value.

    Raises:
        FeedError: If it is one.
    """
    if isinstance(value, np.ndarray) and np.any(getattr(value, "mask", False)):
        raise misfit(spec, "elements are masked", type(value).__name__, "Fill them: array.filled(0).", kind)


def misfit(spec: TensorSpec, problem: str, found: str, hint: str = "", kind: str = "input") -> FeedError:
    """Return the error for an array that is not what ``spec`` says of an input, or of another ``kind`` of place."""
    return FeedError(problem, where=f'{kind} "{spec.name}"', expected=str(spec), found=found, hint=hint)


def _native(spec: TensorSpec, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if array.dtype.newbyteorder("=") == dtype:
        return array.astype(dtype)
    if dtype.kind == "O" and array.dtype.kind in "UT":
        try:
            return array.astype(object)
        except SystemError as error:  # what numpy raises for bytes that no text has
            raise misfit(spec, "an element is not a text", "a code beyond U+10FFFF") from error
    name = f'"{spec.dtype}"' if spec.dtype in _NUMPY else f"ml_dtypes.{spec.dtype}"
    hint = f"Convert it first, for instance with array.astype({name})."
    raise misfit(spec, "wrong dtype", array.dtype.name, hint)


def _shape_hint(spec: TensorSpec, shape: tuple[int, ...]) -> str:
    if spec.shape is not None and len(spec.shape) == len(shape) + 1:
        return "A batch dimension may be missing: try array[None]."
    return _decided(spec) or "Check the shape, or compile with shapes={...} for another one."


def _decided(spec: TensorSpec) -> str:
    return spec.reason and f"Nodes decide sizes that the model leaves open: {spec.reason}."


def bind_symbols(specs: Sequence[TensorSpec], arrays: Sequence[Any]) -> dict[str, int]:
    """Return the size of every symbol in ``specs`` as the arrays give it.

    Raises:
        FeedError: If two inputs disagree about one symbol.
    """
    sizes: dict[str, int] = {}
    origin: dict[str, TensorSpec] = {}
    for spec, array in zip(specs, arrays, strict=True):
        if spec.is_static or spec.shape is None or not hasattr(array, "shape"):
            continue
        for dim, size in zip(spec.shape, array.shape, strict=True):
            if not isinstance(dim, str):
                continue
            if sizes.setdefault(dim, size) != size:
                first = origin[dim]
                raise FeedError(
                    f'the sizes of "{dim}" differ',
                    where=f'inputs "{first.name}" and "{spec.name}"',
                    expected=f"{dim} = {sizes[dim]} as in {first.name}",
                    found=f"{dim} = {size}",
                    hint=_decided(spec) or _decided(first) or "Give both inputs the same size there.",
                )
            origin.setdefault(dim, spec)
    return sizes


def order_feeds(
    specs: Sequence[TensorSpec], args: Sequence[Any], named: Mapping[str, Any], defaults: Mapping[str, Any]
) -> list[Any]:
    """Return one value per input from positional and named arguments; ``defaults`` fill the gaps.

    Raises:
        FeedError: If an input is missing, given twice, or unknown.
    """
    given = given_by_name(specs, args, named)
    for spec in specs:
        if spec.name not in given:
            if spec.name not in defaults:
                missing = [str(s) for s in specs if s.name not in given and s.name not in defaults]
                raise FeedError(
                    "input missing",
                    where=f'input "{spec.name}"',
                    expected=f"a value for {', '.join(missing)}",
                    hint="Pass every input, by position or by name.",
                )
            given[spec.name] = defaults[spec.name]
    return [given[spec.name] for spec in specs]


def given_by_name(specs: Sequence[TensorSpec], args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs that are given by position and by name.

    Raises:
        FeedError: If one is given twice, or unknown.
    """
    names = [s.name for s in specs]
    if len(args) > len(names):
        raise FeedError("too many inputs", expected=f"{len(names)}: {', '.join(names)}", found=str(len(args)))
    given = dict(zip(names, args, strict=False))
    for name, value in named.items():
        if name not in names:
            raise FeedError(
                f'the model has no input "{name}"',
                expected=f"one of {', '.join(names)}",
                hint=did_you_mean(name, names),
            )
        if name in given:
            raise FeedError("given by position and by name", where=f'input "{name}"', hint="Pass it once.")
        given[name] = value
    return given


def array_dtype(name: str) -> np.dtype[Any]:
    """Return the dtype of arrays with elements of a type that is known to have one, such as ``"bfloat16"``."""
    dtype = TensorSpec("", name, ()).numpy_dtype
    assert dtype is not None, name
    return dtype
