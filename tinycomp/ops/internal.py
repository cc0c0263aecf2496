"""Operators of tinycomp's own that compute nothing.

They say how a tensor lies in memory, which of its elements are sizes, what a model declares of it, what an operator
demands that its definition stands for, or where fusion stops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tinycomp.errors import DeclaredShapeError
from tinycomp.ir.types import TensorType, inform, tensor, type_of
from tinycomp.ops import OPS
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results, stated_of
from tinycomp.symbolic import Expression, element

FAMILY = OpFamily("internal")


@FAMILY.op("Relayout", domain="tinycomp", traits={"movement"})
def relayout(x: Any, *, layout: str) -> Any:
    """Return ``x``: a numpy array has its logical shape whatever the layout."""
    del layout
    return x


@FAMILY.infer("Relayout", domain="tinycomp")
def _relayout_rule(facts: Facts) -> Results:
    return [tensor(facts.type(0)).with_layout(facts.attr("layout"))]


@FAMILY.op("Elements", domain="tinycomp")
def elements(x: Any, wide: Any = None, *, places: Sequence[int]) -> Any:
    """Return ``x``, of which the elements at these places are sizes from here on; ``wide`` is ``x`` as int64."""
    del wide, places
    return x


@FAMILY.infer("Elements", domain="tinycomp")
def _elements_rule(facts: Facts) -> Results:
    contents = list(facts.elements(0) or ())
    for place in facts.attr("places"):
        contents[place] = element(facts.node.output.name, place)
    return [dataclasses.replace(tensor(facts.type(0)), contents=tuple(contents))]


@FAMILY.op("StopFusion", domain="tinycomp", traits={"structural", "cheap", "elementwise"})
def stop_fusion(x: Any) -> Any:
    """Return the input itself; where barriers bind, no region reaches across."""
    return x


@FAMILY.infer("StopFusion", domain="tinycomp")
def _stop_fusion_rule(facts: Facts) -> Results:
    return [facts.type(0)]


@FAMILY.op("Conditions", domain="tinycomp", traits={"silent"})
def conditions(x: Any, /, *operands: Any, **stated: Any) -> Any:
    """Return ``x``, an operand of an operator that others compute by now, whose rule has looked at all operands."""
    del operands, stated
    return x


@FAMILY.infer("Conditions", domain="tinycomp", contents=lambda node, types, record: [node.operand(0).contents])
def _conditions_rule(facts: Facts) -> Results:
    node = stated_of(facts.node)
    operator = OPS.of(node.op, node.domain)
    if operator is not None and operator.infer is not None:
        facts.follow(operator.infer, node, 1)
    return [facts.type(0)]


@FAMILY.infer("Declared", domain="tinycomp")
def _declared_type(facts: Facts) -> Results:
    """Return what is known of the operand, and for the rest what is declared; each run compares the two."""
    said, own = facts.attr("said"), facts.shape(0)
    if own is None or len(own) != len(said.shape):
        return [inform(facts.type(0), said)]
    for axis, (size, dim) in enumerate(zip(own, said.shape, strict=True)):
        if isinstance(size, Expression) and isinstance(dim, int):
            facts.demand(size - dim, f'"{facts.attr("name")}" is not {said}, as the model declares, along axis {axis}')
    return [inform(facts.type(0), said)]


@FAMILY.op("Declared", domain="tinycomp", traits={"silent"})
def declared(x: Any, *, name: str, said: TensorType) -> Any:
    """Return ``x``, of which the model declares sizes that nothing else tells."""
    dims = said.shape or ()
    if len(dims) != x.ndim or any(isinstance(d, int) and d != size for d, size in zip(dims, x.shape, strict=True)):
        raise DeclaredShapeError(
            f'"{name}" has another shape than the model declares', expected=str(said), found=str(type_of(x)),
            hint="Correct the shape of the value in the model, or leave it out there.",
        )  # fmt: skip
    return x
