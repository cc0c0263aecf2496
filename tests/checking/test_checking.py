"""Comparing numbers: what counts as a difference, the values that are made up, and the regions under test."""

from __future__ import annotations

import numpy as np
import pytest

from tinycomp.checking import compare, compare_regions, random_feeds
from tinycomp.data import digits, digits_model
from tinycomp.driver.compiler import Compiler
from tinycomp.driver.models import load_graph
from tinycomp.driver.targets import resolve_targets
from tinycomp.errors import MemoryLimitError, VerifyError
from tinycomp.runtime.native.executor import Pool
from tinycomp.runtime.spec import TensorSpec
from tinycomp.target import Tolerance

LOOSE = Tolerance(rtol=1e-3, atol=0.0)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("found", "reference", "within"),
    [
        (floats(1, 100), floats(1.05, 100), True),
        (floats(1, 100), floats(1.2, 100), False),
        (floats(np.nan, np.inf), floats(np.nan, np.inf), True),
        (floats(np.nan), floats(1), False),
        (floats(1), floats(np.nan), False),
        (floats(np.inf), floats(-np.inf), False),
        (floats(np.inf, 1), floats(1, 1), False),
        (floats(), floats(), True),
        (floats(1), floats(1, 1), False),
        (floats(1), np.array([1.0]), False),
        (np.array([3], np.int8), np.array([4], np.int8), True),
        (np.array([3], np.int8), np.array([5], np.int8), False),
        (np.array([0, 255], np.uint8), np.array([255, 0], np.uint8), False),
        (np.array(["a", "b"], object), np.array(["a", "b"], object), True),
        (np.array(["a", "b"], object), np.array(["a", "c"], object), False),
        ([1, 2], [1, 2], True),
        (None, None, True),
        (None, 1, False),
    ],
)
def test_differences(found, reference, within):
    assert compare("y", found, reference, LOOSE).within is within


def test_made_up_values_fit_and_are_the_same_every_time():
    specs = [
        TensorSpec("f", "float16", ("N", 3)), TensorSpec("b", "bool", (4,)), TensorSpec("i", "int64", (50,)),
        TensorSpec("q", "int8", (50,)), TensorSpec("h", "bfloat16", ()),
    ]  # fmt: skip
    first, second = random_feeds(specs), random_feeds(specs)
    for spec in specs:
        assert first[spec.name].dtype == spec.numpy_dtype
        np.testing.assert_array_equal(first[spec.name], second[spec.name])
    assert first["f"].shape == (2, 3)
    assert first["i"].min() >= 0
    assert not np.array_equal(first["f"], random_feeds(specs, seed=1)["f"])
    for spec in (
        TensorSpec("s", "string", (2,)),
        TensorSpec("u", "float32", None),
        TensorSpec("l", "sequence(x)", None),
    ):
        with pytest.raises(VerifyError, match=f"{spec.name}: .*cannot make up values for this input"):
            random_feeds([spec])


def test_made_up_values_keep_to_the_budget():
    for dtype in ("float32", "bool", "int64"):
        for shape in ((1, 1 << 40, 1 << 20), (0, 1 << 70)):
            with pytest.raises(MemoryLimitError, match=r'input "x": more memory would be needed'):
                random_feeds([TensorSpec("x", dtype, shape)])


@pytest.mark.parametrize("quantized", [False, True])
def test_regions_are_compared_on_what_they_really_get(quantized):
    compiler = Compiler(resolve_targets("c"), Pool(1))
    graph = load_graph(digits_model(quantized), {"image": (3, 1, 8, 8)})
    checks = compare_regions(compiler.partition(graph), compiler.lowering(), {"image": digits()[0][:3]})
    assert [c.target for c in checks] == ["c"]
    assert all(c.within for c in checks)
    assert {d.name for c in checks for d in c.differences} != set()
