"""Gathering slices by index on the C target."""

from __future__ import annotations

import math

from tinycomp.ir.graph import Node
from tinycomp.ir.types import tensor
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import reject
from tinycomp.targets.c.emit import Emitter
from tinycomp.targets.c.movement import element_size, movable
from tinycomp.targets.c.rules import Rules, known_rank
from tinycomp.targets.common.checks import Verdict, all_of, first, operand, static_type

FAMILY = Rules()


def _index_check(node: Node) -> Verdict:
    indices = operand(node, 1)
    dtype = tensor(indices.type).dtype if indices is not None else "?"
    return dtype in ("int32", "int64") or reject(f"indices are {dtype}")


@FAMILY.lower("Gather", check=all_of(movable, known_rank, _index_check), layout=LayoutRule.ROW_MAJOR)
def gather(emit: Emitter, node: Node) -> None:
    """Emit a gather along one axis; an index out of range makes the run fail."""
    data, indices = first(node), operand(node, 1)
    assert indices is not None
    _, shape = static_type(data)
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    params = {
        "element_size": element_size(data),
        "index_size": element_size(indices),
        "outer": math.prod(shape[:axis]),
        "axis": shape[axis],
        "inner": math.prod(shape[axis + 1 :]),
        "count": math.prod(static_type(indices)[1]),
    }
    emit.call("gather", [node.output, data, indices], params, node)
