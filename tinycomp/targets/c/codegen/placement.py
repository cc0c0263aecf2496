"""Placement of results: views instead of copies, as far as the kernels that read them take strides."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.layout import strides
from tinycomp.ir.types import numpy_dtype, tensor
from tinycomp.symbolic import Size, product, typical
from tinycomp.targets.c.codegen.emitter import Emitter, Strided, View, lies_as, nd_params, same_steps
from tinycomp.targets.common.checks import sized_type


def element_size(value: Value) -> int:
    """Return the bytes of one element; one of fewer than 8 bits has a byte of its own."""
    return numpy_dtype(value.dtype).itemsize


def emit_copy(
    emit: Emitter,
    node: Node,
    target: View,
    source: View,
    shape: Sequence[Size],
    to: Sequence[Size],
    origin: Sequence[Size],
    size: int,
) -> None:
    """Emit a strided copy of ``shape`` elements; strides are in elements and follow the same order of dimensions."""
    if 0 in shape:
        return
    order = sorted(range(len(shape)), key=lambda d: -typical(to[d]))
    params = nd_params(
        [shape[d] for d in order], to_stride=[to[d] for d in order], from_stride=[origin[d] for d in order]
    )
    emit.call("copy", [target, source], {"element_size": size, **params}, node)


def leave(emit: Emitter, node: Node, value: Value, source: Strided) -> None:
    """Let a result of a node lie where its elements are, or will be; at once if that is its own memory order."""
    result, shape = sized_type(value)
    to = strides(result)
    if same_steps(shape, source.strides, to):
        emit.alias(value, source.view)
        return

    def move() -> None:
        size = element_size(value)
        emit_copy(emit, node, emit.view(value), source.view, shape, to, source.strides, size)

    emit.postpone(value, source, move)


def _rows_are_adjacent(steps: tuple[Size, ...]) -> bool:
    return steps[-1] == 1


def destination(emit: Emitter, value: Value, fits: Callable[[tuple[Size, ...]], bool] = _rows_are_adjacent) -> Strided:
    """Return where a kernel that writes with strides puts its result.

    If all that happens to the result is a transposition, it is written as the transposition wants it; if it is joined
    to others, into its slice of the whole.

    Args:
        emit: Holds the places.
        value: The result.
        fits: Which strides the kernel can write; those of the value's own memory order are always among them.
    """
    plain = strides(tensor(value.type))
    (user,) = value.users if len(value.users) == 1 and value not in emit.graph.outputs else (None,)
    if user is not None and user.op == "Transpose" and user.domain == "" and not user.is_composite:
        type_, shape = sized_type(user.output)
        steps: list[Size] = [0] * len(shape)
        for dim, step in zip(user.attrs.get("perm", reversed(range(len(shape)))), strides(type_), strict=True):
            steps[dim] = step
        if fits(tuple(steps)) and tuple(steps) != plain:
            place = Strided(emit.view(user.output), tuple(steps))
            leave(emit, user, value, place)
            return place
    part = emit.joined(value)
    if part is not None and fits(part.strides) and not lies_as(tensor(value.type), part.strides):
        assert value.producer is not None, value
        leave(emit, value.producer, value, part)
        return part
    return Strided(emit.view(value), plain)


def around_axis(shape: tuple[Size, ...], axis: int) -> dict[str, Size]:
    """Return the sizes before, along and behind an axis, as kernels name them."""
    place = axis % max(len(shape), 1)
    return {"outer": product(shape[:place]), "axis": shape[place], "inner": product(shape[place + 1 :])}
