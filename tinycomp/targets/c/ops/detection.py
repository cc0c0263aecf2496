"""NonMaxSuppression on the C target: the boxes of each class of each image, then all of them in one list."""

from __future__ import annotations

from tinycomp.ir.graph import Node
from tinycomp.ops.detection import most_of_a_class
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.targets.c.codegen.emitter import Emitter, eight
from tinycomp.targets.c.codegen.rules import LoweringRules
from tinycomp.targets.common.checks import all_of, dtypes, ranks, sized_type

FAMILY = LoweringRules()
_INDEX_BYTES = 8


@FAMILY.lower(
    "NonMaxSuppression", check=all_of(dtypes("float32", operands=(0, 1)), ranks(3)), layout=LayoutRule.ROW_MAJOR
)
def non_max_suppression(emit: Emitter, node: Node) -> None:
    """Emit a search in every class of every image, whose finds are then put side by side and counted."""
    boxes, scores = node.operand(0), node.operand(1)
    shape = sized_type(scores)[1]
    batch, classes, each = shape
    segments, room = batch * classes, most_of_a_class(node)
    assert room is not None, node
    positions, counts = emit.scratch(segments * room * _INDEX_BYTES), emit.scratch(segments * _INDEX_BYTES)
    thresholds = [node.optional_operand(index) for index in (2, 3, 4)]
    params = {
        "batch": batch, "classes": classes, "boxes": each, "room": room,
        "center": int(node.attrs.get("center_point_box", 0)),
    }  # fmt: skip
    emit.call("nms_f32", [positions, counts, boxes, scores, *thresholds], params, node)
    sizes = {"segments": segments, "room": room, "rank": len(shape)}
    count = emit.scratch(_INDEX_BYTES)
    emit.call("coordinates", [node.output, count, positions, counts], sizes | eight("size", shape, 1), node)
    emit.finds(sized_type(node.output)[1][0], 1)
