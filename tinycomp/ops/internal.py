"""Operators of tinycomp's own that compute nothing.

They say how a tensor lies in memory, which of its elements are sizes, or where fusion stops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tinycomp.ir.types import tensor
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results
from tinycomp.symbolic import element

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
