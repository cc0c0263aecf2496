"""Every element type that ONNX allows for an operand, on the operands of one of ONNX's own tests of the operator."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import pytest

from tests.ops.harness import allowed, dtype_of, run_ours
from tests.ops.test_onnx_node_cases import _array, _attributes, _record, _single_node_cases, _version
from tinycomp.errors import TinycompError

REFUSED = {
    ("BitCast", "T1"): "the widths differ",  # the type it casts to stays that of the test
    ("Col2Im", "T"): "unsupported operand type",  # texts cannot be added
    ("TfIdfVectorizer", "T"): "the pool is not made of whole n-grams",
    ("Resize", "T1"): "only numbers can be interpolated",
}
"""What may be refused, with a part of the reason."""


@functools.cache
def _parameters() -> dict[tuple[str, int, str], object]:
    """Return one test per operator, version and type parameter of its operands."""
    found = {}
    for case in _single_node_cases().values():
        node, version = case.model.graph.node[0], _version(case.model)
        if version is None or node.domain or _record(case.model) is None:
            continue
        for formal in onnx.defs.get_schema(node.op_type, version, "").inputs:
            if "(" not in formal.type_str:
                found.setdefault((node.op_type, version, formal.type_str), case)
    return found


def _converted(x: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "string":
        return np.array([str(v) for v in x.reshape(-1)], dtype=object).reshape(x.shape)
    wide = x.astype(np.float32)
    with np.errstate(invalid="ignore"):  # NaN as an integer
        return (np.abs(wide) if dtype.startswith("u") else wide).astype(dtype_of(dtype))


def _operands(case: object, parameter: str, dtype: str) -> list[np.ndarray | None] | None:
    """Return the operands with those of one type parameter converted; None if they are sequences, or texts."""
    node = case.model.graph.node[0]
    formals = onnx.defs.get_schema(node.op_type, _version(case.model), "").inputs
    feeds = iter([_array(v) for v in case.data_sets[0][0]])
    operands = [next(feeds) if name else None for name in node.input]
    for index, x in enumerate(operands):
        if x is not None and formals[min(index, len(formals) - 1)].type_str == parameter:
            if not isinstance(x, np.ndarray) or x.dtype == object:
                return None
            operands[index] = _converted(x, dtype)
    return operands


@pytest.mark.parametrize("key", sorted(_parameters()), ids=lambda key: "-".join(map(str, key)))
def test_every_allowed_dtype_runs_and_is_kept(key: tuple[str, int, str]) -> None:
    op, version, parameter = key
    case = _parameters()[key]
    node = case.model.graph.node[0]
    results = onnx.defs.get_schema(op, version, "").outputs
    refused: dict[str, str] = {}
    for dtype in allowed(op, version, parameter):
        operands = _operands(case, parameter, dtype)
        if operands is None:
            continue
        try:
            with np.errstate(all="ignore"):
                made = run_ours(op, operands, _attributes(node), version, len(node.output))
        except (TinycompError, TypeError) as error:
            refused[dtype] = str(error)
            continue
        for index, y in enumerate(made):
            if results[min(index, len(results) - 1)].type_str == parameter and isinstance(y, np.ndarray):
                assert y.dtype == dtype_of(dtype), dtype
    assert not refused or (op, parameter) in REFUSED, refused
    assert all(REFUSED[op, parameter] in why for why in refused.values()), refused


def test_there_are_many() -> None:
    assert len(_parameters()) > 200
