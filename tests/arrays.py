"""Arrays as others hand them over: where no number is aligned, and where nobody may write."""

from __future__ import annotations

import numpy as np


def unaligned(array: np.ndarray) -> np.ndarray:
    raw = np.empty(array.nbytes + 1, np.uint8)
    view = np.frombuffer(raw.data, array.dtype, array.size, offset=1).reshape(array.shape)
    assert not view.flags.aligned
    view[...] = array
    return view


def read_only(array: np.ndarray) -> np.ndarray:
    copy = array.copy()
    copy.flags.writeable = False
    return copy
