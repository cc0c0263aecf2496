from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.cases.creation import LIMITS
from tests.ops.harness import allowed, dtype_of, run_ours
from tinycomp.errors import ExecutionError


def test_constant_text_and_sparse():
    assert run_ours("Constant", [], {"value_string": "a"})[0].item() == "a"
    assert run_ours("Constant", [], {"value_strings": ["a", "b"]})[0].tolist() == ["a", "b"]
    for indices in ([1, 5], [[0, 1], [1, 2]]):
        values = helper.make_tensor("v", TensorProto.FLOAT, [2], [3.0, 4.0])
        where = helper.make_tensor("i", TensorProto.INT64, np.shape(indices), np.ravel(indices))
        sparse = onnx.SparseTensorProto(values=values, indices=where, dims=[2, 3])
        assert run_ours("Constant", [], {"sparse_value": sparse})[0].tolist() == [[0, 3, 0], [0, 0, 4]]
    with pytest.raises(ExecutionError, match="no value attribute; expected exactly one"):
        run_ours("Constant", [], {})


def test_constant_of_shape():
    for dtype in allowed("ConstantOfShape", 25, "T2"):
        value = np.array([1], dtype_of(dtype))
        got = run_ours("ConstantOfShape", [np.array([2])], {"value": value})[0]
        assert got.dtype == value.dtype
        assert got.tolist() == [1, 1]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_range_of_narrow_numbers(limits):
    for dtype in ("int16", "float16", "bfloat16"):
        got = run_ours("Range", [np.array(v, dtype_of(dtype)) for v in limits], {}, 27)[0]
        assert got.dtype == dtype_of(dtype)
        assert got.tolist() == list(range(*limits))


def test_random_operators():
    x = np.zeros((40, 50), np.float32)
    normal = run_ours("RandomNormal", [], {"shape": [2000], "mean": 3.0, "scale": 2.0, "seed": 1.5})[0]
    assert normal.dtype == np.float32
    assert abs(normal.mean() - 3) < 0.2
    assert abs(normal.std() - 2) < 0.2
    uniform = run_ours("RandomUniformLike", [x], {"low": 2.0, "high": 4.0, "dtype": TensorProto.DOUBLE})[0]
    assert uniform.shape == x.shape
    assert uniform.dtype == np.float64
    assert 2 <= uniform.min() < 2.1 < 3.9 < uniform.max() < 4
    assert abs(run_ours("Bernoulli", [x + 0.25], {"seed": -2.0})[0].mean() - 0.25) < 0.05
    assert run_ours("RandomNormalLike", [x], {})[0].dtype == np.float32
    assert run_ours("RandomUniform", [], {"shape": [0]})[0].shape == (0,)


def test_the_same_seed_gives_the_same_values():
    for op in ("RandomNormal", "RandomUniform"):
        first, again, other = (run_ours(op, [], {"shape": [9], "seed": s})[0] for s in (1.0, 1.0, 2.0))
        assert first.tolist() == again.tolist() != other.tolist()


def test_multinomial_draws_by_weight():
    logits = np.log(np.array([[0.1, 0.2, 0.7], [1.0, 1e-9, 1e-9]], np.float32))
    got = run_ours("Multinomial", [logits], {"sample_size": 4000, "seed": 1.0})[0]
    assert got.dtype == np.int32
    np.testing.assert_allclose(np.bincount(got[0], minlength=3) / 4000, [0.1, 0.2, 0.7], atol=0.05)
    assert not got[1].any()
