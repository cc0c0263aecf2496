"""Products of real data and quantised weights on the C target: one call over the stored numbers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinycomp
from tests.targets.c.quantized.test_layers import kernels

K, N = 64, 24
TYPES = {
    "int8": (TensorProto.INT8, -128, 127),
    "uint8": (TensorProto.UINT8, 0, 255),
    "int4": (TensorProto.INT4, -8, 7),
    "uint4": (TensorProto.UINT4, 0, 15),
}


class Product:
    """A product with a quantised weight, a bias and a Relu, as a model and as numbers.

    Args:
        dtype: Of the stored weight.
        block: Numbers of the depth that share a scale; 0 for one scale per channel, -1 for one in all, -2 for one per
            number of the depth.
        op: MatMul, or Gemm with a transposed weight.
        zero_points: Whether the weight has zero points.
        rows: Leading sizes of the data.
        least: The least scale.
    """

    def __init__(
        self,
        dtype: str,
        block: int,
        op: str,
        zero_points: bool = True,
        rows: tuple[int, ...] = (5,),
        least: float = 0.01,
    ) -> None:
        rng = np.random.default_rng(3)
        kind, low, high = TYPES[dtype]
        codes = rng.integers(low, high, (K, N), endpoint=True)
        sizes = {0: (N,), -1: (), -2: (K,)}.get(block, (K // max(block, 1), N))
        scales = rng.uniform(least, 0.1, sizes).astype(np.float32)
        if least < 0 and scales.size > 1:
            scales.reshape(-1)[0] = 0
        points = rng.integers(max(low, -4), 5, sizes) * zero_points
        self.x = rng.standard_normal((*rows, K), np.float32)
        self.bias = rng.standard_normal(N).astype(np.float32)
        repeated = [np.repeat(v, block, axis=0) if block > 0 else v.reshape(-1, 1) if block == -2 else v
                    for v in (scales, points)]  # fmt: skip
        weight = (codes - repeated[1]) * repeated[0].astype(np.float64)
        self.expected = np.maximum(self.x @ weight + self.bias, 0)
        turned = op == "Gemm"
        stored = [v.T if turned and np.ndim(v) == 2 else v for v in (codes, scales, points)]
        depth = 1 if turned else 0
        attrs = {"axis": depth, "block_size": block} if block > 0 else {"axis": depth if block == -2 else 1 - depth}
        constants = [
            helper.make_tensor("codes", kind, stored[0].shape, stored[0].reshape(-1).tolist()),
            numpy_helper.from_array(np.ascontiguousarray(stored[1]), "scales"),
            helper.make_tensor("points", kind, np.shape(stored[2]), np.reshape(stored[2], -1).tolist()),
            numpy_helper.from_array(self.bias, "bias"),
        ]
        nodes = [helper.make_node("DequantizeLinear", ["codes", "scales", "points"], ["weight"], **attrs)]
        if turned:
            nodes.append(helper.make_node("Gemm", ["x", "weight", "bias"], ["sums"], transB=1))
        else:
            nodes.append(helper.make_node("MatMul", ["x", "weight"], ["product"]))
            nodes.append(helper.make_node("Add", ["product", "bias"], ["sums"]))
        nodes.append(helper.make_node("Relu", ["sums"], ["y"]))
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.x.shape)
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph(nodes, "product", [x], [y], constants)
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    def check(self, module: tinycomp.Module) -> None:
        found = module(self.x)
        np.testing.assert_allclose(found, self.expected, rtol=0, atol=2e-6 * np.abs(self.expected).max())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("block", [-1, 0, 16, 32])
@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
@pytest.mark.parametrize("zero_points", [False, True])
def test_weights_stay_quantised(dtype, block, op, zero_points):
    product = Product(dtype, block, op, zero_points)
    module = tinycomp.compile(product.model)
    assert kernels(module) == ["gemm_dequant_f32"]
    product.check(module)
    (region,) = module.report().regions
    assert region.macs == 5 * K * N
    assert region.integer_macs == 0


@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("block", [-1, 0, 16])
def test_weights_with_negative_scales_or_some_of_zero_stay_quantised(dtype, block):
    product = Product(dtype, block, "MatMul", zero_points=False, least=-0.1)
    module = tinycomp.compile(product.model)
    assert kernels(module) == ["gemm_dequant_f32"]
    product.check(module)


def test_more_dimensions_and_a_symbolic_batch():
    product = Product("int4", 32, "MatMul", rows=(2, 3))
    product.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    module = tinycomp.compile(product.model)
    product.check(module)
    assert module(product.x[:1]).shape == (1, 3, N)


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
@pytest.mark.parametrize("block", [-2, 1])
def test_scales_that_the_kernel_does_not_take_are_applied_first(block, op):
    product = Product("int8", block, op)
    module = tinycomp.compile(product.model)
    assert "gemm_dequant_f32" not in kernels(module)
    product.check(module)
