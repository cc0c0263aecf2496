"""A first target that accepts node by node gets a BERT whole, although ``c`` has composites for most of it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import tinycomp
from tinycomp.driver.lowering import Lowering
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import TensorType
from tinycomp.ops.typing import infer_node_types
from tinycomp.runtime.native.executor import Pool
from tinycomp.target import Target

WIDTH, HEADS, LENGTH, WORDS = 16, 2, 8, 20


class Builder:
    """Write a BERT node by node, with small random weights."""

    def __init__(self) -> None:
        self.graph = Graph("bert", infer=infer_node_types, opsets={"": 17})
        self.rng = np.random.default_rng(0)

    def __call__(self, op: str, *operands: Value, **attrs: object) -> Value:
        return self.graph.add(op, operands, attrs, sources=[f"{op.lower()}{len(self.graph)}"]).output

    def const(self, array) -> Value:
        return self.graph.add_const(np.asarray(array))

    def weight(self, *shape: int) -> Value:
        return self.const(self.rng.standard_normal(shape, dtype=np.float32) / 4)

    def dense(self, x: Value, width: int, out: int) -> Value:
        return self("Add", self("MatMul", x, self.weight(width, out)), self.weight(out))

    def norm(self, x: Value) -> Value:
        ones, zeros = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
        return self("LayerNormalization", x, self.const(ones), self.const(zeros), axis=-1)

    def heads(self, x: Value, perm: list[int]) -> Value:
        split = self("Reshape", x, self.const([1, LENGTH, HEADS, WIDTH // HEADS]))
        return self("Transpose", split, perm=perm)

    def attention(self, x: Value, mask: Value) -> Value:
        q, v = (self.heads(self.dense(x, WIDTH, WIDTH), [0, 2, 1, 3]) for _ in range(2))
        k = self.heads(self.dense(x, WIDTH, WIDTH), [0, 2, 3, 1])
        scores = self("Div", self("MatMul", q, k), self.const(np.float32((WIDTH / HEADS) ** 0.5)))
        mixed = self("MatMul", self("Softmax", self("Add", scores, mask), axis=-1), v)
        joined = self("Reshape", self("Transpose", mixed, perm=[0, 2, 1, 3]), self.const([1, LENGTH, WIDTH]))
        return self.dense(joined, WIDTH, WIDTH)

    def gelu(self, x: Value) -> Value:
        erf = self("Erf", self("Div", x, self.const(np.float32(2**0.5))))
        return self("Mul", self("Mul", x, self("Add", erf, self.const(np.float32(1)))), self.const(np.float32(0.5)))

    def layer(self, x: Value, mask: Value) -> Value:
        x = self.norm(self("Add", self.attention(x, mask), x))
        return self.norm(self("Add", self.dense(self.gelu(self.dense(x, WIDTH, 32)), 32, WIDTH), x))


def bert(layers: int) -> Graph:
    """Return a BERT with two inputs: words, and what is added to the scores."""
    build = Builder()
    words = build.graph.add_input("words", TensorType("int64", (1, LENGTH)))
    mask = build.graph.add_input("mask", TensorType("float32", (1, 1, 1, LENGTH)))
    x = build.norm(build("Add", build("Gather", build.weight(WORDS, WIDTH), words), build.weight(1, LENGTH, WIDTH)))
    for _ in range(layers):
        x = build.layer(x, mask)
    first = build("Gather", x, build.const(np.int64(0)), axis=1)
    pooled = build("Tanh", build("Gemm", first, build.weight(WIDTH, WIDTH), build.weight(WIDTH)))
    build.graph.set_outputs([x, pooled], ["states", "pooled"])
    return build.graph


def node_by_node(*ops: str) -> Target:
    """Return a target that accepts every node of some operators, as libraries do that take whole graphs."""
    target = Target("library")
    target.accept(*ops)

    @target.codegen
    def _(region: Node):
        plan = Lowering({}, Pool(1), reference=True).plan(region.body)
        return lambda *operands: plan.run(list(operands))

    return target


@pytest.mark.parametrize(("without", "regions"), [((), {"library": 1}), (("Gather",), {"c": 2, "library": 2})])
def test_a_bert_is_at_most_two_regions_of_the_first_target(without, regions):
    graph = bert(4)
    library = node_by_node(*({node.op for node in graph.nodes} - set(without)))
    module = tinycomp.compile(graph, [library, "c"])
    assert Counter(region.target for region in module.report().regions) == regions
    assert not module.report().hosts
    words = np.arange(LENGTH, dtype=np.int64)[None]
    feeds = {"words": words, "mask": np.zeros((1, 1, 1, LENGTH), np.float32)}
    wanted = tinycomp.compile(bert(4), "host").run(feeds)
    for name, result in module.run(feeds).items():
        np.testing.assert_allclose(result, wanted[name], rtol=1e-4, atol=1e-5)
