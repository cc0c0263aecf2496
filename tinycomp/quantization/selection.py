"""Naming layers: by name, by operator, by position, or by asking."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from tinycomp.errors import QuantizationError, did_you_mean
from tinycomp.ir.graph import Node
from tinycomp.quantization.layers import Layer

Selector = str | Callable[[Node], bool]
"""A name of a node or value (``*`` and ``?`` stand for what they do in file names), an operator, ``"first 2 conv"``,
``"last gemm"``, or a predicate of a node."""

_POSITION = re.compile(r"(?P<end>first|last)(?: (?P<count>[1-9]\d*))? (?P<op>\w+)", re.IGNORECASE)


def select(layers: Sequence[Layer], selectors: Selector | Iterable[Selector]) -> list[Layer]:
    """Return the layers that at least one selector means, in the order of the graph.

    A name means the layer that the node of this name has become a part of, such as a batch normalisation that was
    folded into the convolution before it. Predicates are asked for the core of every layer.

    Raises:
        QuantizationError: If a selector means none.
    """
    if not isinstance(selectors, str) and not callable(selectors) and not isinstance(selectors, Iterable):
        raise _not_a_selector(selectors)
    given = [selectors] if isinstance(selectors, str) or callable(selectors) else list(selectors)
    found: set[Layer] = set()
    for selector in given:
        found.update(_meant(layers, selector))
    return [layer for layer in layers if layer in found]


def _meant(layers: Sequence[Layer], selector: Selector) -> list[Layer]:
    if callable(selector):
        return [layer for layer in layers if selector(layer.core)]
    if not isinstance(selector, str):
        raise _not_a_selector(selector)
    position = _POSITION.fullmatch(selector.strip())
    if position is not None:
        return _at_the_end(layers, selector, position)
    found = [layer for layer in layers if _is_called(layer, selector)]
    if not found:
        known = [name for layer in layers for name in (*_names(layer), layer.core.op)]
        raise QuantizationError(
            f'no layer is called "{selector}"', where="keep_float",
            expected="the name of a node or value, or an operator, that can be quantised",
            hint=did_you_mean(selector, known) or "tinycomp.quantization.noise lists the layers.",
        )  # fmt: skip
    return found


def _not_a_selector(found: Any) -> QuantizationError:
    return QuantizationError(
        "not a way to name layers", where="keep_float", found=repr(found),
        expected='names, operators, predicates, or texts such as "last 3 conv"',
    )  # fmt: skip


def _at_the_end(layers: Sequence[Layer], text: str, position: re.Match[str]) -> list[Layer]:
    op = position["op"].lower()
    alike = [layer for layer in layers if layer.core.op.lower() in (op, op.removesuffix("s"))]
    count = int(position["count"] or 1)
    if len(alike) < count:
        ops = sorted({layer.core.op for layer in layers})
        raise QuantizationError(
            f'"{text}" asks for more layers than there are', where="keep_float", expected=f"at least {count}",
            found=f"{len(alike)}", hint=f"The model has layers of {', '.join(ops) or 'no kind'}.",
        )  # fmt: skip
    return alike[:count] if position["end"].lower() == "first" else alike[-count:]


def _names(layer: Layer) -> list[str]:
    sources = [name for node in layer.nodes for name in node.sources]
    return [*sources, *(v.name for node in layer.nodes for v in node.used_outputs())]


def _is_called(layer: Layer, text: str) -> bool:
    # A name is taken as it stands first: names may hold the characters of patterns.
    return text == layer.core.op or any(text == name or fnmatchcase(name, text) for name in _names(layer))
