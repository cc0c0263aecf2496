"""Rotary position embedding on the C target (Su et al., 2021), as an operator and as exporters spell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinycomp.ir.graph import COMPOSITE, Node, Value
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import Match, P, ValuePattern, reject
from tinycomp.symbolic import Size
from tinycomp.target import Target
from tinycomp.targets.c.codegen.element_program import broadcast_strides
from tinycomp.targets.c.codegen.emitter import Emitter, Strided
from tinycomp.targets.c.codegen.placement import destination
from tinycomp.targets.c.codegen.rules import LoweringRules, taken
from tinycomp.targets.common.checks import Verdict, all_of, ranks, sized_type, surely_equal
from tinycomp.targets.common.composites import opened

FAMILY = LoweringRules()


def add_rotary(target: Target) -> None:
    """Add the composite to ``target``."""

    @target.composite(name="rotary")
    def rotary(x: ValuePattern, cos: ValuePattern, sin: ValuePattern) -> ValuePattern:
        steps = [P.const | P.absent for _ in range(4)]
        low, high = (P.Slice(x, P.const, P.const, *steps[2 * i : 2 * i + 2]) for i in range(2))
        crossed = P.Concat(P.Neg(high), low)
        return x * cos + crossed * sin

    rotary.check(_fits)


def _fits(match: Match) -> Verdict:
    """Tell whether the halves of the last axis are crossed, and the angles are the same for all heads."""
    x = match["x"]
    wrong = next((v for name in ("x", "cos", "sin") if (v := match[name]).dtype != "float32"), None)
    if wrong is not None:
        return reject(f'"{wrong.name}" is {wrong.type}, not float32')
    shape = x.shape
    if shape is None or len(shape) != 4:
        return reject(f'"{x.name}" is {x.type}, not of rank 4')
    size = shape[-1]
    if not isinstance(size, int) or size % 2:
        return reject(f'"{x.name}" is {x.type}: not an even number of features')
    concat = next(n for n in match.matched if n.op == "Concat")
    half = [(3, 0, size // 2), (3, size // 2, size)]
    negated = next(n for n in match.matched if n.op == "Neg")
    slices = [_last_slice(v, size) for v in (concat.operand(1), negated.operand(0))]
    if int(concat.attrs["axis"]) % 4 != 3 or slices != half:
        return reject("it does not exchange the halves of the last axis")
    tables = [_padded(match[name]) for name in ("cos", "sin")]
    if tables[0] is None or not surely_equal(tables[0], tables[1]):
        return reject(f"cosines {match['cos'].type} and sines {match['sin'].type} differ")
    return _one_per_head(shape, tables[0]) or reject(f"the angles {match['cos'].type} are not the same for all heads")


def _padded(value: Value) -> tuple[int | str | None, ...] | None:
    shape = value.shape
    return None if shape is None or len(shape) > 4 else (1,) * (4 - len(shape)) + shape


def _one_per_head(shape: Sequence[object], table: Sequence[object]) -> bool:
    """Tell whether angles fit ``[batch, heads, rows, size]`` or ``[batch, rows, heads, size]``."""
    heads = next((axis for axis in (1, 2) if table[axis] == 1), None)
    same = (axis for axis in range(4) if axis != heads and not (axis == 0 and table[0] == 1))
    return heads is not None and all(table[axis] is not None and table[axis] == shape[axis] for axis in same)


def _last_slice(value: Value, size: int) -> tuple[int, int, int] | None:
    """Return axis, start and end of a Slice along one axis by steps of 1; None for another."""
    node = value.producer
    assert node is not None
    start, end, axes, steps = (None if node.optional_operand(i) is None else node.const(i) for i in range(1, 5))
    if start is None or end is None or start.size != 1 or (steps is not None and steps.reshape(-1)[0] != 1):
        return None
    axis = 0 if axes is None else int(axes.reshape(-1)[0]) % 4
    begin, stop, _ = slice(int(start.reshape(-1)[0]), int(end.reshape(-1)[0])).indices(size)
    return axis, begin, stop


@FAMILY.lower("c.rotary", check=taken, layout=LayoutRule.ROW_MAJOR, domain=COMPOSITE)
def spelled_rotary(emit: Emitter, node: Node) -> None:
    """Emit one call that reads the heads where they lie and writes them where they are wanted."""
    body, outer = opened(node)
    concat = next(n for n in body.nodes if n.op == "Concat")
    x = next(v for n in body.nodes if n.op == "Slice" for v in n.inputs[:1])
    crossed = concat.output
    products = [n for n in body.nodes if n.op == "Mul"]
    sin = next(v for n in products if crossed in n.inputs for v in n.inputs if v is not crossed)
    cos = next(v for n in products if crossed not in n.inputs for v in _others(n, x))
    value, (cosines, sines) = outer[x], (outer[v] for v in (cos, sin))
    _, shape = sized_type(value)
    steps = broadcast_strides(cosines, shape)
    heads, rows = (1, 2) if steps[1] == 0 else (2, 1)
    source, result = emit.strided(value), destination(emit, node.output)
    params = {
        "batch": shape[0], "heads": shape[heads], "rows": shape[rows], "size": shape[3], "turned": shape[3],
        **_strides("y", result.strides, heads, rows), **_strides("x", source.strides, heads, rows),
        "table_batch": steps[0], "table_row": steps[rows], "table_half": shape[3] // 2,
    }  # fmt: skip
    emit.call("rotary_f32", [result.view, source.view, cosines, sines, None], _all(params), node)


def _others(product: Node, x: Value | None) -> list[Value | None]:
    """Return the operand that is not ``x``, or ``x`` where it is both."""
    rest = [v for v in product.inputs if v is not x]
    return rest or [x]


_NAMES = (
    "batch", "heads", "rows", "size", "turned", "interleaved", "y_batch", "y_head", "y_row", "x_batch", "x_head",
    "x_row", "table_batch", "table_row", "table_half", "table_rows", "position_batch", "position_step",
)  # fmt: skip


def _all(params: Mapping[str, Size]) -> dict[str, Size]:
    return {name: params.get(name, 0) for name in _NAMES}


def _strides(letter: str, steps: Sequence[Size], heads: int, rows: int) -> dict[str, Size]:
    return {f"{letter}_batch": steps[0], f"{letter}_head": steps[heads], f"{letter}_row": steps[rows]}


def _operands(node: Node) -> tuple[Value, Value, Value, Value | None]:
    """Return x, cosines, sines and positions, which the two domains have in other orders."""
    if node.domain:
        x, positions, cos, sin = (node.operand(i) for i in range(4))
        return x, cos, sin, positions
    return node.operand(0), node.operand(1), node.operand(2), node.optional_operand(3)


def _head_size_is_known(node: Node) -> Verdict:
    if node.domain and not node.is_call:
        return reject("a form without a definition")
    x, cos, _, positions = _operands(node)
    width, heads = (x.shape or (None,))[-1], int(node.attrs.get("num_heads", 0) or 0)
    if not isinstance(width, int) or (x.rank == 3 and heads and width % heads):
        return reject(f'"{x.name}" is {x.type}: the size of a head is unknown')
    if x.rank == 3 and not heads and not (node.domain and isinstance((cos.shape or (None,))[-1], int)):
        return reject("the number of heads is unknown")
    if positions is not None and (positions.dtype != "int64" or positions.rank not in (1, 2)):
        return reject(f"the positions are {positions.type}")
    return True


def _real(node: Node) -> Verdict:
    wrong = next((v for v in _operands(node)[:3] if v.dtype != "float32"), None)
    return True if wrong is None else reject(f'"{wrong.name}" is {wrong.type}, not float32')


_CHECK = all_of(_real, ranks(3, 4), _head_size_is_known)


@FAMILY.lower("RotaryEmbedding", check=_CHECK, layout=LayoutRule.ROW_MAJOR)
def rotary_embedding(emit: Emitter, node: Node) -> None:
    """Emit one call that looks the angles up by position."""
    x, cos, sin, positions = _operands(node)
    (_, shape), (_, table) = sized_type(x), sized_type(cos)
    source = emit.strided(x)
    if len(shape) == 4:
        batch, heads, rows, size = shape
        result = destination(emit, node.output)
        places = {**_strides("y", result.strides, 1, 2), **_strides("x", source.strides, 1, 2)}
    else:
        batch, rows, width = shape
        heads = int(node.attrs.get("num_heads", 0) or 0) or width // (2 * table[-1])
        size = width // heads
        result = Strided(emit.view(node.output), (rows * width, width, 1))
        places = {
            "y_batch": rows * width, "y_head": size, "y_row": width,
            "x_batch": source.strides[0], "x_head": size, "x_row": source.strides[1],
        }  # fmt: skip
    half = table[-1]
    params = {
        "batch": batch, "heads": heads, "rows": rows, "size": size, **places,
        "turned": int(node.attrs.get("rotary_embedding_dim", 0) or 0) or size,
        "interleaved": int(node.attrs.get("interleaved", 0)),
        "table_batch": 0 if positions is not None else rows * half, "table_row": half, "table_rows": table[0],
    }  # fmt: skip
    if positions is not None:
        following = positions.rank == 1
        params |= {"position_batch": 0 if following else rows, "position_step": int(following)}
    emit.call("rotary_f32", [result.view, source.view, cos, sin, positions], _all(params), node)


FAMILY.lower("RotaryEmbedding", check=_CHECK, layout=LayoutRule.ROW_MAJOR, domain="com.microsoft")(rotary_embedding)
