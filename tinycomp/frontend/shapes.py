"""Check the shapes that a user gives for inputs, and find what they fix for shared symbols."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tinycomp.errors import ModelError, did_you_mean, shown
from tinycomp.ir.graph import Graph
from tinycomp.ir.proto import dimension_name
from tinycomp.ir.types import Dim, TensorType, Type
from tinycomp.symbolic import Range

Given = int | str | None | tuple[int, int] | tuple[str, int, int]
"""A dimension as a user gives it: a size, a name, unknown, from one size to another, or that with a name."""
Shapes = Mapping[str, Sequence[Given]]


def checked_shapes(declared: Mapping[str, Type], shapes: Shapes, where: str) -> dict[str, TensorType]:
    """Return the types that inputs get from given shapes.

    Raises:
        ModelError: If these are not shapes by name, there is no such input, or a shape does not fit its declaration.
    """
    _check_by_name(declared, shapes)
    checked = {}
    for name, shape in shapes.items():
        type_ = declared.get(name)
        if type_ is None:
            raise ModelError(
                f'shapes names the input "{name}", which the model does not have',
                where=where,
                expected=f"one of {list(declared)}",
                hint=did_you_mean(name, declared),
            )
        if not isinstance(type_, TensorType):
            raise ModelError("shapes can only be given for tensors", where=f'input "{name}"', found=str(type_))
        if isinstance(shape, (str, bytes)) or not isinstance(shape, (Sequence, np.ndarray)):
            raise ModelError(
                "not a shape",
                where=f'input "{name}"',
                expected=f"a tuple such as {_example(type_)}",
                found=shown(shape),
            )
        sizes = [each.item() if isinstance(each, np.generic) else each for each in shape]
        checked[name] = TensorType(type_.dtype, _checked_shape(name, type_, sizes))
    return checked


_BEYOND = 1 << 63


def _check_by_name(declared: Mapping[str, Type], shapes: object) -> None:
    if not isinstance(shapes, Mapping):
        example = next((f'{{"{name}": {_example(type_)}}}' for name, type_ in declared.items()), "{}")
        raise ModelError(
            "not shapes by name", where="shapes", expected=f"a dict such as {example}", found=shown(shapes)
        )


def _example(type_: Type) -> tuple[int, ...]:
    """Return a shape that fits, with 1 for every size that is open."""
    dims = type_.shape if isinstance(type_, TensorType) else None
    return tuple(dim if isinstance(dim, int) else 1 for dim in dims or ())


def _checked_shape(name: str, type_: TensorType, shape: Sequence[Given]) -> tuple[Dim, ...]:
    declared = type_.shape if type_.shape is not None and len(type_.shape) == len(shape) else (None,) * len(shape)
    dims = tuple(_unbounded(name, dim, before) for dim, before in zip(shape, declared, strict=True))
    if type_.shape is not None and len(type_.shape) != len(dims):
        raise ModelError(
            "the given shape has the wrong rank",
            where=f'input "{name}"',
            expected=f"{len(type_.shape)} dimensions as in {type_}",
            found=shown(list(dims)),
        )
    for dim in dims:
        if not (dim is None or isinstance(dim, str) or (type(dim) is int and 0 <= dim < _BEYOND)):
            raise ModelError(
                "a dimension of the given shape is not valid",
                where=f'input "{name}"',
                expected="a size of at least 0 and 63 bits, a symbol, None, (least, most) or (symbol, least, most)",
                found=shown(dim),
            )
    return dims


def _unbounded(name: str, dim: Given, declared: Dim) -> Dim:
    """Return a dimension without its bounds; one without a name keeps the declared one, and opens a declared number.

    Raises:
        ModelError: If these are no bounds.
    """
    if isinstance(dim, str):
        return dimension_name(dim)
    if not isinstance(dim, tuple):
        return dim
    before = None if isinstance(declared, int) else declared
    symbol, least, most = dim if len(dim) == 3 else (before, *dim) if len(dim) == 2 else (0, 0, 0)
    sound = all(type(bound) is int for bound in (least, most)) and 0 <= least <= most < _BEYOND
    if not sound or not (symbol is None or isinstance(symbol, str)):
        raise ModelError(
            "not the bounds of a dimension", where=f'input "{name}"',
            expected="(least, most) or (symbol, least, most), of at least 0", found=shown(dim),
        )  # fmt: skip
    return symbol


def bounds_of(graph: Graph, shapes: Shapes) -> dict[str, Range]:
    """Return the bounds that shapes give the sizes of a graph's inputs, by symbol.

    Args:
        graph: A graph with these shapes, and a symbol for every dimension that is no number.
        shapes: The shapes by input name.

    Raises:
        ModelError: If no size fulfils them all.
    """
    bounds: dict[str, Range] = {}
    for value in graph.inputs:
        for given, dim in zip(shapes.get(value.name, ()), value.shape or (), strict=False):
            if not isinstance(given, tuple):
                continue
            least, most = given[-2:]
            if isinstance(dim, int):  # another input, or an operator, has fixed it
                low, high = dim, dim
            else:
                name = dim if isinstance(dim, str) else ""
                before = bounds.get(name, (0, None))
                low, high = max(least, before[0]), most if before[1] is None else min(most, before[1])
                bounds[name] = low, high
            if not least <= low <= high <= most:
                raise ModelError(
                    f'the bounds of "{dim}" leave no size', where=f'input "{value.name}"',
                    expected="bounds of its dimensions that agree", found=f"from {low} to {high}, and {given}",
                )  # fmt: skip
    return bounds


def fixed_symbols(declared: Mapping[str, Type], given: Mapping[str, TensorType]) -> dict[str, int]:
    """Return the sizes that given shapes fix for symbols, so that other inputs with the same symbol follow.

    Raises:
        ModelError: If two given shapes disagree.
    """
    sizes: dict[str, int] = {}
    for name, type_ in given.items():
        before = declared[name]
        assert isinstance(before, TensorType), name
        for symbol, size in zip(before.shape or (), type_.shape or (), strict=False):
            if not isinstance(symbol, str) or not isinstance(size, int):
                continue
            if sizes.setdefault(symbol, size) != size:
                raise ModelError(
                    f'the given shapes disagree about the dimension "{symbol}"',
                    where=f'input "{name}"',
                    expected=str(sizes[symbol]),
                    found=str(size),
                )
    return sizes


def with_symbols(name: str, type_: Type) -> Type:
    """Return the type of an input with a symbol, such as ``x.0``, for every dimension that has no name."""
    if not isinstance(type_, TensorType) or type_.shape is None:
        return type_
    dims: tuple[Dim, ...] = tuple(f"{name}.{i}" if d is None else d for i, d in enumerate(type_.shape))
    return dataclasses.replace(type_, shape=dims)
