"""Patterns and a checked run of the pass, for the tests of composite merging."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinycomp.ir import Graph, Node
from tinycomp.ir.verify import verify
from tinycomp.passes.merge_composite import MergeComposite
from tinycomp.rewrite import Composite, P

SQUARE = np.ones((4, 4), np.float32)


def merge(graph: Graph, *functions: Any) -> list[Node]:
    """Merge, verify, and return the composites."""
    composites = [f if isinstance(f, Composite) else Composite.trace(f, target="npu") for f in functions]
    MergeComposite(composites).run(graph)
    verify(graph)
    return [n for _, n in graph.walk() if n.is_composite]


def ops_of(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes]


def conv_relu(x, w=P.const):
    return P.Relu(P.Conv(x, w))


def dense(x, w=P.const):
    return P.MatMul(x, w)


def dense_relu(x, w=P.const):
    return P.Relu(P.MatMul(x, w))


def dense_add_relu(x, y, w=P.const):
    return P.Relu(P.MatMul(x, w) + y)
