"""Matrix products on the C target: packed constant weights where there are any, strided operands elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.layout import reshaped
from tinycomp.ir.types import numpy_dtype
from tinycomp.lazy import LazyModule
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.records import dataclass
from tinycomp.rewrite import reject
from tinycomp.runtime.native.processor import default_isa, isa_shape
from tinycomp.symbolic import Size, broadcast_shapes, product
from tinycomp.targets.c.codegen.element_program import TYPES, repeating
from tinycomp.targets.c.codegen.emitter import OWN_BLOCKS, Emitter, Params, Strided, View
from tinycomp.targets.c.codegen.epilogue import Fused, epilogue_operands, take_apart
from tinycomp.targets.c.codegen.placement import destination, element_size
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank
from tinycomp.targets.common.checks import Verdict, all_of, dtypes, float32, is_known, sized_type, surely_equal

if TYPE_CHECKING:
    from tinycomp.targets.c.codegen import batches
else:
    batches = LazyModule("tinycomp.targets.c.codegen.batches")

FAMILY = LoweringRules()


def _addend_check(node: Node) -> Verdict:
    addend = node.optional_operand(2)
    if addend is None:
        return True
    shape = getattr(addend.type, "shape", None)
    result = getattr(node.output.type, "shape", None)
    if shape is None or result is None:
        return reject("the shape of C is unknown")
    if not is_known(addend):
        if node.attrs.get("beta", 1.0) != 1.0:
            return reject(f"C is not a constant and is scaled by {node.attrs['beta']}")
        return surely_equal(shape, result) or reject(f"C is not a constant and has shape {shape}, not {result}")
    is_known_row = isinstance(result[-1], int)
    vector = is_known_row and math.prod(d if isinstance(d, int) else 0 for d in shape) in (1, result[-1])
    rows_only = len(shape) == 2 and shape[0] != 1
    return (vector and not rows_only) or shape == result or reject(f"C of shape {shape} is neither a row nor full")


matmul_check = all_of(float32, known_rank)
OTHER_NUMBERS = ("float64", "int32", "uint32", "int64", "uint64")
"""What MatMul multiplies besides float32, as it is: there are no composites of such products."""


def _multiplied(node: Node) -> Verdict:
    dtype = node.operand(0).dtype
    return dtypes(dtype if dtype in OTHER_NUMBERS else "float32")(node)


gemm_check = all_of(float32, known_rank, _addend_check)


@FAMILY.lower("MatMul", check=all_of(_multiplied, known_rank), layout=LayoutRule.ROW_MAJOR)
def matmul(emit: Emitter, node: Node) -> None:
    """Emit one matrix product, batched or not."""
    if node.operand(0).dtype in OTHER_NUMBERS:
        _lower_typed(emit, node)
    else:
        lower_matmul(emit, take_apart(node), node)


def _lower_typed(emit: Emitter, node: Node) -> None:
    a, b = factors(emit, node.operand(0), node.operand(1))
    operands, params = geometry(emit, node, node.output, a, b, "abc")
    emit.call("matmul", [*operands], {"type": TYPES[node.output.dtype], **params}, node)


@FAMILY.lower("Gemm", check=gemm_check, layout=LayoutRule.ROW_MAJOR)
def gemm(emit: Emitter, node: Node) -> None:
    """Emit ``alpha A B + beta C``."""
    lower_gemm(emit, take_apart(node), node)


@dataclass(slots=True)
class Matrix:
    """One operand of a product as (batch…, rows, columns), with element strides."""

    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    view: View
    width: int
    """Bytes of an element."""

    @classmethod
    def of(cls, value: Value, where: Strided, vector: str = "") -> Matrix:
        """Return a value as it lies; a one-dimensional one is a ``"row"`` or a ``"column"``."""
        shape, steps = sized_type(value)[1], where.strides
        if len(shape) == 1:
            before = vector == "row"
            shape, steps = ((1, *shape), (0, *steps)) if before else ((*shape, 1), (*steps, 0))
        return cls(shape, steps, where.view, element_size(value))

    def transposed(self) -> Matrix:
        """Return the same elements with rows and columns exchanged."""
        shape, steps = self.shape, self.strides
        turned = (*steps[:-2], steps[-1], steps[-2])
        return Matrix((*shape[:-2], shape[-1], shape[-2]), turned, self.view, self.width)

    def walk(self, batch: Sequence[Size]) -> batches.Walk:
        """Return how the matrices are walked over ``batch`` dimensions, along some of which they may be repeated."""
        missing = len(batch) - (len(self.shape) - 2)
        walked = zip(self.shape[:-2], batch[missing:], self.strides[:-2], strict=True)
        steps = [0] * missing + [repeating(*dim) for dim in walked]
        return batches.Walk(self.view, steps, self.shape[-2:], self.strides[-2:], self.width)


def lower_matmul(emit: Emitter, fused: Fused, node: Node) -> None:
    """Emit ONNX's MatMul with its epilogue."""
    a, b = fused.factors
    bias, residual = epilogue_operands(emit, fused, axis=-1)
    if len(sized_type(b)[1]) == 2 and b.const is not None:
        rows = product(sized_type(a)[1][:-1])
        _emit_packed(emit, fused, node, rows, b.const, bias, residual)
        return
    _emit_strided(emit, fused, node, *factors(emit, a, b), bias, residual, 1.0)


def factors(emit: Emitter, a: Value, b: Value) -> tuple[Matrix, Matrix]:
    """Return the operands of a MatMul as matrices, where they lie."""
    return Matrix.of(a, emit.strided(a), "row"), Matrix.of(b, emit.strided(b, adjacent=False), "column")


def lower_gemm(emit: Emitter, fused: Fused, node: Node) -> None:
    """Emit ONNX's Gemm with its epilogue; alpha and beta go into the constants."""
    attrs = fused.anchor.attrs
    a, b, addend = (*fused.operands, None)[:3]
    assert a is not None
    assert b is not None
    alpha, beta = float(attrs.get("alpha", 1.0)), float(attrs.get("beta", 1.0))
    trans_a, trans_b = bool(attrs.get("transA", 0)), bool(attrs.get("transB", 0))
    addends = fused.addends
    scaled: list[Value] = []
    if addend is not None:
        scaled.append(_scaled(emit, addend, beta))
    plain = Fused(fused.anchor, (a, b), (*scaled, *addends), fused.activation, fused.output)
    bias, residual = epilogue_operands(emit, plain, axis=-1)
    if b.const is not None and not trans_a:
        weights = b.const.T if trans_b else b.const
        weights = weights if alpha == 1.0 else weights * np.float32(alpha)
        _emit_packed(emit, fused, node, sized_type(a)[1][0], weights, bias, residual)
        return
    a_matrix = Matrix.of(a, emit.strided(a))
    b_matrix = Matrix.of(b, emit.strided(b, adjacent=False))
    a_matrix = a_matrix.transposed() if trans_a else a_matrix
    b_matrix = b_matrix.transposed() if trans_b else b_matrix
    _emit_strided(emit, fused, node, a_matrix, b_matrix, bias, residual, alpha)


def _scaled(emit: Emitter, value: Value, factor: float) -> Value:
    """Return ``value`` times ``factor``: at compile time for a constant; other factors than 1 need one."""
    if factor == 1.0:
        return value
    assert value.const is not None, value
    return emit.graph.add_const(value.const * np.float32(factor), f"{value.name}_scaled")


def _emit_packed(
    emit: Emitter,
    fused: Fused,
    node: Node,
    rows: Size,
    weights: np.ndarray,
    bias: View | None,
    residual: View | None,
) -> None:
    depth, columns = weights.shape
    left = rows_of(emit, fused.operands[0], rows, depth)
    # A transposed view of a C-contiguous array is packed from the original: no copy at compile time.
    trans_b = not weights.flags.c_contiguous and weights.T.flags.c_contiguous
    stored = weights.T if trans_b else weights
    half = _kept_in_half(emit, stored, rows)
    rounds = half is not None and half.dtype.name == "bfloat16" and _rounds(emit)
    params: dict[str, float | Size] = {
        "m": rows,
        "n": columns,
        "k": depth,
        "lda": left.strides[0],
        "ldc": columns,
        "ldr": columns,
        "trans_b": int(trans_b),
        **fused.activation.params(),
    }
    params |= {} if half is None else {"type": TYPES[half.dtype.name]}
    params |= OWN_BLOCKS if half is None or rounds else {}
    packed = emit.constant(stored if half is None else half)
    kernel = "gemm_f32" if half is None else "gemm_bf16_f32" if rounds else "gemm_half_f32"
    emit.call(kernel, [fused.output, left.view, packed, bias, residual], params, node)


LARGE_WEIGHTS = 1 << 20
"""Bytes in float32 from which on memory decides how fast a product of few rows is."""
MANY_ROWS = 16
"""From more rows on, weights that are widened again and again cost more than the memory that they save."""


def _kept_in_half(emit: Emitter, weights: np.ndarray, rows: Size) -> np.ndarray | None:
    """Return float32 weights in the half precision that they are to be kept in, or None."""
    if weights.nbytes < LARGE_WEIGHTS:
        return None
    if _rounds(emit) and (half := in_half_precision(weights, ("bfloat16",))) is not None:
        return half
    is_many = isinstance(rows, int) and rows > MANY_ROWS
    return None if is_many else in_half_precision(weights)


def _rounds(emit: Emitter) -> bool:
    """Tell whether factors may be rounded to bfloat16, and are multiplied faster then."""
    return emit.settings.rounds and isa_shape(default_isa()).pairs


def in_half_precision(weights: np.ndarray, halves: Sequence[str] = ("float16", "bfloat16")) -> np.ndarray | None:
    """Return float32 weights in the first of some dtypes that holds every one of them exactly, else None."""
    for half in map(numpy_dtype, halves):
        step = max(weights.size // 64, 1)
        if _narrowed(weights.reshape(-1)[::step], half) is not None:  # a few tell for almost all weights
            found = _narrowed(weights, half)
            if found is not None:
                return found
    return None


def _narrowed(weights: np.ndarray, half: np.dtype[Any]) -> np.ndarray | None:
    with np.errstate(over="ignore", invalid="ignore"):
        found = weights.astype(half)
        exact = np.array_equal(found.astype(np.float32), weights)
    return found if exact and np.isfinite(weights).all() else None


def rows_of(emit: Emitter, value: Value | None, rows: Size, depth: Size) -> Strided:
    """Return a value as one matrix, read in place if its rows are evenly spaced."""
    assert value is not None
    where = emit.strided(value)
    steps = reshaped(sized_type(value)[1], where.strides, (rows, depth))
    if steps is None or depth == 1:
        return Strided(emit.view(value), (depth, 1))
    return Strided(where.view, (depth if rows == 1 else steps[0], 1))


def _emit_strided(
    emit: Emitter,
    fused: Fused,
    node: Node,
    a: Matrix,
    b: Matrix,
    bias: View | None,
    residual: View | None,
    alpha: float,
) -> None:
    operands, params = geometry(emit, node, fused.output, a, b, "abcr")
    params = {**params, "block_rows": 0, "alpha": alpha, **fused.activation.params()}
    emit.call("matmul_f32", [*operands, bias, residual], params, node)


def geometry(
    emit: Emitter, node: Node, output: Value, a: Matrix, b: Matrix, letters: str
) -> tuple[list[View | Value], Params]:
    """Return where a batched product is written and its factors are, and the parameters that say how everything lies.

    Args:
        emit: Holds the places.
        node: The node that is lowered.
        output: The product.
        a: Its left factor.
        b: Its right factor.
        letters: What the kernel calls the factors, the product, and, if it adds one, a residual, which is in order.
    """
    rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    is_matrix = len(batch) <= _BATCH_DIMS and not {0, 1} & {rows, columns}
    result = destination(emit, output) if is_matrix else None
    plain = [rows * columns * product(batch[i + 1 :]) for i in range(len(batch))]
    written = [*result.strides[:-2]] if result is not None and len(result.strides) > 2 else plain
    target = emit.view(output) if result is None else result.view
    walks = [a.walk(batch), b.walk(batch), batches.Walk(target, written), batches.Walk(target, plain)]
    sizes, walks = batches.in_two(emit, node, batch, walks[: len(letters)])
    params = {"batch0": sizes[0], "batch1": sizes[1], "m": rows, "n": columns, "k": depth}
    for letter, walk in zip(letters, walks, strict=True):
        outer, inner = walk.steps
        params |= {f"{letter}_batch0": outer, f"{letter}_batch1": inner, f"{letter}_row": columns}
    for letter, factor in zip(letters, walks[:2], strict=False):
        params |= {f"{letter}_row": factor.strides[0], f"{letter}_column": factor.strides[1]}
    if result is not None:
        params |= {f"{letters[2]}_row": result.strides[-2]}
    return [target, walks[0].place, walks[1].place], params


_BATCH_DIMS = 2
"""So many batch dimensions are walked where they lie."""
