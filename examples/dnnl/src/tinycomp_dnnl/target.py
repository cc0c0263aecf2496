"""What oneDNN takes: patterns that become one primitive with post-ops, their checks, and operator rules."""

from __future__ import annotations

from collections.abc import Iterable

from tinycomp.target_api import (
    Match,
    Node,
    P,
    Remark,
    Target,
    Tolerance,
    Value,
    ValuePattern,
    activations,
    checks,
    reject,
    tensor,
)
from tinycomp_dnnl.composites import PRODUCTS, UNARY
from tinycomp_dnnl.interface import BINARY
from tinycomp_dnnl.library import load
from tinycomp_dnnl.lowering import OPERATORS, VIEWS, generate
from tinycomp_dnnl.program import Program

Answer = bool | Remark

TARGET = Target(
    "dnnl",
    tolerance=Tolerance(rtol=1e-4, atol=1e-5),
    description="oneDNN's float32 primitives with post-ops, from a package of its own",
    requires=load,
    static_shapes=True,
)

# Composites: one primitive each. Earlier ones win. --------------------------------------------------------------------


def _finished(product: ValuePattern, residual: ValuePattern) -> ValuePattern:
    """A product, then a sum, then an activation: post-ops in this order; one of the two must be there."""
    added = P.Add(product, residual)
    return activations.any_activation(added | product) | added


@TARGET.composite
def conv(x: ValuePattern, w: ValuePattern, b: ValuePattern, r: ValuePattern) -> ValuePattern:
    """A convolution with bias, residual and activation."""
    return _finished(P.Conv(x, w, b | P.absent), r)


@TARGET.composite
def gemm(x: ValuePattern, w: ValuePattern, b: ValuePattern, r: ValuePattern) -> ValuePattern:
    """A product of two matrices with bias, residual and activation."""
    return _finished(P.Gemm(x, w, b | P.absent), r)


@TARGET.composite
def matmul(x: ValuePattern, w: ValuePattern, b: ValuePattern, r: ValuePattern) -> ValuePattern:
    """A batch of products with bias, residual and activation."""
    return _finished(P.optional(P.Add, P.MatMul(x, w), b), r)


@TARGET.composite
def eltwise(a: ValuePattern, b: ValuePattern, x: ValuePattern) -> ValuePattern:
    """An activation, however it is written, of arithmetic on two tensors or of anything."""
    return activations.any_activation(P.any_of(*(getattr(P, op)(a, b) for op in BINARY), x))


# Checks ---------------------------------------------------------------------------------------------------------------

MAX_RANK = 6
"""Most dimensions of an operand; the library's own limit is 12, most of its kernels stop earlier."""


def _sizes(node: Node) -> Answer:
    """Whether all ranks are known and no operand is empty."""
    for value in (*node.inputs, *node.used_outputs()):
        shape = () if value is None else tensor(value.type).shape
        if shape is None:
            return reject(f'the rank of "{value.name if value else ""}" is unknown')
        if len(shape) > MAX_RANK or 0 in shape:
            return reject(f'"{value.name if value else ""}" has shape {shape}; ranks go up to {MAX_RANK}, sizes from 1')
    return True


_floats = checks.all_of(checks.dtypes("float32"), _sizes)
_images = checks.all_of(_floats, checks.ranks(3, 4, 5))


def _addends(node: Node, others: Iterable[Value | None], axis: int) -> Answer:
    """Whether what is added to a product is constants per channel and at most one tensor of the result's shape."""
    result, residuals = tensor(node.output.type), 0
    for value in filter(None, others):
        if value.const is not None and checks.channel_vector(value.const, result, axis) is not None:
            continue
        if not checks.surely_equal(tensor(value.type).shape, result.shape):
            return reject(f'"{value.name}" is {value.type}: neither constants per channel nor like {result}')
        residuals += 1
    return residuals <= 1 or reject("two residuals; a primitive adds one")


_conv = checks.all_of(_images, checks.constant(1, 2))


def _factor(node: Node) -> Answer:
    weights = node.inputs[1]
    assert weights is not None
    factor = node.attrs.get("alpha", 1.0)
    return factor == 1.0 or weights.is_const or reject(f"alpha is {factor} and B is not a constant to put it into")


def _matrices(node: Node) -> Answer:
    """A product with a vector on the right has no channels for the bias to belong to."""
    ranks = [tensor(v.type).rank for v in node.inputs if v is not None]
    return ranks[1] != 1 or reject("the second operand is a vector")


_gemm = checks.all_of(_floats, _factor, lambda node: _addends(node, node.inputs[2:], -1))
_PRODUCT_CHECKS = {"Conv": (_conv, 1), "Gemm": (_gemm, -1), "MatMul": (checks.all_of(_floats, _matrices), -1)}
"""The check of each product, and the channel axis of its result."""


@conv.check
@gemm.check
@matmul.check
def _(match: Match) -> Answer:
    product = next(n for n in match.matched if n.op in PRODUCTS)
    check, axis = _PRODUCT_CHECKS[product.op]
    verdict = check(product)
    if isinstance(verdict, Remark):
        return verdict
    added = [match.bindings.get(name) for name in (("r",) if product.op == "Conv" else ("r", "b"))]
    itself = next((v for v in added if v is not None and v.producer in match.matched), None)
    if itself is not None:
        return reject(f'"{itself.name}" is added to itself')
    return _addends(product, added, axis)


def _broadcast(node: Node) -> Answer:
    """Whether one operand has the result's shape: the first, or any if their order does not matter."""
    if len(node.inputs) != 2 or "axis" in node.attrs or node.attrs.get("broadcast"):
        return reject("not two operands that broadcast as in numpy")
    result = tensor(node.output.type).shape
    shapes = [tensor(v.type).shape for v in node.inputs if v is not None]
    if checks.surely_equal(shapes[0], result) or (
        checks.surely_equal(shapes[1], result) and node.op not in ("Sub", "Div")
    ):
        return True
    return reject(f"operands of shapes {shapes[0]} and {shapes[1]}: only the second may be broadcast")


_binary = checks.all_of(_floats, _broadcast)


@eltwise.check
def _(match: Match) -> Answer:
    if match.bindings.get("x") is not None:
        return _floats(match.root)
    # The activation may hold arithmetic too, but behind the pattern's own.
    return _binary(next(n for n in match.nodes if n.op in BINARY))


# Operator rules: nodes that become a primitive by themselves. ---------------------------------------------------------

TARGET.op("Conv")(_conv)
TARGET.op("Gemm")(_gemm)
TARGET.op("MatMul", "Concat", "Softmax", "LogSoftmax", *UNARY)(_floats)
TARGET.op(*BINARY)(_binary)
TARGET.op("GlobalAveragePool", "GlobalMaxPool")(_images)


@TARGET.op("MaxPool", "AveragePool")
def _pool(node: Node) -> Answer:
    if len(node.used_outputs()) > 1:
        return reject("the indices of the maxima are asked for")
    if node.attrs.get("count_include_pad", 0) and node.attrs.get("ceil_mode", 0):
        return reject("windows that reach beyond the padding would count cells that are not there")
    return checks.all_of(_images, _rounding, _dilation)(node)


def _dilation(node: Node) -> Answer:
    """Whether a mean is none that the library refuses: with gaps, and counting only cells that are there."""
    attrs = node.attrs
    counts = node.op == "AveragePool" and not attrs.get("count_include_pad", 0)
    partial = any(attrs.get("pads", ())) or attrs.get("auto_pad", "").startswith("SAME") or attrs.get("ceil_mode", 0)
    gaps = max(attrs.get("dilations", (1,))) > 1
    return not (counts and partial and gaps) or reject("a dilated mean that leaves the padding out")


def _rounding(node: Node) -> Answer:
    """Whether rounding up, if it is asked for, starts from sizes that are known."""
    known = tensor(checks.first(node).type).static_shape is not None
    return known or not node.attrs.get("ceil_mode", 0) or reject("rounding up needs known sizes")


@TARGET.op("ReduceMean")
def _mean(node: Node) -> Answer:
    """A mean over the spatial axes is a pooling."""
    verdict = checks.all_of(checks.dtypes("float32", operands=(0,)), _sizes, checks.ranks(3, 4, 5), checks.constant(1))(
        node
    )
    if isinstance(verdict, Remark):
        return verdict
    given = checks.operand(node, 1)
    found = node.attrs.get("axes", ()) if given is None or given.const is None else given.const.tolist()
    rank = len(tensor(checks.first(node).type).shape or ())
    axes = sorted(int(a) % rank for a in found)
    return axes == list(range(2, rank)) or reject(f"a mean over the axes {axes}, not over the spatial ones")


@TARGET.op(*VIEWS)
def _view(node: Node) -> Answer:
    """A change of shape costs nothing beside work of the target, and is not worth a region elsewhere."""
    verdict = checks.all_of(checks.dtypes("float32", operands=(0,)), _sizes, checks.constant(1))(node)
    if isinstance(verdict, Remark):
        return verdict
    beside = [checks.first(node).producer, *node.output.users]
    works = any(n is not None and (n.target == TARGET.name or n.op in OPERATORS.keys() - {*VIEWS}) for n in beside)
    return works or reject("nothing next to it runs on the target")


@TARGET.codegen
def build(region: Node) -> Program:
    """Turn a region, whose shapes are static, into a list of primitives."""
    return generate(region, load())
