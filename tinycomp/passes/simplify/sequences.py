"""Rules on sequences and optionals whose elements are known: what reads an element reads the tensor itself.

A sequence that nothing else reads is then dead, and the nodes around it are between tensors, which targets take.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinycomp.errors import TypeInferenceError
from tinycomp.ir.graph import TINYCOMP, Graph, Node, Value
from tinycomp.ir.types import UNKNOWN, OptionalType, TensorType
from tinycomp.ops.body_types import retype
from tinycomp.rewrite import rule
from tinycomp.rewrite.edits import bypass, replace_by_constant, replace_results, take_over, version_of
from tinycomp.rewrite.traits import has_trait

_MOST = 1024
"""The longest sequence that is analysed."""
_AXES_OPERAND = 13
"""From this opset on the axes of Unsqueeze and Squeeze are operands."""


def _position(node: Node, index: int, low: int, high: int, default: int) -> int | None:
    """Return a constant position counted from the front, where ``low`` to ``high`` are allowed; None for others."""
    value = node.optional_operand(index)
    if value is None:
        return default
    if value.const is None or value.const.size != 1:
        return None
    position = int(value.const.reshape(-1)[0])
    if not low <= position <= high:
        return None
    return position if position >= 0 else position - low


def _elements(value: Value) -> list[Value] | None:
    """Return the elements of a sequence, if they follow from the nodes that make it."""
    edits: list[Node] = []
    while value.producer is not None and value.producer.op in ("SequenceInsert", "SequenceErase"):
        edits.append(value.producer)
        value = edits[-1].operand(0)
        if len(edits) > _MOST:
            return None
    source = value.producer
    if source is None or source.domain or source.op not in ("SequenceConstruct", "SequenceEmpty"):
        return None
    elements = [v for v in source.inputs if v is not None]
    for edit in reversed(edits):
        count = len(elements)
        if edit.op == "SequenceInsert":
            at = _position(edit, 2, -count, count, count)
            if at is not None:
                elements.insert(at, edit.operand(1))
        else:
            at = _position(edit, 1, -count, count - 1, count - 1)
            if at is not None:
                del elements[at]
        if at is None:
            return None
    return elements


@rule("SequenceAt")
def read_element(graph: Graph, node: Node) -> bool:
    """Replace an element of a known sequence by the tensor itself."""
    elements = _elements(node.operand(0))
    if elements is None:
        return False
    at = _position(node, 1, -len(elements), len(elements) - 1, 0)
    return at is not None and bypass(graph, node, elements[at])


@rule("SequenceLength")
def count_elements(graph: Graph, node: Node) -> bool:
    """Replace the length of a known sequence by a constant."""
    elements = _elements(node.operand(0))
    if elements is None:
        return False
    replace_by_constant(graph, node.output, np.array(len(elements), np.int64))
    return True


@rule("ConcatFromSequence")
def join_elements(graph: Graph, node: Node) -> bool:
    """Replace the join of a known sequence by one of tensors."""
    elements = _elements(node.operand(0))
    if not elements:
        return False
    axis = int(node.attrs["axis"])
    if node.attrs.get("new_axis", 0):
        elements = [_axis_changed(graph, node, "Unsqueeze", value, axis) for value in elements]
    new = graph.add(
        "Concat", elements, {"axis": axis}, version=version_of(graph, "Concat"), sources=node.sources, at=node
    )
    return take_over(graph, node, new)


def _axis_changed(graph: Graph, at: Node, op: str, value: Value, axis: int) -> Value:
    """Return a value with an axis more (Unsqueeze) or less (Squeeze)."""
    version = version_of(graph, op)
    if version < _AXES_OPERAND:
        return graph.add(op, [value], {"axes": [axis]}, version=version, sources=at.sources, at=at).output
    axes = graph.add_const(np.array([axis], np.int64), "axes")
    return graph.add(op, [value, axes], version=version, sources=at.sources, at=at).output


@rule("SplitToSequence")
def split_to_tensors(graph: Graph, node: Node) -> bool:
    """Replace a split into a sequence, of which only elements are read, by one into tensors."""
    x, given = node.operand(0), node.optional_operand(1)
    others = {user.qualified_op for user in node.output.users if not has_trait(user, "handle")}
    if others - {"SequenceMap", "ConcatFromSequence"}:
        return False
    axis = int(node.attrs.get("axis", 0))
    version = version_of(graph, "Split")
    sizes, count = _sizes(node, x, given), _given_sizes(given)
    if sizes and len(sizes) <= _MOST:
        if version < _AXES_OPERAND:
            split = graph.add("Split", [x], {"axis": axis, "split": sizes}, version=version, sources=node.sources,
                              outputs=len(sizes), at=node)  # fmt: skip
        else:
            lengths = graph.add_const(np.array(sizes, np.int64), "split")
            split = graph.add("Split", [x, lengths], {"axis": axis}, version=version, sources=node.sources,
                              outputs=len(sizes), at=node)  # fmt: skip
    elif 0 < count <= _MOST and version >= _AXES_OPERAND and x.rank is not None:
        split = graph.add("Split", [x, given], {"axis": axis}, version=version, sources=node.sources, outputs=count,
                          at=node)  # fmt: skip
    else:
        return False
    pieces = list(split.outputs)
    if given is None and not node.attrs.get("keepdims", 1):
        pieces = [_axis_changed(graph, node, "Squeeze", piece, axis) for piece in pieces]
    return replace_results(graph, node, [_made(graph, node, pieces)])


def _made(graph: Graph, node: Node, elements: Sequence[Value]) -> Value:
    """Return the sequence of some elements, made where a node is."""
    version = version_of(graph, "SequenceConstruct")
    return graph.add("SequenceConstruct", elements, version=version, sources=node.sources, at=node).output


def _sizes(node: Node, x: Value, given: Value | None) -> Sequence[int] | None:
    """Return the sizes of the pieces, if they are known, fit the axis and are few."""
    axis, shape = int(node.attrs.get("axis", 0)), x.shape
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    total = shape[axis]
    if given is not None and given.const is not None and given.const.ndim:
        sizes = [int(n) for n in given.const]
        fits = min(sizes, default=0) >= 0 and (not isinstance(total, int) or sum(sizes) == total)
        return sizes if fits and isinstance(total, int) else None
    if not isinstance(total, int) or (given is not None and given.const is None):
        return None
    step = 1 if given is None or given.const is None else int(given.const)
    if step < 1 or total > step * _MOST:
        return None
    return [min(step, total - start) for start in range(0, total, step)]


def _given_sizes(given: Value | None) -> int:
    """Return how many sizes a run determines; 0 if their number is unknown, or the sizes are known already."""
    shape = None if given is None or given.is_const or given.dtype != "int64" else given.static_shape
    return shape[0] if shape is not None and len(shape) == 1 else 0


@rule("If")
def choose_elements(graph: Graph, node: Node) -> bool:
    """Let an If choose between the elements of sequences that both branches make, and make one sequence after it."""
    branches = [node.bodies[key] for key in ("then_branch", "else_branch")]
    made: dict[int, list[list[Value]]] = {}
    for index, result in enumerate(node.outputs):
        lists = [_elements(body.outputs[index]) for body in branches]
        known = [elements for elements in lists if elements]
        if result.name and len(known) == len(lists) and len({*map(len, known)}) == 1:
            made[index] = known
    if not made:
        return False
    for number, body in enumerate(branches):
        chosen = [made[i][number] if i in made else [v] for i, v in enumerate(body.outputs)]
        body.set_outputs(
            [v for elements in chosen for v in elements],
            [f"{name}_{place}" if i in made else name for i, name in enumerate(body.output_names)
             for place in range(len(chosen[i]))],
        )  # fmt: skip
    counts = [len(made[i][0]) if i in made else 1 for i in range(len(node.outputs))]
    bodies, node.bodies = node.bodies, {}
    new = graph.add("If", node.inputs, node.attrs, version=node.version, outputs=sum(counts), bodies=bodies,
                    captures=node.captures, sources=node.sources, at=node)  # fmt: skip
    rest = iter(new.outputs)
    chosen = [[next(rest) for _ in range(count)] for count in counts]
    results = [_made(graph, node, each) if i in made else each[0] for i, each in enumerate(chosen)]
    return replace_results(graph, node, results)


@rule("SequenceMap")
def map_elements(graph: Graph, node: Node) -> bool:
    """Put the body in the place of a map over known elements, once for each."""
    body, own = node.bodies["body"], node.inputs[: len(node.inputs) - node.captures]
    columns = [_column(value) for value in own]
    count = len(columns[0] or ())
    if not 0 < count * max(len(body.nodes), 1) <= _MOST:
        return False
    rows: list[list[Value | None]] = []
    for place in range(count):
        row: list[Value | None] = []
        for value, elements in zip(own, columns, strict=True):
            if elements is None or (elements and len(elements) != count):
                return False
            row.append(elements[place] if elements else value)
        rows.append([*row, *node.inputs[len(own) :]])
    bodies = [_typed(body, row) for row in rows]
    known = [each for each in bodies if each is not None]
    if len(known) != count:
        return False
    calls = [
        graph.add(body.name, row, domain=f"{TINYCOMP}.element", version=1, outputs=len(each.outputs),
                  types=[v.type for v in each.outputs], bodies={"body": each}, sources=node.sources, at=node)
        for row, each in zip(rows, known, strict=True)
    ]  # fmt: skip
    columns_made = zip(*(call.outputs for call in calls), strict=True)
    replace_results(graph, node, [_made(graph, node, elements) for elements in columns_made])
    for call in calls:
        graph.inline(call)
    return True


def _column(value: Value | None) -> list[Value] | None:
    """Return what a map hands to its body, one element after the other: none of a tensor, which it hands on whole.

    Returns:
        None where that is not known.
    """
    if value is None or value.type == UNKNOWN:
        return None
    return [] if isinstance(value.type, TensorType) else _elements(value) or None


def _typed(body: Graph, operands: Sequence[Value | None]) -> Graph | None:
    """Return a copy of a body with the types that follow from operands; None where these do not fit."""
    copy = body.clone()
    try:
        retype(copy, [UNKNOWN if v is None else v.type for v in operands])
    except TypeInferenceError:
        return None
    return copy


@rule("OptionalGetElement")
def get_element(graph: Graph, node: Node) -> bool:
    """Replace the element of what is no optional, or has just become one, by the element."""
    value = node.operand(0)
    made = value.producer
    if made is not None and made.op == "Optional" and not made.domain and made.inputs and made.inputs[0] is not None:
        return bypass(graph, node, made.operand(0))
    return _is_element(value) and bypass(graph, node, value)


@rule("OptionalHasElement")
def has_element(graph: Graph, node: Node) -> bool:
    """Replace the question whether there is an element by its answer, where that is known."""
    value = node.optional_operand(0)
    made = None if value is None else value.producer
    if made is not None and made.op == "Optional" and not made.domain:
        answer = made.optional_operand(0) is not None
    elif value is None or _is_element(value):
        answer = value is not None
    else:
        return False
    replace_by_constant(graph, node.output, np.array(answer))
    return True


def _is_element(value: Value) -> bool:
    """Tell whether a value is surely no optional."""
    return (
        not isinstance(value.type, OptionalType)
        and value.type != UNKNOWN
        and (not isinstance(value.type, TensorType) or value.type.dtype != UNKNOWN.dtype)
    )


RULES = (
    read_element, count_elements, join_elements, split_to_tensors, choose_elements, map_elements, get_element,
    has_element,
)  # fmt: skip
