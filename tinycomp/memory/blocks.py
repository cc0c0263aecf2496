"""Memory for the arrays that a compilation makes from weights: pieces of large blocks.

Arrays of some hundred kilobytes get fresh pages of their own each, one by one at 4 KB; a block of megabytes gets huge
ones. That takes a quarter of the time, which is more than to compute what is in them.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = np.ndarray[Any, np.dtype[Any]]

_BLOCK = 8 << 20
"""Bytes of a block; numpy asks for huge pages from 4 MB on."""
_SMALL = 1 << 16
"""Bytes of arrays that stay where they are for so long that they would keep a whole block alive."""
_ALIGNMENT = 64


class _Current(threading.local):
    """The block of this thread that has room, as long as an array lies in it, and how much of it is taken."""

    block: weakref.ref[Array] | None = None
    taken = 0


_current = _Current()


def empty(shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
    """Return an array as ``np.empty`` does. The memory of a large one is freed together with that of its neighbours."""
    kind = np.dtype(dtype)
    nbytes = math.prod(shape) * kind.itemsize
    if not _SMALL <= nbytes <= _BLOCK // 2:
        return np.empty(shape, kind)
    block = None if _current.block is None else _current.block()
    if block is None or _current.taken + nbytes > block.nbytes:
        block = np.empty(_BLOCK, np.uint8)
        _current.block, _current.taken = weakref.ref(block), -block.ctypes.data % _ALIGNMENT
    start = _current.taken
    _current.taken += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
    return block[start : start + nbytes].view(kind).reshape(shape)
