"""Calibration data: an iterable of inputs, checked one by one as they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

import numpy as np

from tinycomp.errors import QuantizationError

Feeds = dict[str, np.ndarray]
_HINT = 'Give an iterable of inputs, each a dict such as {"%s": array}; of a model with one input, the array will do.'


class CalibrationData:
    """Inputs of a model, one after another.

    Args:
        given: An iterable of inputs: a dict of arrays by name each, or the array of the only input.
        names: The inputs of the model.

    Raises:
        QuantizationError: If it is not an iterable of inputs.
    """

    def __init__(self, given: Iterable[Any], names: list[str]) -> None:
        self._given, self._names = given, names
        if isinstance(given, (Mapping, np.ndarray, str, bytes)) or not hasattr(given, "__iter__"):
            found = f"an array of shape {list(given.shape)}" if isinstance(given, np.ndarray) else type(given).__name__
            raise self._wrong("not an iterable of inputs", "calibration", found)

    @property
    def repeatable(self) -> bool:
        """Whether it can be gone through more than once."""
        return iter(self._given) is not self._given

    def __len__(self) -> int:
        """How many inputs there are; 0 if only going through them would tell."""
        return len(self._given) if isinstance(self._given, Sized) else 0

    def __iter__(self) -> Iterator[tuple[str, Feeds]]:
        """Yield every input with what it is called in messages.

        Raises:
            QuantizationError: If there is none, or one is not a dict of arrays, is empty or holds what is not finite.
        """
        number = -1
        for number, item in enumerate(self._given):
            where = f"calibration input {number}"
            feeds = self._named(item, where)
            _check_not_empty(feeds, where)
            for name, array in feeds.items():
                _check_finite(array, f'{where}, "{name}"')
            yield where, feeds
        if number < 0:
            hint = "The first pass over a generator uses it up; give a list." if not self.repeatable else ""
            raise QuantizationError(
                "no calibration data", where="calibration", expected="inputs that the model will see", found="none",
                hint=hint,
            )  # fmt: skip

    def _named(self, item: Any, where: str) -> Feeds:
        if isinstance(item, Mapping):
            return {str(name): np.asarray(array) for name, array in item.items()}
        if isinstance(item, np.ndarray) and len(self._names) == 1:
            return {self._names[0]: item}
        raise self._wrong("not the inputs of the model", where, type(item).__name__)

    def _wrong(self, message: str, where: str, found: str) -> QuantizationError:
        wanted = f"arrays by name: {', '.join(self._names)}"
        return QuantizationError(message, where=where, expected=wanted, found=found, hint=_HINT % self._names[0])


def _check_not_empty(feeds: Feeds, where: str) -> None:
    # Some inputs may be empty, such as the past of a model that generates text.
    if feeds and not any(array.size for array in feeds.values()):
        shapes = ", ".join(f"{name} of shape {list(array.shape)}" for name, array in feeds.items())
        raise QuantizationError(
            "calibration data must have elements", where=where, expected="an input that shows something",
            found=shapes, hint="Leave this input out.",
        )  # fmt: skip


def _check_finite(array: np.ndarray, where: str) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise QuantizationError(
            "calibration data must be finite", where=where, expected="finite numbers",
            found=f"{array[place]} at {list(place)}", hint="Leave this input out.",
        )  # fmt: skip
