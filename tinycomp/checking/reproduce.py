"""Reduce a difference to the smallest graph that still shows it, with the inputs that show it."""

from __future__ import annotations

import dataclasses
import io
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tinycomp.checking.compare import compare
from tinycomp.driver.lowering import Lowering
from tinycomp.frontend import export_model
from tinycomp.frontend.quantized_layer import take_apart
from tinycomp.ir.graph import REGION, Graph, Node
from tinycomp.runtime.files import make_folder, write_files
from tinycomp.target import Tolerance

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Reproducer:
    """A graph and its inputs.

    Attributes:
        graph: What to compute; its operators are ONNX's.
        feeds: Inputs by name.
    """

    graph: Graph
    feeds: Mapping[str, Any]

    def write(self, folder: Path | None, stem: str) -> Path:
        """Write ``<stem>.onnx`` and the inputs as ``<stem>.npz`` to a folder (None: a new temporary one).

        Returns:
            The path of the model.

        Raises:
            WriteError: If there is no space or permission.
        """
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="tinycomp-"))
        make_folder(folder)
        path, feeds = folder / f"{stem}.onnx", io.BytesIO()
        arrays: dict[str, Any] = {k: v for k, v in self.feeds.items() if isinstance(v, np.ndarray)}
        np.savez(feeds, **arrays)
        model = export_model(self.graph).SerializeToString()
        write_files({path: model, path.with_suffix(".npz"): feeds.getvalue()})
        return path


def every_value(graph: Graph, feeds: Values, lowering: Lowering) -> dict[str, Any]:
    """Return every value of a graph by name, evaluated on the numpy kernels."""
    copy = graph.clone()
    named = [v for n in copy.nodes for v in n.used_outputs()]
    copy.set_outputs(named)
    plan = dataclasses.replace(lowering, reference=True).plan(copy)
    results = plan.run([feeds[s.name] for s in plan.inputs])
    return {**feeds, **dict(zip([v.name for v in named], results, strict=True))}


def reproduce_region(node: Node, operands: Sequence[Any], lowering: Lowering) -> Reproducer:
    """Return the smallest part of a region that differs from the numpy kernels.

    Single atoms are tried first, each on the operands that the numpy kernels give; then ever longer beginnings of the
    region; at last the region itself.
    """
    body = node.body
    values = every_value(body, dict(zip([v.name for v in body.inputs], operands, strict=True)), lowering)
    atoms = [n.outputs[0].name for n in body.nodes]
    candidates = [[name] for name in atoms] + [atoms[: i + 1] for i in range(1, len(atoms))]
    for names in candidates:
        part = _outlined(body, names, node)
        if _differs(part, values, lowering):
            return _flat_reproducer(part.body, values)
    return _flat_reproducer(body, values)


def _outlined(body: Graph, names: Sequence[str], region: Node) -> Node:
    """Return a region of its own, in a copy of the body, made of the nodes that produce ``names``."""
    copy = body.clone()
    wanted = set(names)
    nodes = [n for n in copy.nodes if n.outputs[0].name in wanted]
    return copy.outline(nodes, region.op, domain=REGION, target=region.target)


def _differs(part: Node, values: Values, lowering: Lowering) -> bool:
    assert part.target is not None
    tolerance = lowering.targets[part.target].tolerance
    fresh = dataclasses.replace(lowering, programs={})
    results = fresh.region(part)([values[v.name] for v in part.body.inputs])
    names = part.body.output_names
    return any(not compare(n, f, values[n], tolerance).within for n, f in zip(names, results, strict=True))


def reproduce_pass(before: Graph, after: Graph, feeds: Values, lowering: Lowering, tolerance: Tolerance) -> Reproducer:
    """Return the part of ``before`` that a pass changed: from the last values that agree to the first that does not."""
    old, new = every_value(before, feeds, lowering), every_value(after, feeds, lowering)

    def agrees(name: str) -> bool:
        return name in new and compare(name, new[name], old[name], tolerance).within

    produced = [v.name for n in before.nodes for v in n.used_outputs()]
    wrong = next((name for name in produced if name in new and not agrees(name)), None)
    if wrong is None:
        return _flat_reproducer(before, old)
    return _flat_reproducer(_cone(before, wrong, agrees), old)


def _cone(graph: Graph, name: str, known: Callable[[str], bool]) -> Graph:
    """Return the graph that computes one value from the nearest values that are known."""
    copy = graph.clone()
    target = copy.values[name]
    nodes: dict[Node, None] = {}
    stack = [target]
    while stack:
        producer = stack.pop().producer
        if producer is None or producer in nodes:
            continue
        nodes[producer] = None
        stack.extend(v for v in producer.inputs if v is not None and not known(v.name))
    # The value must count as used outside, or outlining would not make it a result.
    copy.set_outputs([target])
    return copy.outline(nodes, "reproducer", domain=REGION).body


def _flat_reproducer(graph: Graph, values: Values) -> Reproducer:
    """Open all composites and regions, so that any ONNX tool reads the graph."""
    copy = graph.clone()
    _inline_all(copy)
    return Reproducer(copy, {v.name: values[v.name] for v in copy.inputs})


def _inline_all(graph: Graph) -> None:
    def calls() -> Iterable[Node]:
        return [n for n in graph.nodes if n.is_composite or n.is_region]

    while waiting := calls():
        for node in waiting:
            take_apart(graph, node)
