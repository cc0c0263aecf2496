"""Regions that a callable of their target computes: its arguments, and the checks of its results.

A callable gets one operand per input of the region, in order. Arrays among them cannot be written: they are the
caller's, or those that other nodes will read. It returns its results in order, as a tuple or list, or the array itself
where there is one. A result is a numpy array with the dtype and sizes that the region declares; for a sequence, a list
of arrays. The callable may keep an array that it returned and use it again: the rest of the model gets a copy of what
somebody else still refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any, NoReturn

import numpy as np

from tinycomp.errors import TargetError
from tinycomp.runtime.spec import TensorSpec
from tinycomp.symbolic import Expression, Size, evaluate, size

Shape = tuple[int | None, ...]
_Wanted = list[tuple[np.dtype[Any] | None, Shape | None]]
_UNKNOWN = "?"
"""The dtype of values about which nothing is known."""
_CONTRACT = "The code generator's callable returns numpy arrays, one for each result of the region."


class CallableRegion:
    """Run the callable of a code generator as a step.

    Args:
        call: Takes the operands one by one.
        where: Target and region, for messages.
        inputs: What the region takes.
        outputs: What it gives.
    """

    def __init__(
        self, call: Callable[..., Any], where: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
    ) -> None:
        self._call = call
        self._where = where
        self._outputs = tuple(outputs)
        self._dtypes = [None if spec.dtype == _UNKNOWN else spec.numpy_dtype for spec in outputs]
        self._sizes = [None if spec.shape is None else tuple(map(_size, spec.shape)) for spec in outputs]
        self._places = _places(inputs)
        self._is_static = all(spec.is_static for spec in outputs)
        self._known: tuple[Any, _Wanted] = (None, self._wanted({}))

    def __call__(self, operands: Sequence[Any]) -> list[Any]:
        """Return the results.

        Raises:
            TargetError: If what was returned is not what the region declares.
        """
        returned = self._call(*[_sealed(x) for x in operands])
        results = [returned] if isinstance(returned, np.ndarray) else self._listed(returned)
        del returned  # which would count as a reference
        wanted = self._known[1] if self._is_static else self._wanted_for(operands)
        if len(results) != len(wanted):
            self._refuse("the region's code returned a wrong number of results", str(len(wanted)), str(len(results)))
        for i in range(len(results)):
            result = results[i]
            dtype, shape = wanted[i]
            alone = getrefcount(result) <= _REFERENCES
            if (
                type(result) is not np.ndarray or result.dtype is not dtype or result.shape != shape
                or result.base is not None or not alone
            ):  # fmt: skip
                results[i] = self._accepted(i, result, alone, wanted)
        return results

    def _listed(self, returned: Any) -> list[Any]:
        if not isinstance(returned, (tuple, list, np.generic)):
            counted = "an array" if len(self._outputs) == 1 else f"a tuple of {len(self._outputs)} arrays"
            self._refuse("the region's code returned no array", counted, _described(returned))
        return [returned] if isinstance(returned, np.generic) else [*returned]

    def _wanted_for(self, operands: Sequence[Any]) -> _Wanted:
        """Return dtypes and shapes of the results for operands of these sizes; those of the last run are remembered."""
        found = tuple([operands[i].shape[axis] for i, axis, _ in self._places])
        known, wanted = self._known
        if found != known:
            wanted = self._wanted({name: found[n] for n, (_, _, name) in enumerate(self._places)})
            self._known = found, wanted
        return wanted

    def _wanted(self, sizes: dict[str, int]) -> _Wanted:
        shapes = [None if dims is None else tuple([_known(dim, sizes) for dim in dims]) for dims in self._sizes]
        return list(zip(self._dtypes, shapes, strict=True))

    def _accepted(self, index: int, result: Any, alone: bool, wanted: _Wanted) -> Any:
        """Return a result that is not of the plainest kind as an array that others may keep; refuse what is none."""
        spec, (dtype, shape) = self._outputs[index], wanted[index]
        if not isinstance(result, (np.ndarray, np.generic)):
            if dtype is None and _may_be(spec.dtype, result):
                return result
            self._refuse(
                f'the region\'s code returned no array for "{spec.name}"', _text(spec, shape), _described(result)
            )
        array = np.asarray(result)
        if dtype is not None and array.dtype != dtype:
            if dtype.kind != "O" or array.dtype.kind not in "UT":
                self._refuse_array(spec, array, shape)
            array = array.astype(object)
        if array.shape != shape and not _admits(shape, array.shape):
            self._refuse_array(spec, array, shape)
        return array if array is not result or (alone and _owns_memory(result)) else array.copy()

    def _refuse_array(self, spec: TensorSpec, array: np.ndarray, shape: Shape | None) -> NoReturn:
        found = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
        self._refuse(f'the region\'s code returned a wrong array for "{spec.name}"', _text(spec, shape), found)

    def _refuse(self, problem: str, expected: str, found: str) -> NoReturn:
        raise TargetError(problem, where=self._where, expected=expected, found=found, hint=_CONTRACT)


def _size(dim: int | str | None) -> Size | None:
    return None if dim is None else size(dim)


def _places(inputs: Sequence[TensorSpec]) -> list[tuple[int, int, str]]:
    """Return where the operands show the size of a symbol: operand, axis and name, each name once."""
    places: dict[str, tuple[int, int, str]] = {}
    for index, spec in enumerate(inputs):
        for axis, dim in enumerate(spec.shape or ()):
            name = getattr(_size(dim), "name", None)
            if name is not None:
                places.setdefault(name, (index, axis, name))
    return list(places.values())


def _known(dim: Size | None, sizes: dict[str, int]) -> int | None:
    """Return the number that a dimension of a result is, or None where the operands do not tell."""
    if isinstance(dim, Expression):
        try:
            return evaluate(dim, sizes)
        except (KeyError, ZeroDivisionError):
            return None
    return dim


def _admits(wanted: Shape | None, shape: tuple[int, ...]) -> bool:
    if wanted is None:
        return True
    return len(wanted) == len(shape) and all(w in (None, s) for w, s in zip(wanted, shape, strict=True))


def _sealed(value: Any) -> Any:
    """Return an operand as the callable may have it: arrays as views that cannot be written."""
    if isinstance(value, np.ndarray):
        view = value.view()
        view.setflags(write=False)
        return view
    return [_sealed(each) for each in value] if isinstance(value, list) else value


def _may_be(kind: str, value: Any) -> bool:
    """Tell whether what is no array may be a value of another kind of type, which is a text here."""
    if kind.startswith("seq<"):
        return isinstance(value, list)
    return value is not None or kind.startswith("optional<")


def _text(spec: TensorSpec, shape: Shape | None) -> str:
    return spec.dtype if spec.numpy_dtype is None else str(TensorSpec("", spec.dtype, shape)).removeprefix(": ")


def _described(value: Any) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"


def _owns_memory(array: np.ndarray) -> bool:
    """Tell whether no other object refers to the memory of an array that may be a view."""
    base = array.base
    return base is None or (type(base) is np.ndarray and base.base is None and getrefcount(base) <= _REFERENCES)


def _references() -> int:
    """Count the references to an array that a list and a variable hold."""
    results = [np.empty(1)]
    result = results[0]
    return getrefcount(result)


_REFERENCES = _references()
"""References to a result, where it is looked at, that its callable does not keep."""
