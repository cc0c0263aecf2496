"""A target that generates C: chains of element-wise operators become one loop each, small matrix products three.

It shows a code generator that returns C source, which tinycomp compiles and keeps: reading a region, naming things
safely, handing constants over, asking for scratch memory. Every region is checked while compiling.
Run it with ``python examples/c_source_target.py``; it needs a C compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from math import prod

import numpy as np

import tinycomp
from tinycomp.target_api import (
    CSource,
    Graph,
    Node,
    Target,
    TensorType,
    Value,
    c_comment,
    c_identifier,
    c_number,
    partitioned,
    reject,
)

MOST_PRODUCTS = 1 << 20
ALIGNMENT = 64

TARGET = Target("scalar_c", claims_structural=False, static_shapes=True, description="plain C loops")

# {0} and {1} are operands, other names attributes. Relu is written so that NaN stays NaN.
EXPRESSIONS = {
    "Abs": "fabsf({0})",
    "Add": "{0} + {1}",
    "Div": "{0} / {1}",
    "Exp": "expf({0})",
    "LeakyRelu": "({0} < 0.0f ? {alpha} * {0} : {0})",
    "Mul": "{0} * {1}",
    "Neg": "-{0}",
    "Relu": "({0} < 0.0f ? 0.0f : {0})",
    "Sigmoid": "1.0f / (1.0f + expf(-{0}))",
    "Sqrt": "sqrtf({0})",
    "Sub": "{0} - {1}",
    "Tanh": "tanhf({0})",
}
DEFAULTS = {"LeakyRelu": {"alpha": 0.01}}


@TARGET.op(*EXPRESSIONS)
def _(node: Node):
    result = node.output.type
    if result.dtype != "float32":
        return reject(f"{node.op} is float32 only, got {result.dtype}")
    if any(v.type.shape is None for v in (*node.inputs, node.output)):
        return reject("the rank is not known")
    return all(is_tail(v, node.output) for v in node.inputs) or reject(
        "an operand must have the shape of the result, its last dimensions, or one element"
    )


@TARGET.op("MatMul")
def _(node: Node):
    left, right = (v.type for v in node.inputs)
    if left.dtype != "float32":
        return reject(f"MatMul is float32 only, got {left.dtype}")
    if left.rank != 2 or right.rank != 2:
        return reject("both operands must be matrices")
    products = prod(d for d in (*left.shape, right.shape[1]) if isinstance(d, int))
    return products <= MOST_PRODUCTS or reject(f"at most {MOST_PRODUCTS} products, got {products}")


def is_tail(operand: Value, result: Value) -> bool:
    """Whether the elements of ``operand``, repeated in a circle, are those that ``result`` needs."""
    shape = operand.type.shape
    while shape[:1] == (1,):
        shape = shape[1:]
    return result.type.shape[result.type.rank - len(shape) :] == shape


@TARGET.codegen
def build(region: Node) -> CSource:
    """Turn a region into one C function."""
    return Writer(region.body).source(region.op)


class Writer:
    """Writes the C text of one region; each value that is needed later has memory, the others are local variables."""

    def __init__(self, body: Graph) -> None:
        self.groups = [list(nodes) for _, nodes in groupby(body.nodes, loop_of)]
        self.place = {node: number for number, group in enumerate(self.groups) for node in group}
        self.body = body
        self.constants = [v for v in body.constants if v.const.size != 1]
        self.stored = [v for n in body.nodes for v in n.outputs if v in body.outputs or self.is_read_later(v)]
        self.between = [v for v in self.stored if v not in body.outputs]
        self.offsets = np.cumsum([0, *(-(-v.type.nbytes() // ALIGNMENT) * ALIGNMENT for v in self.between)]).tolist()

    def is_read_later(self, value: Value) -> bool:
        """Whether another loop reads the value."""
        return any(self.place[user] != self.place[value.producer] for user in value.users)

    def source(self, symbol: str) -> CSource:
        """Return the whole translation unit and what belongs to it."""
        function = c_identifier(symbol, "region")
        loops = [line for group in self.groups for line in self.loop(group)]
        text = [
            "#include <math.h>",
            "#include <stdint.h>",
            "",
            f"static int {function}(const void *const *inputs, void *const *outputs, const void *const *constants,",
            "    void *scratch) {",
            *self.pointers(),
            *loops,
            "  (void)constants, (void)scratch;",
            "  return 0;",
            "}",
        ]
        constants = tuple(v.const for v in self.constants)
        return CSource("\n".join(text), function, constants, scratch_bytes=self.offsets[-1])

    def pointers(self) -> Iterator[str]:
        """Give every piece of memory a name."""
        for array, values in (("inputs", self.body.inputs), ("constants", self.constants)):
            for number, value in enumerate(values):
                yield f"  const float *const {c_identifier(value.name)} = {array}[{number}];"
        for number, value in enumerate(self.body.outputs):
            yield f"  float *const {c_identifier(value.name)} = outputs[{number}];"
        for offset, value in zip(self.offsets, self.between, strict=False):
            yield f"  float *const {c_identifier(value.name)} = (float *)((char *)scratch + {offset});"

    def loop(self, group: list[Node]) -> Iterator[str]:
        """Write the loop or loops of one group."""
        if group[0].op == "MatMul":
            yield from self.product(group[0])
            return
        yield f"  for (int64_t i = 0; i < {group[0].output.type.size()}; ++i) {{"
        for node in group:
            local = c_identifier(node.output.name, "t")
            operands = [self.element(v, node) for v in node.inputs]
            attributes = {k: c_number(v, "float32") for k, v in {**DEFAULTS.get(node.op, {}), **node.attrs}.items()}
            expression = EXPRESSIONS[node.op].format(*operands, **attributes)
            yield f"    const float {local} = {expression}; {c_comment(node.label)}"
            if node.output in self.stored:
                yield f"    {c_identifier(node.output.name)}[i] = {local};"
        yield "  }"

    def element(self, value: Value, reader: Node) -> str:
        """Return the element of ``value`` that goes into element ``i`` of the result."""
        if value.producer is not None and self.place[value.producer] == self.place[reader]:
            return c_identifier(value.name, "t")
        if value.is_const and value.const.size == 1:
            return c_number(value.const.item(), "float32")
        size = value.type.size()
        return f"{c_identifier(value.name)}[{'i' if size == reader.output.type.size() else f'i % {size}'}]"

    def product(self, node: Node) -> Iterator[str]:
        """Write a matrix product, row by row so that the inner loop runs along memory."""
        (rows, depth), columns = node.inputs[0].type.static_shape, node.output.type.static_shape[1]
        result = c_identifier(node.output.name)
        a = self.entry(node.inputs[0], f"r * {depth} + k")
        b = self.entry(node.inputs[1], f"k * {columns} + c")
        yield f"  for (int64_t r = 0; r < {rows}; ++r) {{ {c_comment(node.label)}"
        yield f"    for (int64_t c = 0; c < {columns}; ++c) {result}[r * {columns} + c] = 0.0f;"
        yield f"    for (int64_t k = 0; k < {depth}; ++k)"
        yield f"      for (int64_t c = 0; c < {columns}; ++c) {result}[r * {columns} + c] += {a} * {b};"
        yield "  }"

    def entry(self, value: Value, index: str) -> str:
        """Return an entry of a matrix."""
        if value.is_const and value.const.size == 1:
            return c_number(value.const.item(), "float32")
        return f"{c_identifier(value.name)}[{index}]"


def loop_of(node: Node) -> object:
    """Neighbours with the same answer share a loop: element-wise operators with results of one shape."""
    return node if node.op == "MatMul" else node.output.type.static_shape


def gated_mlp(rows: int = 4, width: int = 8) -> Graph:
    """Return a small model with two matrix products, a gate between them, and a softmax that the target lacks."""
    rng = np.random.default_rng(0)
    graph = Graph("gated_mlp", opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (rows, width)))
    weights = [graph.add_const(rng.standard_normal((width, width)).astype(np.float32), f"w{i}") for i in range(2)]
    bias = graph.add_const(rng.standard_normal(width).astype(np.float32), "bias")
    half = graph.add_const(np.float32(0.5).reshape(()), "half")
    hidden = graph.add("MatMul", [x, weights[0]], sources=["up"]).output
    hidden = graph.add("Add", [hidden, bias], sources=["up/bias"]).output
    gate = graph.add("Sigmoid", [graph.add("Mul", [hidden, half], sources=["scale"]).output], sources=["gate"]).output
    hidden = graph.add("Mul", [hidden, gate], sources=["gated"]).output
    logits = graph.add("MatMul", [hidden, weights[1]], sources=["down"]).output
    logits = graph.add("LeakyRelu", [logits], {"alpha": 0.1}, sources=["leaky"]).output
    graph.set_outputs([graph.add("Softmax", [logits], {"axis": -1}, sources=["softmax"]).output], ["y"])
    return graph


def main() -> None:
    """Compile the model with checks, compare it with the host, and show the C text and the report."""
    graph = gated_mlp()
    module = tinycomp.compile(graph, TARGET, verify=True)
    x = np.random.default_rng(1).standard_normal(prod(module.inputs[0].shape)).astype(np.float32)
    x = x.reshape(module.inputs[0].shape)
    difference = np.abs(module(x) - tinycomp.compile(graph, "host")(x)).max()
    for node in partitioned(graph, [TARGET]).nodes:
        if node.is_region:
            print(TARGET.build(node).text, end="\n\n")
    print(module.report())
    print(f"largest difference from the host: {difference:.1e}")


if __name__ == "__main__":
    main()
