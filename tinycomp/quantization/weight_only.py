"""Quantise weights alone, to 4 bits in blocks: products with the operator MatMulNBits of ``com.microsoft``.

A weight ``[K, N]`` is cut along K into blocks, each with a scale and a zero point of its own, such that
``weight ~ scale * (number - zero point)`` with numbers from 0 to 15; the data stay in float. What chooses the numbers:

- ``minmax``: the finest step with which nothing is cut off, and the nearest number.
- ``mse``: of many scales the one with the least squared error in its block. With calibration data the errors of a row
  weigh as much as the mean square of what it is multiplied by.
- ``gptq``: row after row is rounded, and what that changes in the product is made up for in the rows that are not
  rounded yet, as far as the calibration data show how they move together (E. Frantar, S. Ashkboos, T. Hoefler,
  D. Alistarh: "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers", 2023).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray

from tinycomp.driver.models import Model, load_graph
from tinycomp.driver.pipeline import Pipeline
from tinycomp.driver.tune import Bar
from tinycomp.errors import QuantizationError, shown
from tinycomp.frontend import Shapes, export_model
from tinycomp.ir.graph import Graph, Node
from tinycomp.passes.eliminate_dead_code import EliminateDeadCode
from tinycomp.passes.fold_constants import FoldConstants
from tinycomp.quantization.calibration import CalibrationData, Watch, watched
from tinycomp.quantization.layers import RULES, Layer, Selector, select
from tinycomp.quantization.options import one_of
from tinycomp.records import dataclass

WeightMethod = Literal["minmax", "mse", "gptq"]
WEIGHT_METHODS: tuple[WeightMethod, ...] = ("minmax", "mse", "gptq")
Floats = NDArray[np.float32]
Affines = tuple[NDArray[Any], NDArray[np.uint8]]
"""Scales and zero points, each ``[blocks, N]``."""
BLOCKS = (16, 32, 64, 128, 256)
"""How many rows a block may have: what kernels for MatMulNBits take."""
ACCURACY_LEVELS = (0, 1, 2, 3, 4)
"""What MatMulNBits knows: no wish, float32, float16, bfloat16, int8."""
_HIGHEST, _MIDDLE = 15, 8
_SHARES = np.linspace(1.0, 0.5, 11, dtype=np.float32)
"""The shares of the whole range that a search tries."""
_AT_ONCE = 1 << 20
"""How many weights are searched at once, so that what a candidate needs stays small."""
_LAZY = 128
"""After how many rows GPTQ corrects those that are far away, all at once."""
_DAMPING = 0.01
"""What GPTQ adds to the diagonal of the Hessian, as a share of its mean."""


@dataclass(frozen=True)
class Blocks:
    """A weight in 4 bits.

    Attributes:
        numbers: uint8 ``[blocks, block, N]``, from 0 to 15; the rows behind the last of the weight are zero points.
        scales: In the dtype of the weight, ``[blocks, N]``.
        zero_points: uint8 ``[blocks, N]``.
    """

    numbers: NDArray[np.uint8]
    scales: NDArray[Any]
    zero_points: NDArray[np.uint8]

    def dequantize(self) -> Floats:
        """Return what the numbers stand for, float32 ``[blocks * block, N]``."""
        return _values(self.numbers, (self.scales, self.zero_points)).reshape(-1, self.scales.shape[1])


def quantize_blocks(
    weight: np.ndarray,
    block: int,
    *,
    method: WeightMethod = "mse",
    symmetric: bool = True,
    moments: np.ndarray | None = None,
) -> Blocks:
    """Quantise a weight.

    Args:
        weight: ``[K, N]``, float32 or float16.
        block: How many rows have a scale together.
        method: What chooses the numbers; ``gptq`` needs moments.
        symmetric: Whether every zero point is 8.
        moments: Of the data that the weight is multiplied by: the mean squares ``[K]``, or for ``gptq`` the mean
            products ``[K, K]``.
    """
    behind = -len(weight) % block
    rows = np.pad(weight.astype(np.float32), ((0, behind), (0, 0)))
    search = _Search(symmetric, method != "minmax", weight.dtype)
    given = np.ones(len(weight)) if moments is None else moments
    seen = np.pad(given, [(0, behind)] * given.ndim)
    if method == "gptq":
        return _gptq(rows, seen, block, search)
    groups, importance = rows.reshape(-1, block, weight.shape[1]), seen.astype(np.float32).reshape(-1, block, 1)
    step = max(1, _AT_ONCE // (block * weight.shape[1]))
    parts = [search(groups[i : i + step], importance[i : i + step]) for i in range(0, len(groups), step)]
    scales, zero_points = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Blocks(_numbers(groups, (scales, zero_points)), scales, zero_points)


@dataclass(frozen=True)
class _Search:
    """Finds scales and zero points of blocks ``[blocks, block, N]``, each ``[blocks, N]``."""

    symmetric: bool
    wide: bool
    dtype: np.dtype[Any]

    def __call__(self, groups: Floats, importance: Floats) -> Affines:
        low, high = np.minimum(groups.min(axis=1), 0), np.maximum(groups.max(axis=1), 0)
        first, *others = self._spanning(low, high)
        for other in others:
            first = _chosen(np.abs(other[0]) < np.abs(first[0]), other, first)
        if not self.wide:
            return first
        best, least = first, _cost(groups, importance, first)
        for share in _SHARES:
            for candidate in self._spanning(share * low, share * high):
                refined = self._refined(groups, importance, candidate)
                cost = _cost(groups, importance, refined)
                best, least = _chosen(cost < least, refined, best), np.minimum(cost, least)
        return best

    def _spanning(self, low: Floats, high: Floats) -> list[Affines]:
        """Return the finest steps that span a range; symmetric ones may be negative, for there is no 16."""
        if self.symmetric:
            middle = np.full(low.shape, _MIDDLE, np.uint8)
            up, down = np.maximum(-low / 8, high / 7), -np.maximum(-low / 7, high / 8)
            return [(self._stored(up), middle), (self._stored(down), middle)]
        scale = self._stored((high - low) / np.float32(_HIGHEST))
        return [(scale, np.clip(np.rint(-low / scale.astype(np.float32)), 0, _HIGHEST).astype(np.uint8))]

    def _refined(self, groups: Floats, importance: Floats, affines: Affines) -> Affines:
        """Return the scales with the least error for the numbers that others have led to (a linear regression)."""
        scales, zero_points = affines
        steps = _numbers(groups, affines).astype(np.float32) - zero_points[:, np.newaxis]
        square = (importance * steps * steps).sum(axis=1)
        fitted = (importance * steps * groups).sum(axis=1) / np.where(square > 0, square, 1)
        return self._stored(np.where(square > 0, fitted, scales)), zero_points

    def _stored(self, scale: Floats) -> NDArray[Any]:
        """Return scales as they are stored; one that is 0 there may be anything."""
        stored = scale.astype(self.dtype)
        return np.where(stored == 0, self.dtype.type(1), stored)


def _chosen(first: NDArray[np.bool_], these: Affines, those: Affines) -> Affines:
    return np.where(first, these[0], those[0]), np.where(first, these[1], those[1])


def _numbers(groups: Floats, affines: Affines) -> NDArray[np.uint8]:
    scales, zero_points = (each[:, np.newaxis].astype(np.float32) for each in affines)
    numbers: NDArray[np.uint8] = np.clip(np.rint(groups / scales) + zero_points, 0, _HIGHEST).astype(np.uint8)
    return numbers


def _values(numbers: NDArray[np.uint8], affines: Affines) -> Floats:
    scales, zero_points = (each[:, np.newaxis].astype(np.float32) for each in affines)
    values: Floats = (numbers - zero_points) * scales
    return values


def _cost(groups: Floats, importance: Floats, affines: Affines) -> Floats:
    error = _values(_numbers(groups, affines), affines) - groups
    cost: Floats = (importance * error * error).sum(axis=1)
    return cost


def _gptq(weight: Floats, moments: np.ndarray, block: int, search: _Search) -> Blocks:
    """Quantise a weight ``[blocks * block, N]`` row after row; ``moments`` are the mean products of its data."""
    factor = _inverse_factor(moments).astype(np.float32)
    importance = np.diag(moments).astype(np.float32).reshape(1, -1, 1)
    rest, numbers, chosen = weight.copy(), np.empty(weight.shape, np.uint8), list[Affines]()
    step = max(block, _LAZY)
    for start in range(0, len(weight), step):
        end = min(start + step, len(weight))
        errors = np.empty((end - start, weight.shape[1]), np.float32)
        for row in range(start, end):
            if row % block == 0:
                affines = search(rest[np.newaxis, row : row + block], importance[:, row : row + block])
                chosen.append(affines)
            numbers[row] = _numbers(rest[np.newaxis, row : row + 1], affines)[0, 0]
            value = _values(numbers[np.newaxis, row : row + 1], affines)[0, 0]
            errors[row - start] = (rest[row] - value) / factor[row, row]
            rest[row + 1 : end] -= factor[row, row + 1 : end, np.newaxis] * errors[row - start]
        rest[end:] -= factor[start:end, end:].T @ errors
    scales, zero_points = (np.concatenate(each) for each in zip(*chosen, strict=True))
    return Blocks(numbers.reshape(-1, block, weight.shape[1]), scales, zero_points)


def _inverse_factor(moments: np.ndarray) -> np.ndarray:
    """Return the upper triangular U with ``U.T @ U`` the inverse of the damped Hessian."""
    hessian = moments.astype(np.float64)
    diagonal = np.diag(hessian)
    usual = float(diagonal.mean()) or 1.0
    # What was 0 in all data may have any weight, but the matrix needs an inverse.
    hessian[np.diag_indices_from(hessian)] = np.where(diagonal > 0, diagonal, usual) + _DAMPING * usual
    return np.linalg.cholesky(np.linalg.inv(hessian)).T


@dataclass(frozen=True)
class WeightOptions:
    """How to quantise weights alone; the fields are options of :func:`tinycomp.quantize`.

    Raises:
        QuantizationError: If an option has a value that it cannot have.
    """

    method: WeightMethod = "mse"
    block: int = 32
    symmetric: bool = True
    keep_float: Selector | Iterable[Selector] = ()
    threads: int | None = None
    accuracy_level: int = 0

    def __post_init__(self) -> None:
        one_of("method", self.method, WEIGHT_METHODS)
        if self.accuracy_level not in ACCURACY_LEVELS:
            raise QuantizationError(
                "accuracy_level cannot have this value", where="accuracy_level",
                expected=f"one of {', '.join(map(str, ACCURACY_LEVELS))}", found=shown(self.accuracy_level),
            )  # fmt: skip
        if self.block not in BLOCKS:
            raise QuantizationError(
                "block cannot have this value", where="block", expected=f"one of {', '.join(map(str, BLOCKS))}",
                found=shown(self.block),
            )  # fmt: skip


def quantize_weights(
    model: Model, calibration: Iterable[Any] | None, options: WeightOptions, shapes: Shapes | None, bar: Bar
) -> onnx.ModelProto:
    """Return a model whose products with constant matrices are MatMulNBits; the rest stays what it is.

    Arguments are as for :func:`tinycomp.quantize`; there may be no ``calibration``.

    Raises:
        ModelError: If the model is not valid.
        QuantizationError: If there is nothing to quantise, or the data are missing or do not fit.
    """
    graph = load_graph(model, shapes)
    Pipeline([FoldConstants(), EliminateDeadCode()]).run(graph)
    layers = [Layer(node, RULES[node.op]) for node in graph.nodes if _is_product(node)]
    kept = select(layers, options.keep_float)
    layers = [layer for layer in layers if layer not in kept]
    if not layers:
        raise QuantizationError(
            "there is nothing to quantise", where=graph.name,
            expected="at least one MatMul or Gemm of floats with a constant matrix",
            found="all of them kept in float" if kept else "none",
        )  # fmt: skip
    if calibration is None and options.method == "gptq":
        raise QuantizationError(
            "there is no calibration data", where="calibration", expected="data for method='gptq'", found="None",
            hint='Give inputs as the model will see them, or use method="mse".',
        )  # fmt: skip
    moments = dict[str, np.ndarray]()
    if calibration is not None and options.method != "minmax":
        moments = _moments(graph, layers, calibration, options, bar)
    with bar.over("quantising", layers, len(layers)) as shown:
        for layer in shown:
            _replace(graph, layer.core, options, moments.get(layer.core.operand(0).name))
    EliminateDeadCode().run(graph)
    return export_model(graph)


def _is_product(node: Node) -> bool:
    weight = node.const(1) if node.op in ("MatMul", "Gemm") and not node.domain else None
    plain = all(node.attrs.get(name, value) == value for name, value in (("transA", 0), ("alpha", 1.0), ("beta", 1.0)))
    return (
        weight is not None
        and weight.ndim == 2
        and weight.size > 0
        and weight.dtype.name in ("float32", "float16")
        and plain
    )


def _moments(
    graph: Graph, layers: Sequence[Layer], calibration: Iterable[Any], options: WeightOptions, bar: Bar
) -> dict[str, np.ndarray]:
    """Return by the name of what a product reads the mean squares of its columns, or for GPTQ their mean products."""
    values = list(dict.fromkeys(layer.core.operand(0) for layer in layers))
    data = CalibrationData(calibration, [v.name for v in graph.inputs if v.name not in graph.defaults])
    sums: dict[str, Any] = {v.name: 0.0 for v in values}
    rows = dict.fromkeys(sums, 0)
    for where, _, arrays in watched(Watch(graph, values, options.threads), data, bar, "calibrating"):
        for name in sums:
            x = arrays[name].reshape(-1, arrays[name].shape[-1]).astype(np.float32)
            added = x.T @ x if options.method == "gptq" else np.einsum("ij,ij->j", x, x)
            if not np.isfinite(added).all():
                raise QuantizationError(
                    "a value is not finite, or too large", where=f'{where}, value "{name}"', expected="finite numbers",
                    hint="Leave this input out, or keep the layer behind the value in float.",
                )  # fmt: skip
            sums[name], rows[name] = sums[name] + added.astype(np.float64), rows[name] + len(x)
    return {name: total / max(rows[name], 1) for name, total in sums.items()}


def _replace(graph: Graph, node: Node, options: WeightOptions, moments: np.ndarray | None) -> None:
    """Put a MatMulNBits, with an Add behind it where there is a bias, into the place of a product."""
    weight = node.const(1)
    assert weight is not None
    if not np.isfinite(weight).all():
        raise QuantizationError(
            "a weight is not finite", where=f'node {node.label}, constant "{node.operand(1).name}"',
            expected="finite numbers", hint="Keep this layer in float: keep_float=.",
        )  # fmt: skip
    weight = weight.T if node.attrs.get("transB", 0) else weight
    blocks = quantize_blocks(weight, options.block, method=options.method, symmetric=options.symmetric, moments=moments)
    constants = [graph.add_const(array, node.operand(1).name) for array in packed(blocks, options.symmetric)]
    attrs = {"K": weight.shape[0], "N": weight.shape[1], "bits": 4, "block_size": options.block}
    if options.accuracy_level:
        attrs["accuracy_level"] = options.accuracy_level
    types = [node.output.type]
    product = graph.add(
        "MatMulNBits", [node.operand(0), *constants], attrs, domain="com.microsoft", version=1, types=types, at=node
    )
    bias = node.optional_operand(2) if node.op == "Gemm" else None
    if bias is not None:
        product = graph.add("Add", [product.output, bias], at=node)
    graph.replace_uses(node.output, product.output)
    graph.erase(node)


def packed(blocks: Blocks, symmetric: bool) -> list[np.ndarray]:
    """Return the operands of MatMulNBits: numbers, scales, and zero points unless they are 8, two to a byte."""
    scales = np.ascontiguousarray(blocks.scales.T)
    operands = [_pairs(blocks.numbers.transpose(2, 0, 1)), scales]
    return operands if symmetric else [*operands, _pairs(blocks.zero_points.T)]


def _pairs(numbers: np.ndarray) -> NDArray[np.uint8]:
    """Return two numbers of 4 bits in a byte, the first in the lower half; an odd one at the end has 0 beside it."""
    even = np.concatenate([numbers, np.zeros_like(numbers[..., : numbers.shape[-1] % 2])], axis=-1)
    return np.ascontiguousarray(even[..., ::2] | even[..., 1::2] << 4)
