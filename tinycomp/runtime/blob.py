"""Blobs: code for a device as bytes, which can be cached, saved, and loaded without the code generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import TargetError
from tinycomp.records import dataclass, field
from tinycomp.runtime.native.program import Array
from tinycomp.runtime.plan import Run

Call = Callable[..., Any]
"""Computes the results of a region from its operands, as a callable that a code generator returns."""


Figures = Mapping[str, float | Mapping[str, float]]
"""Numbers by name, and mappings of such numbers by the layers that they are about."""


@dataclass(frozen=True)
class Blob:
    """Hold a compiled region as bytes in a format of the target's own.

    A saved module holds the bytes; loading it gives them to the loader of the target and asks no code generator.

    Args:
        data: The bytes; None of them is looked at.
        version: Version of the compiler or format that made them; by default that of the target.
        load: Makes the function that runs the region in this process at once; without it the target's loader does.
        arrays: Weights beside the bytes, by name. What several blobs of a module name is saved once.
        figures: What the compiler estimates of the region, by name with the unit in it, such as ``"cycles"``; and under
            the name of each layer, if it knows them, a mapping of the same kind. The report shows them.

    Attributes:
        target: Name of the target; tinycomp fills it in.
        options: The target's options when the blob was made, as far as saved modules remember them; likewise.

    Raises:
        TargetError: If a part is of the wrong kind.

    Example:
        >>> Blob(b"MUL 2", version="1.0")
        Blob(version='1.0', target='', options={})
    """

    data: bytes = field(repr=False)
    version: str = ""
    load: Callable[[], Call] | None = field(default=None, repr=False, compare=False)
    arrays: Mapping[str, Array] = field(default_factory=dict, repr=False, compare=False)
    target: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    figures: Figures = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.data, (bytes, bytearray, memoryview)):
            raise TargetError("the data are not bytes", where="Blob", found=type(self.data).__name__)
        object.__setattr__(self, "data", bytes(self.data))
        if not isinstance(self.version, str):
            raise TargetError("the version is not a text", where="Blob", found=repr(self.version))
        if self.load is not None and not callable(self.load):
            raise TargetError("load cannot be called", where="Blob", found=repr(self.load))
        if not isinstance(self.arrays, Mapping) or not all(map(_is_named_array, self.arrays.items())):
            raise TargetError("not arrays", where="Blob", expected="numpy arrays by name", found=repr(self.arrays))

    @property
    def nbytes(self) -> int:
        """Return the bytes of the data and the arrays."""
        return len(self.data) + sum(array.nbytes for array in self.arrays.values())

    def to_text(self) -> str:
        """Return a short description of the blob, the counterpart of :meth:`Program.to_text`."""
        version = f" of version {self.version}" if self.version else ""
        lines = [f"blob for {self.target}{version}, {len(self.data)} bytes"]
        lines += [f"  {name}: {array.dtype.name}{list(array.shape)}" for name, array in self.arrays.items()]
        return "\n".join(lines)


def _is_named_array(item: tuple[Any, Any]) -> bool:
    return isinstance(item[0], str) and isinstance(item[1], np.ndarray)


class BlobRegion:
    """Run a loaded blob as a step.

    Args:
        blob: What was loaded.
        run: The step.
    """

    def __init__(self, blob: Blob, run: Run) -> None:
        self.blob = blob
        self._run = run

    def __call__(self, operands: Sequence[Any]) -> Sequence[Any]:
        """Return the results of the region."""
        return self._run(operands)
