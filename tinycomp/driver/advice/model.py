"""Edits of the model that compute the same, or the same up to rounding, in a form that a target takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from tinycomp.driver.advice.case import Case, abridged, numbers
from tinycomp.driver.advice.padding import channels, pad_channels
from tinycomp.driver.advice.setup import Change, Setup
from tinycomp.frontend.definition import definition, is_defined_by_others
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.passes.expand_functions import splice
from tinycomp.rewrite.rules import erase_dead
from tinycomp.rewrite.traits import has_trait

_EFFORT = 2
_MULTIPLES = (2, 4, 8, 16, 32, 64, 128)
_MOST_CHANNELS = 1024
"""Numbers in a refusal that may be what numbers of channels must be multiples of."""

Edit = Callable[[Graph, Node], bool]
"""Changes a node in its graph; tells whether it could."""


def model_changes(case: Case) -> Iterator[Change]:
    """Yield the edits of the model that may bring a node to a target."""
    if not case.remarks or not case.originals(case.setup.graph):
        return
    why = f"{case.target.name} refuses {case.node.qualified_op} ({case.reason})"
    names = ", ".join(f'"{abridged(node.label)}"' for node in case.alike[:3]) + (" …" if len(case.alike) > 3 else "")
    op = case.node.qualified_op
    if is_defined_by_others(case.node):
        yield _edited(
            case, "definition", (), f"{why}, but takes its definition", f"replace {op} by its definition", _expand
        )
    yield _edited(case, "quantise", (), f"{why}, but takes it quantised", f"quantise {names}", _quantise)
    yield from _padded(case, why, names)
    action = f"keep {names} in float: tinycomp.quantize(…, keep_float=…)"
    yield _edited(case, "float", (), f"{why}, but takes it in float", action, _unquantise)


def _edited(case: Case, kind: str, details: tuple[object, ...], reason: str, action: str, edit: Edit) -> Change:
    """Return the change that edits all nodes of the model that are refused alike."""

    def apply(setup: Setup) -> Setup | None:
        graph = setup.graph.clone()
        edits = [edit(scope, node) for scope, node in case.originals(graph) if node in scope]
        return replace(setup, graph=graph) if any(edits) else None

    key = kind, tuple(source for node in case.alike for source in node.sources), details
    return Change(key, kind, _EFFORT, reason, action, apply)


def _expand(graph: Graph, node: Node) -> bool:
    body = definition(node)
    if body is not None:
        splice(graph, node, body)
    return body is not None


# Padding ------------------------------------------------------------------------------------------------------------


def _padded(case: Case, why: str, names: str) -> Iterator[Change]:
    """Yield more channels for products: multiples of what a refusal names, if it names numbers, else of usual ones."""
    originals = [node for _, node in case.originals(case.setup.graph)]
    node = next((node for node in originals if not set(node.sources).isdisjoint(case.node.sources)), None)
    if node is None or not has_trait(node, "product"):
        return
    for side in ("output", "input"):
        size = channels(node, side)
        mentioned = {n for remark in case.remarks for n in numbers(remark.reason)}
        if size is None or (mentioned and size not in mentioned):
            continue
        named = sorted(n for n in mentioned if 1 < n <= _MOST_CHANNELS and size % n)
        tried: set[int] = set()
        for multiple in named or _MULTIPLES:
            larger = -(-size // multiple) * multiple
            if larger == size or larger in tried:
                continue
            tried.add(larger)
            what = "channels" if side == "output" else "input channels"
            reason = f"{why}, but takes it with {larger} {what}"
            action = f"pad the {what} of {names} from {size} to {larger}"
            if any(channels(other, side) != size for other in originals):
                action = f"pad the {what} of {names} to a multiple of {multiple}"
            yield _edited(case, "padding", (side, multiple), reason, action, _padding(side, multiple))


def _padding(side: str, multiple: int) -> Edit:
    def edit(graph: Graph, node: Node) -> bool:
        size = channels(node, side)
        return size is not None and pad_channels(graph, node, side, -(-size // multiple) * multiple)

    return edit


# Quantised layers ---------------------------------------------------------------------------------------------------


def _unquantise(graph: Graph, node: Node) -> bool:
    """Let a layer read and give real numbers, without the pairs of conversions around it."""
    layer = _layer(node)
    if layer is None:
        return False
    pairs = [(index, _before(value)) for index, value in enumerate(layer.inputs)]
    last = _last(layer)
    conversions = [user for user in last.output.users if user.op == "QuantizeLinear"]
    if not conversions and all(value is None for _, value in pairs):
        return False
    left: list[Node] = []
    for index, value in pairs:
        if value is not None:
            left += [n for n in (layer.operand(index).producer,) if n is not None]
            graph.set_input(layer, index, value)
    for conversion in conversions:
        for back in [user for user in conversion.output.users if user.op == "DequantizeLinear"]:
            graph.replace_uses(back.output, last.output)
            left.append(back)
    for node_left in left:
        if node_left in graph:
            erase_dead(graph, node_left)
    return True


def _layer(node: Node) -> Node | None:
    """Return the operator that the conversions around it belong to, of which the node is one or not."""
    if node.op == "DequantizeLinear":
        return next(iter(node.output.users), None)
    return node.operand(0).producer if node.op == "QuantizeLinear" else node


def _last(layer: Node) -> Node:
    """Return the last operator of a layer: a clamp behind a product, or the product."""
    user = next(iter(layer.output.users)) if len(layer.output.users) == 1 else layer
    return user if has_trait(user, "clamp") or user.qualified_op == "LeakyRelu" else layer


def _before(value: Value | None) -> Value | None:
    """Return the real value that a value is after quantising and dequantising; None if it is none such."""
    back = None if value is None else value.producer
    if back is None or back.op != "DequantizeLinear":
        return None
    conversion = back.operand(0).producer
    return conversion.inputs[0] if conversion is not None and conversion.op == "QuantizeLinear" else None


def _quantise(graph: Graph, node: Node) -> bool:
    """Give a product between quantised layers quantised weights, symmetric and with a scale per output channel."""
    if not has_trait(node, "product"):
        return False
    data, weight = node.operand(0).producer, node.const(1)
    if data is None or data.op != "DequantizeLinear" or weight is None or weight.dtype != np.float32:
        return False
    if not any(user.op == "QuantizeLinear" for user in _last(node).output.users):
        return False
    axis = _output_axis(node)
    others = tuple(i for i in range(weight.ndim) if i != axis)
    scale = np.maximum(np.abs(weight).max(axis=others), np.finfo(np.float32).tiny * 127).astype(np.float32) / 127
    shape = [-1 if i == axis else 1 for i in range(weight.ndim)]
    integers = np.clip(np.rint(weight / scale.reshape(shape)), -127, 127).astype(np.int8)
    arrays = (integers, scale, np.zeros(len(scale), np.int8))
    operands = [graph.add_const(array) for array in arrays]
    back = graph.add("DequantizeLinear", operands, {"axis": axis}, sources=[f"{node.label}/weight"])
    graph.set_input(node, 1, back.output)
    return True


def _output_axis(node: Node) -> int:
    if node.op == "Conv":
        return 0
    return 0 if node.op == "Gemm" and node.attrs.get("transB") else 1
