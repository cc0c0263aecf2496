"""Targets whose regions are built for a few numbers of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinycomp
from tests.analysis.test_independent_rows import RNG, graph_of
from tests.driver.test_static_shapes import target_of
from tinycomp.data import digits, digits_model
from tinycomp.errors import TargetError
from tinycomp.ir.graph import Node
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types


def counting(built: list[int], *ops: str, **options: Any) -> tinycomp.Target:
    """Return a target that notes for how many rows its regions are built."""
    target = target_of(*ops, **options)
    build = target.build

    @target.codegen
    def noted(region: Node) -> Any:
        built.append(region.body.inputs[0].shape[0])
        return inner(region)

    inner = target_of(*ops, **options).build
    assert build is not None
    return target


@pytest.mark.parametrize(("rows", "wanted"), [(1, [1]), (2, [4]), (4, [4]), (5, [4, 1]), (7, [4]), (0, [0]), (12, [4])])
def test_regions_are_built_for_these_numbers_of_rows(rows: int, wanted: list[int]) -> None:
    built: list[int] = []
    graph = graph_of("%y: float32[N, 4, 6] = Softmax(%x) {axis = -1}")
    module = tinycomp.compile(graph, counting(built, "Softmax", buckets=(4, 1)), strict=True)
    arrays = [RNG.standard_normal((rows, *shape)).astype(np.float32) for shape in ((4, 6), (6, 4), (4,))]
    for _ in range(2):
        np.testing.assert_allclose(module(*arrays), tinycomp.compile(graph, "host")(*arrays), rtol=1e-6)
    assert built == wanted


def test_other_regions_are_built_for_each_set_of_sizes() -> None:
    built: list[int] = []
    graph = graph_of("%y: float32[N, 4, 6] = Softmax(%x) {axis = 0}")
    module = tinycomp.compile(graph, counting(built, "Softmax", buckets=(4, 1)), strict=True)
    for rows in (2, 3, 2):
        arrays = [RNG.standard_normal((rows, *shape)).astype(np.float32) for shape in ((4, 6), (6, 4), (4,))]
        np.testing.assert_allclose(module(*arrays), tinycomp.compile(graph, "host")(*arrays), rtol=1e-6)
    assert built == [2, 3]


def test_several_operands_and_results() -> None:
    text = """graph @g opset {"" = 17} (%x: float32[N, 4], %z: float32[N, 4], %s: float32[1, 4]) -> (%y, %r) {
      %k: int64[3] = const [-1, 2, 2]
      %a: float32[N, 4] = Add(%x, %z) from ["add"]
      %r: float32[N, 4] = Mul(%a, %s) from ["mul"]
      %y: float32[N, 2, 2] = Reshape(%r, %k) from ["reshape"]
    }"""
    graph = parse_graph(text, infer=infer_node_types)
    module = tinycomp.compile(graph, target_of("Add", "Mul", "Reshape", buckets=(2, 4)), strict=True)
    for rows in range(10):
        x, z = (RNG.standard_normal((rows, 4)).astype(np.float32) for _ in range(2))
        s = np.arange(4, dtype=np.float32)[None]
        y, r = module(x, z, s)
        np.testing.assert_array_equal(r, (x + z) * s)
        np.testing.assert_array_equal(y, r.reshape(rows, 2, 2))


def test_a_model_on_buckets_guesses_the_same() -> None:
    images = digits()[0][:37]
    ops = ("Conv", "Relu", "Add", "MaxPool", "GlobalAveragePool", "Reshape", "Gemm", "Softmax")
    module = tinycomp.compile(digits_model(), target_of(*ops, buckets=(1, 8)), strict=True)
    np.testing.assert_allclose(module(images), tinycomp.compile(digits_model())(images), atol=1e-5)


def test_what_is_no_number_of_rows_is_refused() -> None:
    for wrong in ((0,), (8, -1), (1.5,), ("8",)):
        with pytest.raises(TargetError, match=r"buckets: .*; expected (numbers above 0|Seq)"):
            tinycomp.Target("npu", buckets=wrong)
