"""ONNX's node tests of quantised numbers, and of conversions between numbers, run wholly on the C target."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tinycomp

QUANTISED = frozenset({
    "ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul",
    "QuantizeLinear",
})  # fmt: skip
CONVERSIONS = frozenset({"Cast", "CastLike"})


@functools.cache
def cases() -> tuple[Any, ...]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(case for case in load_model_tests(kind="node") if not has_text(case))


def has_text(case: Any) -> bool:
    """Whether a text goes in or comes out: no kernel in C knows texts."""
    values = [*case.model.graph.input, *case.model.graph.output]
    return any(v.type.tensor_type.elem_type == onnx.TensorProto.STRING for v in values)


def array(value: Any) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


@pytest.mark.parametrize(
    ("operators", "among", "at_least"),
    [(QUANTISED, any, 45), (CONVERSIONS, all, 170)],  # others use conversions on the way to something else
    ids=["quantised", "conversions"],
)
def test_every_case_runs_on_the_c_target_with_the_right_numbers(
    operators: frozenset[str], among: Callable[[Iterable[bool]], bool], at_least: int
):
    chosen = [c for c in cases() if among(node.op_type in operators for node in c.model.graph.node)]
    assert len(chosen) >= at_least
    for case in chosen:
        module = tinycomp.compile(case.model, "c")
        assert not module.report().hosts, case.name
        for inputs, outputs in case.data_sets:
            results = module.run({spec.name: array(x) for spec, x in zip(module.inputs, inputs, strict=False)})
            for result, wanted in zip(results.values(), map(array, outputs), strict=True):
                assert result.dtype == wanted.dtype, case.name
                both = [x.astype(np.float32) for x in (result, wanted)]
                np.testing.assert_allclose(*both, rtol=1e-6, err_msg=case.name)
