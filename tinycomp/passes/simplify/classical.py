"""Rules on operators of classical machine learning."""

from __future__ import annotations

import numpy as np

from tinycomp.ir.graph import Graph, Node
from tinycomp.rewrite import Rule, rule

ML = "ai.onnx.ml"


@rule((ML, "TreeEnsembleClassifier"))
def number_labels(graph: Graph, node: Node) -> bool:
    """Let a classifier whose labels are texts give numbers, which a Gather turns into texts."""
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
    table = graph.add_const(np.array([t.decode() if isinstance(t, bytes) else t for t in texts], object), "labels")
    gather = graph.add("Gather", [table, numbers.outputs[0]], {"axis": 0}, outputs=[graph.fresh(label.name)], at=node)
    graph.replace_uses(label, gather.output)
    graph.replace_uses(scores, numbers.outputs[1])
    return True


RULES: tuple[Rule, ...] = (number_labels,)
