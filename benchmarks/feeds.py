"""Random inputs for any ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper


def random_feeds(model: Path, sizes: Mapping[str, int] | None = None, seed: int = 0) -> dict[str, NDArray[np.generic]]:
    """Values for every input that has no initializer.

    Floats are normally distributed, 8-bit integers take every value, other integers and booleans are 0 or 1, so that
    they are legal indices and masks.

    Args:
        model: The ONNX file.
        sizes: Sizes of symbolic dimensions; 1 where not given.
        seed: Chooses the values.
    """
    graph = onnx.load(model, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    rng = np.random.default_rng(seed)
    return {
        value.name: _sample(value.type.tensor_type, sizes or {}, rng)
        for value in graph.input
        if value.name not in constants
    }


def _sample(kind: onnx.TypeProto.Tensor, sizes: Mapping[str, int], rng: np.random.Generator) -> NDArray[np.generic]:
    shape = tuple(dim.dim_value or sizes.get(dim.dim_param, 1) for dim in kind.shape.dim)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    if dtype in (np.int8, np.uint8):
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    if dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)
