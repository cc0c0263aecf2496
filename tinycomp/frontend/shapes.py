"""Check the shapes that a user gives for inputs, and find what they fix for shared symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinycomp.errors import ModelError, did_you_mean
from tinycomp.ir.types import Dim, TensorType, Type

Shapes = Mapping[str, Sequence[int | str | None]]


def checked_shapes(declared: Mapping[str, Type], shapes: Shapes, where: str) -> dict[str, TensorType]:
    """Return the types that inputs get from given shapes.

    Args:
        declared: The types of all inputs.
        shapes: The shapes by input name.
        where: The model, for messages.

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
        checked[name] = TensorType(type_.dtype, _checked_shape(name, type_, shape))
    return checked


def _check_by_name(declared: Mapping[str, Type], shapes: object) -> None:
    if not isinstance(shapes, Mapping):
        example = next((f'{{"{name}": {_example(type_)}}}' for name, type_ in declared.items()), "{}")
        raise ModelError("not shapes by name", where="shapes", expected=f"a dict such as {example}", found=repr(shapes))


def _example(type_: Type) -> tuple[int, ...]:
    """Return a shape that fits, with 1 for every size that is open."""
    dims = type_.shape if isinstance(type_, TensorType) else None
    return tuple(dim if isinstance(dim, int) else 1 for dim in dims or ())


def _checked_shape(name: str, type_: TensorType, shape: Sequence[int | str | None]) -> tuple[Dim, ...]:
    dims = tuple(shape)
    if type_.shape is not None and len(type_.shape) != len(dims):
        raise ModelError(
            "the given shape has the wrong rank",
            where=f'input "{name}"',
            expected=f"{len(type_.shape)} dimensions as in {type_}",
            found=str(list(dims)),
        )
    for dim in dims:
        if not (dim is None or isinstance(dim, str) or (isinstance(dim, int) and dim >= 0)):
            raise ModelError(
                "a dimension of the given shape is not valid",
                where=f'input "{name}"',
                expected="a size of at least 0, a symbol or None",
                found=repr(dim),
            )
    return dims


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
