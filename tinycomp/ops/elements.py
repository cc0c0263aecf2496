"""Sizes that are elements of integer operands: the end of a Slice, the k of a TopK, the shape of an Expand.

A program reads such elements where a run begins, as it reads dimensions: they have names of their own
(:func:`tinycomp.symbolic.element`), and the contents of what follows from them are expressions. So whatever computes
the elements has to be done before: :func:`element_sources` says which values a region has to begin behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tinycomp.errors import TypeInferenceError
from tinycomp.ir.graph import TINYCOMP, Graph, Node, Value
from tinycomp.ir.proto import NUMBER_BY_DTYPE
from tinycomp.ir.types import TensorType, tensor
from tinycomp.ops import OPS
from tinycomp.ops.agreement import elements_read
from tinycomp.ops.body_types import retype
from tinycomp.ops.rule import states_for_another
from tinycomp.ops.typing import has_contents, infer_node_types
from tinycomp.symbolic import Expression, element, has_elements, product

MOST = 8
"""Elements of an operand that are read."""


def is_readable(value: Value) -> bool:
    """Tell whether a value is a tensor so small that its elements may be sizes."""
    shape = value.static_shape
    is_known = value.is_const or not isinstance(value.type, TensorType) or shape is None
    return not is_known and value.dtype in ("int32", "int64") and product(shape or ()) <= MOST


def sizing_operands(node: Node) -> list[Value]:
    """Return the operands whose elements decide sizes of a node and do not follow from sizes of others."""
    operator = OPS.of(node.op, node.domain)
    sizing: Iterable[int] = () if operator is None else operator.sizing
    if states_for_another(node):
        sizing = elements_read(node)
    elif node.domain or not sizing or node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return []  # a Resize that keeps ratios finds its sizes in floats
    operands = [node.optional_operand(index) for index in sizing]
    return [value for value in operands if value is not None and is_readable(value) and not _is_followed(value)]


def with_elements(value: Value) -> TensorType:
    """Return the type of a readable value in which every element that is not known has a name."""
    type_, known = tensor(value.type), value.contents
    held = known or (None,) * int(product(value.static_shape or ()))
    return replace(type_, contents=tuple([element(value.name, i) if e is None else e for i, e in enumerate(held)]))


def element_sources(nodes: Iterable[Node]) -> dict[Value, frozenset[str]]:
    """Return the values of which elements have to be read for the sizes of nodes, with the names of these elements.

    ``nodes`` belong to one graph and stand producers first.
    """
    nodes = list(nodes)
    wanted = [value for node in nodes for value in sizing_operands(node)]
    if not wanted:
        return {}
    cone = _cone(wanted)
    shadow = Graph("elements", infer=infer_node_types)
    copies: dict[Value, Value] = {}
    sources: dict[str, Value] = {}

    def operand(value: Value) -> Value:
        if value not in copies:
            if value.const is not None:
                copies[value] = shadow.add_const(value.const, shadow.fresh(value.name))
            else:
                read(value)
        return copies[value]

    def read(value: Value) -> None:
        type_ = value.type
        if is_readable(value) and not _is_followed(value):
            type_ = with_elements(value)
            sources.update(dict.fromkeys(_names(type_), value))
        copies[value] = shadow.add_input(shadow.fresh(value.name), type_)

    for node in cone:
        try:
            copy = shadow.add(
                node.op, [v and operand(v) for v in node.inputs], node.attrs, domain=node.domain,
                version=node.version, outputs=[v.name and shadow.fresh(v.name) for v in node.outputs],
            )  # fmt: skip
        except TypeInferenceError:
            continue  # its results are read as they are
        results = zip(node.outputs, copy.outputs, strict=True)
        copies |= {v: result for v, result in results if v.name and (_is_followed(result) or not is_readable(v))}
    needed = {name for value in wanted for name in _names(tensor(operand(value).type))}
    found: dict[Value, frozenset[str]] = {}
    for name in sorted(needed & sources.keys()):
        found[sources[name]] = found.get(sources[name], frozenset()) | {name}
    return found


def read_elements(graph: Graph, prefix: str) -> frozenset[str]:
    """Let nodes of the graph of a body read elements that decide sizes, wherever they are computed.

    Every value that holds such elements is read by a node ``Elements``, behind which they have names.

    Args:
        graph: The graph, whose inputs have sizes; the types behind new nodes are inferred again.
        prefix: What names begin with.

    Returns:
        The names.

    Raises:
        TypeInferenceError: If operands no longer fit their operators.
    """
    names: set[str] = set()
    while sources := element_sources(graph.nodes):
        for value, found in sources.items():
            places = sorted(int(name[name.rindex("[") + 1 : -1]) for name in found)
            wide = [] if value.dtype == "int64" else [_widened(graph, value)]
            name = graph.fresh(f"{prefix}{value.name}")
            read = graph.add(
                "Elements", [value, *wide], {"places": places}, domain=TINYCOMP, version=1, outputs=[name],
                at=value.producer,
            )  # fmt: skip
            others = [user for user in value.users if user is not read and user.output not in wide]
            for user in others:
                for place, operand in enumerate(user.inputs):
                    if operand is value:
                        graph.set_input(user, place, read.output)
            names |= {f"{name}[{place}]" for place in places}
        retype(graph, [value.type for value in graph.inputs])
    return frozenset(names)


def _widened(graph: Graph, value: Value) -> Value:
    return graph.add("Cast", [value], {"to": NUMBER_BY_DTYPE["int64"]}, at=value.producer).output


def _cone(wanted: Iterable[Value]) -> list[Node]:
    """Return the nodes from which contents of values may follow, producers first."""
    done: list[Node] = []
    seen: set[Node] = set()
    waiting = [(v.producer, False) for v in wanted]
    while waiting:
        node, is_ready = waiting.pop()
        if node is None or not has_contents(node):
            continue
        if is_ready:
            done.append(node)
        elif node not in seen:
            seen.add(node)
            waiting.append((node, True))
            waiting += [(v.producer, False) for v in node.inputs if v is not None and not _is_followed(v)]
    return done


def _is_followed(value: Value) -> bool:
    """Tell whether all elements are known or follow from sizes."""
    return value.contents is not None and None not in value.contents


def _names(type_: TensorType) -> set[str]:
    sizes = [size for size in type_.contents or () if isinstance(size, Expression)]
    return {name for size in sizes if has_elements(size) for name in size.symbols}
