"""Reduce a difference to the smallest graph that still shows it, with the inputs that show it."""

from __future__ import annotations

import dataclasses
import io
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tinycomp.checking.compare import Difference, compare
from tinycomp.driver.lowering import Lowering
from tinycomp.frontend import export_model
from tinycomp.ir.graph import REGION, Graph, Node
from tinycomp.ir.types import EIGHT_BITS
from tinycomp.ops import zero_points
from tinycomp.quantized import Rounding
from tinycomp.records import dataclass
from tinycomp.runtime.files import make_folder, write_files
from tinycomp.runtime.plan import Run
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


def every_value(graph: Graph, feeds: Values, lowering: Lowering, rounding: Rounding = "float") -> dict[str, Any]:
    """Return every value of a graph by name, evaluated on the numpy kernels."""
    copy = graph.clone()
    named = [v for n in copy.nodes for v in n.used_outputs()]
    copy.set_outputs(named)
    plan = dataclasses.replace(lowering, reference=True).plan(copy, rounding)
    results = plan.run([feeds[s.name] for s in plan.inputs])
    return {**feeds, **dict(zip([v.name for v in named], results, strict=True))}


def reproduce_region(node: Node, operands: Sequence[Any], lowering: Lowering) -> Reproducer:
    """Return the smallest part of a region that differs from the numpy kernels.

    Single atoms are tried first, each on the operands that the numpy kernels give; then ever longer beginnings of the
    region; at last the region itself.
    """
    body, values = node.body, reference_values(node, operands, lowering)
    atoms = [n.outputs[0].name for n in body.nodes]
    candidates = [[name] for name in atoms] + [atoms[: i + 1] for i in range(1, len(atoms))]
    for names in candidates:
        part = _outlined(body, names, node)
        if not all(d.within for d in _differences(part, _built(part, lowering), values, lowering)):
            return _flat_reproducer(part.body, values)
    return _flat_reproducer(body, values)


def reference_values(region: Node, operands: Sequence[Any], lowering: Lowering) -> dict[str, Any]:
    """Return every value of a region by name, evaluated on the numpy kernels."""
    feeds = dict(zip([v.name for v in region.body.inputs], operands, strict=True))
    return every_value(region.body, feeds, lowering, lowering.rounding_of(region))


def is_layer(node: Node) -> bool:
    """Tell whether a node of a region computes stored numbers from stored numbers as one quantised layer."""
    if not node.is_composite and not zero_points(node):
        return False
    operands = [v for v in node.inputs if v is not None and not v.is_const]
    exact = all(v.dtype in {*EIGHT_BITS, "int32"} for v in node.used_outputs())
    return exact and all(v.dtype in EIGHT_BITS for v in operands)


def alone(region: Node, atom: Node, values: Values, lowering: Lowering) -> list[Difference]:
    """Build one node of a region alone, and compare its results on the reference's operands.

    A quantised layer is compared on any numbers, and on the ends of their range, as well, which reach both ends of its
    results; and on few numbers among zeros, again and again, so that every weight counts in results between the ends.
    """
    part = _outlined(region.body, [atom.outputs[0].name], region)
    run = _built(part, lowering)
    found = _differences(part, run, values, lowering)
    if not is_layer(atom):
        return found
    rng, names = np.random.default_rng(0), [v.name for v in part.body.inputs]
    plan = dataclasses.replace(lowering, reference=True).plan(part.body, lowering.rounding_of(region))
    zeros = _zero_points(atom)
    again = min(max(_NUMBERS // max(sum(values[name].size for name in names), 1), 1), _MOST_RUNS)
    for draw in (_any_numbers, _ends, *[_few_numbers] * again):
        feeds = {name: draw(values[name], zeros[name], rng) for name in names}
        wanted = plan.run([feeds[name] for name in names])
        feeds |= dict(zip(part.body.output_names, wanted, strict=True))
        other = _differences(part, run, feeds, lowering)
        found = [max(pair, key=lambda d: (not d.within, d.largest)) for pair in zip(found, other, strict=True)]
    return found


_NUMBERS, _MOST_RUNS = 1 << 17, 64
"""So many numbers one quantised layer is compared on, in at most so many runs."""


def _zero_points(atom: Node) -> dict[str, int]:
    """Return what stands for 0 in the operands of a node, by their names, as far as that is said."""
    outer = [v for v in atom.inputs if v is not None]
    formals = atom.body.inputs if atom.is_composite else outer
    points = {}
    for value, formal in zip(outer, formals, strict=True):
        reader = next((user for user in formal.users if user.op == "DequantizeLinear"), None)
        point = None if reader is None else reader.const(2)
        points[value.name] = 0 if point is None else int(point.reshape(-1)[0])
    return points


def _any_numbers(like: np.ndarray, zero: int, rng: np.random.Generator) -> np.ndarray:
    """Return stored numbers, of any size, in the shape of others."""
    info = np.iinfo(like.dtype)
    return rng.integers(info.min, info.max, like.shape, like.dtype, endpoint=True)


def _few_numbers(like: np.ndarray, zero: int, rng: np.random.Generator) -> np.ndarray:
    """Return one number of any size among seven that stand for 0, in the shape of others."""
    return np.where(rng.random(like.shape) < 1 / 8, _any_numbers(like, zero, rng), np.asarray(zero, like.dtype))


def _ends(like: np.ndarray, zero: int, rng: np.random.Generator) -> np.ndarray:
    """Return the least and the greatest stored number, in the shape of others."""
    info = np.iinfo(like.dtype)
    return rng.choice(np.array([info.min, info.max], like.dtype), like.shape)


def _outlined(body: Graph, names: Sequence[str], region: Node) -> Node:
    """Return a region of its own, in a copy of the body, made of the nodes that produce ``names``."""
    copy = body.clone()
    wanted = set(names)
    nodes = [n for n in copy.nodes if n.outputs[0].name in wanted]
    return copy.outline(nodes, region.op, domain=REGION, target=region.target)


def _built(part: Node, lowering: Lowering) -> Run:
    return dataclasses.replace(lowering, programs={}, callables={}, natives={}, answers={}).region(part)


def _differences(part: Node, run: Run, values: Values, lowering: Lowering) -> list[Difference]:
    assert part.target is not None
    tolerance = lowering.targets[part.target].tolerance
    results = run([values[v.name] for v in part.body.inputs])
    single = part.body.nodes[0] if len(part.body) == 1 else None
    steps = tolerance.steps if single is not None and is_layer(single) else None
    names = part.body.output_names
    return [compare(n, f, values[n], tolerance, steps) for n, f in zip(names, results, strict=True)]


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
            graph.inline(node)
