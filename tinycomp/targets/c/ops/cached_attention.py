"""Attention with a cache on the C target: ONNX's Attention and GroupQueryAttention of ``com.microsoft``.

Three calls: new rows into the cache, attention over as many keys as a run says, and what few queries found in parts of
many keys put together. A past is read by the first alone, so that it may be the memory of the present.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinycomp import symbolic
from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import numpy_dtype
from tinycomp.ops import grouped_attention
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.records import dataclass, replace
from tinycomp.rewrite import reject
from tinycomp.symbolic import Size
from tinycomp.targets.c.codegen.element_program import broadcast_strides
from tinycomp.targets.c.codegen.emitter import Emitter, Strided, View
from tinycomp.targets.c.codegen.placement import destination
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank
from tinycomp.targets.common.checks import Verdict, all_of, dtypes, sized_type

FAMILY = LoweringRules()

_FLOAT_BYTES = 4
_FEW, _CHUNK = 16, 512
"""Up to how many queries share one pass over the keys, and in parts of how many: as cached_attention_f32 has them."""
_FLOAT = 1
"""``TensorProto.FLOAT``."""
_Params = dict[str, float | Size]


@dataclass(frozen=True)
class _Rows:
    """A tensor as rows of features, by batch and head.

    Attributes:
        view: Where it begins.
        heads: How many heads there are.
        rows: Rows per head.
        columns: Features per row, which lie side by side.
        steps: Elements from one batch, head and row to the next.
    """

    view: View
    heads: Size
    rows: Size
    columns: Size
    steps: tuple[Size, Size, Size]

    def params(self, letter: str) -> _Params:
        """Return the strides as parameters of a kernel."""
        return {f"{letter}_{name}": step for name, step in zip(("batch", "head", "row"), self.steps, strict=True)}


@dataclass(frozen=True)
class _Lengths:
    """How a run says how long sequences are.

    Attributes:
        lengths: One per sequence, or None where all keys count.
        longest: That of the longest, which tells the first run from later ones; or None.
        more: What is added to the lengths.
        past: Rows before the new ones, where there are no lengths.
    """

    lengths: Value | None = None
    longest: Value | None = None
    more: int = 0
    past: Size = 0

    def params(self) -> _Params:
        size = 4 if self.lengths is None else numpy_dtype(self.lengths.dtype).itemsize
        return {"length_bytes": size, "length_more": self.more}


@dataclass(frozen=True)
class _Rotation:
    """Which features are rotated by the angles of their position."""

    cos: Value
    sin: Value
    positions: Value | None
    interleaved: int


@dataclass(frozen=True)
class _Scores:
    """What is done to the products of queries and keys."""

    scale: float
    softcap: float = 0.0
    causal: int = 0
    left: int = -1
    right: int = -1
    mask: Value | None = None
    sink: View | None = None


def _by_heads(source: Strided, shape: Sequence[Size], heads: int) -> _Rows:
    """Return operands of rank 4, or of rank 3 with heads side by side in every row."""
    if len(shape) == 4:
        batch, head, row, _ = source.strides
        return _Rows(source.view, shape[1], shape[2], shape[3], (batch, head, row))
    size = shape[2] // heads
    return _Rows(source.view, heads, shape[1], size, (source.strides[0], size, source.strides[1]))


def _contiguous(view: View, heads: Size, rows: Size, columns: Size) -> _Rows:
    return _Rows(view, heads, rows, columns, (heads * rows * columns, rows * columns, columns))


def _append(
    emit: Emitter, node: Node, batch: Size, target: _Rows, new: _Rows, past: Value | None, of: _Lengths,
    rotation: _Rotation | None = None, *, grows: bool = True,
) -> None:  # fmt: skip
    """Emit the call that writes new rows behind those of the past, or alone, rotated if they are to be."""
    before: Size = 0 if past is None else sized_type(past)[1][2]
    old = _contiguous(target.view, target.heads, before, target.columns)
    cos = None if rotation is None else sized_type(rotation.cos)[1]
    positions = None if rotation is None else rotation.positions
    params: _Params = {
        "batch": batch, "heads": target.heads, "rows": new.rows, "columns": new.columns,
        "capacity": target.rows, "past_rows": before,
        **target.params("y"), **old.params("past"), **new.params("x"),
        "append": int(grows), **of.params(),
        "rotated": 0 if cos is None else 2 * cos[1], "interleaved": 0 if rotation is None else rotation.interleaved,
        "cache_rows": 0 if cos is None else cos[0], "position_batch": 0 if positions is None else new.rows,
    }  # fmt: skip
    angles = (None, None, None) if rotation is None else (positions, rotation.cos, rotation.sin)
    emit.call("cache_append_f32", [target.view, past, new.view, of.lengths, of.longest, *angles], params, node)


def _attend(
    emit: Emitter, node: Node, batch: Size, q: _Rows, k: _Rows, v: _Rows, y: _Rows, of: _Lengths, scores: _Scores
) -> None:
    """Emit the attention itself."""
    group = q.heads // k.heads
    mask = scores.mask
    columns: Size = 0 if mask is None else sized_type(mask)[1][-1]
    steps: Sequence[Size] = (0, 0, 0, 0)
    if mask is not None:
        steps = broadcast_strides(mask, (batch, q.heads, q.rows, columns))
    sizes = {"batch": batch, "heads": q.heads, "group": group, "rows": q.rows, "keys": k.rows}
    partial = _partial(emit, batch, q, k.rows, group, v.columns)
    params = {
        **sizes, "depth": q.columns, "value_depth": v.columns,
        **y.params("y"), **q.params("q"), **k.params("k"), **v.params("v"),
        **{f"mask_{name}": step for name, step in zip(("batch", "head", "row", "column"), steps, strict=True)},
        "mask_columns": columns, "mask_bytes": 1 if mask is not None and mask.dtype == "bool" else _FLOAT_BYTES,
        **of.params(), "past": of.past, "causal": scores.causal, "left": scores.left, "right": scores.right,
        "scale": scores.scale, "softcap": scores.softcap,
    }  # fmt: skip
    operands = [y.view, partial, q.view, k.view, v.view, mask, of.lengths, of.longest, scores.sink]
    emit.call("cached_attention_f32", operands, params, node)
    if partial is not None:
        combined = {**sizes, "value_depth": v.columns, **y.params("y")}
        emit.call("attention_combine_f32", [y.view, partial, scores.sink], combined, node)


def attend(emit: Emitter, node: Node, q: Value, k: Value, v: Value, mask: Value | None, scale: float) -> None:
    """Emit attention on all keys, a row each, of which every head may serve several of queries.

    All operands are of rank 4, the scale is positive or not, and a query that sees no key gives zeros.
    """
    queries, keys, values = (_by_heads(emit.strided(x), sized_type(x)[1], 0) for x in (q, k, v))
    y = _by_heads(destination(emit, node.output), sized_type(node.output)[1], 0)
    batch = sized_type(q)[1][0]
    _attend(emit, node, batch, queries, keys, values, y, _Lengths(), _Scores(scale, mask=mask))


def _partial(emit: Emitter, batch: Size, q: _Rows, keys: Size, group: Size, columns: Size) -> View | None:
    """Return room for what parts of the keys contribute; None where sizes surely need none."""
    if symbolic.surely_at_most(keys, _CHUNK) or symbolic.surely_at_most(_FEW + 1, group * q.rows):
        return None
    parts = -(-keys // _CHUNK)
    rows = symbolic.minimum(q.rows, _FEW)
    return emit.scratch(batch * q.heads * rows * parts * (columns + 2) * _FLOAT_BYTES)


# ---- GroupQueryAttention ----

_INTEGERS = ((5, "int32"), (6, "int32"), (9, "int64"))


def _grouped_check(node: Node) -> Verdict:
    if wrong := grouped_attention.uncovered(node):
        return reject(wrong)
    for index, dtype in _INTEGERS:
        value = node.optional_operand(index)
        if value is not None and value.dtype != dtype:
            return reject(f'operand {index} ("{value.name}") is {value.type}, not {dtype}')
    if not isinstance(grouped_attention.head_size(node), int):
        return reject("the size of a head is not known")
    length = grouped_attention.present_length(node)
    past = node.optional_operand(3)
    room = past.shape[2] if past is not None and past.shape else None
    if isinstance(room, int) and isinstance(length, int) and length < room:
        return reject(f"the present is declared shorter than the past: {length} and {room}")
    return length is not None or reject("the length of the present is not known: total_sequence_length decides it")


@FAMILY.lower(
    grouped_attention.OP, domain=grouped_attention.DOMAIN, layout=LayoutRule.ROW_MAJOR,
    check=all_of(dtypes("float32", operands=(0, 1, 2, 3, 4, 7, 8, 10, 11)), known_rank, _grouped_check),
)  # fmt: skip
def group_query_attention(emit: Emitter, node: Node) -> None:
    """Emit rotated keys and values into the presents, rotated queries, and attention."""
    heads, key_heads = int(node.attrs["num_heads"]), int(node.attrs["kv_num_heads"])
    batch, rows, _ = sized_type(node.operand(0))[1]
    q, k, v = _unpacked(emit, node, heads, key_heads)
    capacity = _present_rows(node, rows)
    of = _Lengths(node.operand(5), node.operand(6), more=1)
    rotation = None
    if node.attrs.get("do_rotary", 0):
        turned = int(node.attrs.get("rotary_interleaved", 0))
        rotation = _Rotation(node.operand(7), node.operand(8), node.optional_operand(9), turned)
    keys, values = (
        _contiguous(_present(emit, node, index, batch * new.heads * capacity * new.columns), new.heads, capacity,
                    new.columns)
        for index, new in ((1, k), (2, v))
    )  # fmt: skip
    _append(emit, node, batch, keys, k, node.optional_operand(3), of, rotation)
    _append(emit, node, batch, values, v, node.optional_operand(4), of)
    if rotation is not None:
        width = q.heads * q.columns
        size = batch * rows * width * _FLOAT_BYTES
        turned_q = replace(q, view=emit.scratch(size), steps=(rows * width, q.columns, width))
        _append(emit, node, batch, turned_q, q, None, of, rotation, grows=False)
        q = turned_q
    y = _by_heads(destination(emit, node.output), sized_type(node.output)[1], heads)
    _attend(emit, node, batch, q, keys, values, y, of, _grouped_scores(emit, node, q.columns))


def _unpacked(emit: Emitter, node: Node, heads: int, key_heads: int) -> tuple[_Rows, _Rows, _Rows]:
    """Return queries, keys and values, which may come side by side in the query."""
    value = node.operand(0)
    shape, source = sized_type(value)[1], emit.strided(value)
    key, values = node.optional_operand(1), node.optional_operand(2)
    if key is not None and values is not None:
        q = _by_heads(source, shape, heads)
        k, v = (_by_heads(emit.strided(x), sized_type(x)[1], key_heads) for x in (key, values))
        return q, k, v
    size = shape[2] // (heads + 2 * key_heads)
    q, k, v = (
        _Rows(source.view.at(first * size * _FLOAT_BYTES), count, shape[1], size,
              (source.strides[0], size, source.strides[1]))
        for first, count in ((0, heads), (heads, key_heads), (heads + key_heads, key_heads))
    )  # fmt: skip
    return q, k, v


def _present_rows(node: Node, rows: Size) -> Size:
    known = [v for v in node.outputs[1:3] if v.name]
    if known:
        return sized_type(known[0])[1][2]
    length = grouped_attention.present_length(node)
    return rows if length is None else symbolic.size(length)


def _present(emit: Emitter, node: Node, index: int, elements: Size) -> View:
    """Return where a present lies: a result, or room for it where nobody wants one."""
    if index < len(node.outputs) and node.outputs[index].name:
        return emit.view(node.outputs[index])
    return emit.scratch(elements * _FLOAT_BYTES)


def _grouped_scores(emit: Emitter, node: Node, size: Size) -> _Scores:
    assert isinstance(size, int), node
    window = int(node.attrs.get("local_window_size", -1))
    sink = node.optional_operand(11)
    zeros = None
    if sink is None and node.attrs.get("smooth_softmax", 0):
        zeros = emit.constant(np.zeros(int(node.attrs["num_heads"]), np.float32))
    return _Scores(
        float(node.attrs.get("scale", 0.0)) or size**-0.5, float(node.attrs.get("softcap", 0.0)),
        int(node.attrs.get("causal", 1)), window - 1 if window > 0 else -1, mask=node.optional_operand(10),
        sink=zeros if sink is None else emit.view(sink),
    )  # fmt: skip


# ---- Attention of ONNX ----


def _attention_check(node: Node) -> Verdict:
    if len(node.outputs) > 3 and node.outputs[3].name:
        return reject("the products of queries and keys are asked for")
    if node.attrs.get("softmax_precision") not in (None, 0, _FLOAT):
        return reject(f"the softmax is in precision {node.attrs['softmax_precision']}, not that of float32")
    mask, lengths = node.optional_operand(3), node.optional_operand(6)
    if mask is not None and mask.dtype not in ("float32", "bool"):
        return reject(f"the mask is {mask.type}, not float32 or bool")
    if lengths is not None and lengths.dtype != "int64":
        return reject(f"the lengths are {lengths.type}, not int64")
    if (node.optional_operand(4) is None) != (node.optional_operand(5) is None) or (
        lengths is not None and node.optional_operand(4) is not None
    ):
        return reject("a cache that is given twice, or by half")
    shapes = [node.operand(i).shape or () for i in range(3)]
    names = ("q_num_heads", "kv_num_heads", "kv_num_heads")
    for shape, name in zip(shapes, names, strict=True):
        heads = node.attrs.get(name)
        if len(shape) not in (3, 4) or (len(shape) == 3 and not heads):
            return reject(f"an operand of rank {len(shape)} without {name}")
        if not isinstance(shape[-1], int) or (len(shape) == 4 and not isinstance(shape[1], int)):
            return reject("the number of heads or their size is not known")
    scale = node.attrs.get("scale")
    return scale is None or scale > 0 or reject(f"the scale {scale} is not positive")


@FAMILY.lower(
    "Attention", layout=LayoutRule.ROW_MAJOR,
    check=all_of(dtypes("float32", operands=(0, 1, 2, 4, 5)), known_rank, _attention_check),
)  # fmt: skip
def attention(emit: Emitter, node: Node) -> None:
    """Emit the new keys and values behind those of the past, where there is one, and attention."""
    heads = [int(node.attrs.get(name) or 0) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    operands = [node.operand(i) for i in range(3)]
    shapes = [sized_type(x)[1] for x in operands]
    q, k, v = (
        _by_heads(emit.strided(x), shape, count) for x, shape, count in zip(operands, shapes, heads, strict=True)
    )  # fmt: skip
    batch = shapes[0][0]
    past = node.optional_operand(4)
    before: Size = 0 if past is None else sized_type(past)[1][2]
    of = _Lengths(node.optional_operand(6), past=before)
    alone = _Lengths(past=before)
    pairs = []
    for index, new in ((1, k), (2, v)):
        wanted = index < len(node.outputs) and bool(node.outputs[index].name)
        if past is None and not wanted:
            pairs.append(new)
            continue
        rows = before + new.rows
        view = _present(emit, node, index, batch * new.heads * rows * new.columns)
        pairs.append(_contiguous(view, new.heads, rows, new.columns))
        _append(emit, node, batch, pairs[-1], new, node.optional_operand(3 + index), alone)
    keys, values = pairs
    y = _by_heads(destination(emit, node.output), sized_type(node.output)[1], heads[0])
    assert isinstance(q.columns, int), node
    scale = node.attrs.get("scale")
    scores = _Scores(
        q.columns**-0.5 if scale is None else float(scale), float(node.attrs.get("softcap", 0.0)),
        int(node.attrs.get("is_causal", 0)), int(node.attrs.get("left_window_size", -1)),
        int(node.attrs.get("right_window_size", -1)), node.optional_operand(3),
    )  # fmt: skip
    _attend(emit, node, batch, q, keys, values, y, of, scores)
