"""Rules on operators of classical machine learning."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ops.distance import DOMAIN as OWN_DOMAIN
from tinycomp.passes.simplify.facts import FLOATS, ints, producer
from tinycomp.rewrite import Rule, rule
from tinycomp.rewrite.edits import joined_sources, take_over, version_of

ML = "ai.onnx.ml"
_SCAN_OF_ROWS = 9
"""Before this opset a Scan had a batch."""
_METRICS = {"ReduceSumSquare": "sqeuclidean", "ReduceL2": "euclidean", "ReduceL1": "cityblock"}
_TERMS = 8
"""The most terms that one kernel adds up."""
_DEGREE = 4
"""The most columns in one product."""


@rule((ML, "TreeEnsembleClassifier"))
def number_labels(graph: Graph, node: Node) -> bool:
    """Let a classifier whose labels are texts return their numbers, which a Gather turns into texts."""
    texts = node.attrs.get("classlabels_strings")
    if not texts or not node.outputs[0].name:
        return False
    attrs = {name: value for name, value in node.attrs.items() if name != "classlabels_strings"}
    attrs["classlabels_int64s"] = list(range(len(texts)))
    label, scores = node.outputs
    names = [graph.fresh(f"{label.name}_number"), graph.fresh(scores.name or "scores")]
    numbers = graph.add(
        node.op,
        node.inputs,
        attrs,
        domain=node.domain,
        version=node.version,
        outputs=names,
        at=node,
        sources=node.sources,
    )
    table = graph.add_const(np.array(texts, object), "labels")
    gather = graph.add("Gather", [table, numbers.outputs[0]], {"axis": 0}, outputs=[graph.fresh(label.name)], at=node)
    graph.replace_uses(label, gather.output)
    graph.replace_uses(scores, numbers.outputs[1])
    return True


@rule("Sum")
def split_sum(graph: Graph, node: Node) -> bool:
    """Split a Sum of many terms, as ensembles of many members have it, into sums of a few, in the same order."""
    terms = node.inputs
    if len(terms) <= _TERMS:
        return False
    first = graph.add(
        "Sum", terms[:_TERMS], outputs=[graph.fresh(node.output.name)], at=node, sources=node.sources,
        version=node.version,
    )  # fmt: skip
    rest = graph.add(
        "Sum", [first.output, *terms[_TERMS:]], outputs=[graph.fresh(node.output.name)], at=node,
        sources=node.sources, version=node.version,
    )  # fmt: skip
    graph.replace_uses(node.output, rest.output)
    return True


def _same(value: Value) -> Value:
    """Return the value that a value is a copy of."""
    while value.producer is not None and value.producer.op == "Identity":
        value = value.producer.operand(0)
    return value


def _metric(body: Graph) -> str:
    """Return the metric of a body that gives the distances of a row from all rows of a state; empty if it does not."""
    if len(body.inputs) != 2 or len(body.outputs) != 2 or _same(body.outputs[0]) is not body.inputs[0]:
        return ""
    reduction = _same(body.outputs[1]).producer
    if reduction is None or reduction.domain or reduction.attrs.get("keepdims", 1):
        return ""
    given = reduction.optional_operand(1)
    axes = reduction.attrs.get("axes", ()) if given is None or given.const is None else given.const.tolist()
    if [int(axis) for axis in axes] not in ([1], [-1]):
        return ""
    inner = _same(reduction.operand(0)).producer
    metric = _METRICS.get(reduction.op, "")
    if reduction.op == "ReduceSum" and inner is not None and (inner.op, inner.domain) == ("Abs", ""):
        inner, metric = _same(inner.operand(0)).producer, "cityblock"
    if inner is None or (inner.op, inner.domain) != ("Sub", ""):
        return ""
    return metric if {_same(v) for v in inner.inputs if v is not None} == set(body.inputs) else ""


@rule("Scan")
def scan_to_distances(graph: Graph, node: Node) -> bool:
    """Replace a Scan that computes distances row by row, as converters of nearest neighbours write, by one operator."""
    if len(node.inputs) != 2 or node.captures or node.version < _SCAN_OF_ROWS:
        return False
    places = [f"scan_{side}_{what}" for side in ("input", "output") for what in ("axes", "directions")]
    if int(node.attrs.get("num_scan_inputs", 0)) != 1 or any(any(node.attrs.get(name, ())) for name in places):
        return False
    rows, points = node.operand(0), node.operand(1)
    metric = _metric(node.body)
    if not metric or rows.dtype != points.dtype or rows.dtype not in ("float32", "float64"):
        return False
    if rows.rank != 2 or points.rank != 2:
        return False
    state, found = node.outputs
    names = [graph.fresh(found.name or "distances") for _ in range(2)]
    distances = graph.add(
        "Distances", [rows, points], {"metric": metric}, domain=OWN_DOMAIN, version=1, outputs=names[:1], at=node,
        sources=node.sources,
    )  # fmt: skip
    across = graph.add(
        "Transpose", [distances.output], {"perm": [1, 0]}, outputs=names[1:], at=node, sources=node.sources
    )
    graph.replace_uses(state, rows)
    graph.replace_uses(found, across.output)
    return True


def _columns_of_product(graph: Graph, value: Value) -> tuple[Value, list[int]] | None:
    """Return a matrix and the columns whose product a value is, if the value has one reader; otherwise None."""
    product = producer(value, "ReduceProd")
    gather = producer(product.inputs[0], "Gather") if product is not None else None
    if product is None or gather is None or graph.use_count(value) != 1 or graph.use_count(gather.output) != 1:
        return None
    source, columns = gather.operand(0), gather.const(1)
    keeps = product.attrs.get("keepdims", 1) and ints(product, 1, "axes") in ([1], [-1])
    if not keeps or source.rank != 2 or gather.attrs.get("axis", 0) not in (1, -1) or columns is None:
        return None
    if columns.ndim != 1 or not 0 < len(columns) <= _DEGREE or source.dtype not in FLOATS:
        return None
    return source, [int(column) for column in columns]


@rule("Concat")
def multiply_columns(graph: Graph, node: Node) -> bool:
    """Replace a Concat of products of columns, as polynomial features are written, by products of whole matrices."""
    if node.output.rank != 2 or node.attrs.get("axis") not in (1, -1):
        return False
    joined = [node.operand(i) for i in range(len(node.inputs))]
    found = [(value, _columns_of_product(graph, value)) for value in joined]
    parts: list[Value] = []
    for same, run in itertools.groupby(found, lambda each: each[1] and (each[1][0], len(each[1][1]))):
        members = list(run)
        if same is None or len(members) == 1:
            parts += [value for value, _ in members]
        else:
            columns = [each[1] for _, each in members if each is not None]
            parts.append(_product(graph, node, [value for value, _ in members], same[0], columns))
    if len(parts) == len(node.inputs):
        return False
    join = graph.add(
        "Concat", parts, node.attrs, outputs=[graph.fresh(node.output.name)], at=node, sources=node.sources,
        version=node.version,
    )  # fmt: skip
    return take_over(graph, node, join)


def _product(
    graph: Graph, node: Node, products: Sequence[Value], source: Value, columns: Sequence[Sequence[int]]
) -> Value:
    """Add the products of columns as one matrix, a column each."""
    makers = [value.producer for value in products]
    makers += [maker.operand(0).producer for maker in makers if maker is not None]
    sources = joined_sources(*(maker for maker in makers if maker is not None))
    result: Value | None = None
    for factor in zip(*columns, strict=True):
        taken = graph.add(
            "Gather", [source, graph.add_const(np.array(factor, np.int64), "columns")], {"axis": 1},
            outputs=[graph.fresh(products[0].name)], at=node, sources=sources, version=version_of(graph, "Gather"),
        ).output  # fmt: skip
        result = taken if result is None else graph.add(
            "Mul", [result, taken], outputs=[graph.fresh(products[0].name)], at=node, sources=sources,
            version=version_of(graph, "Mul"),
        ).output  # fmt: skip
    assert result is not None
    return result


RULES: tuple[Rule, ...] = (number_labels, split_sum, scan_to_distances, multiply_columns)
