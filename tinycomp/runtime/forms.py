"""The forms of what files of this package say: all of a file is held to its form before anything is made of it.

A form is one of

- a type, or None: a value of it; ``True`` is no number; ``Any``;
- a ``range``: an integer in it; a set: one of the texts in it;
- a list of one form: a list of such; a tuple of forms: a list of as many, one of each;
- a dictionary: an object with these keys, of which those that end in ``?`` may be missing, and perhaps others; with
  ``str`` as its only key, any keys with such values;
- a :class:`OneOf` of forms; a function that returns a form, for one that contains itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from tinycomp.arguments import hints_of
from tinycomp.errors import ArtifactError, TinycompError, shown

DAMAGED = "The file is damaged: save the module again."
"""What to do about it."""


class OneOf(tuple[Any, ...]):
    """Alternatives of a form."""


NUMBER, COUNT = range(-(1 << 63), 1 << 63), range(1 << 63)
_MISSING = object()
_NAMES = {str: "a text", bool: "true or false", float: "a number", None: "null"}


@functools.cache
def form_of(hint: Any) -> Any:
    """Return the form of a dataclass, or of a type of its fields, as :func:`built` reads it; ``FORM`` may say it."""
    if hasattr(hint, "FORM"):
        return hint.FORM
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints, plain = hints_of(hint), (dataclasses.MISSING, dataclasses.MISSING)
        return {
            each.name + "?" * ((each.default, each.default_factory) != plain): form_of(hints[each.name])
            for each in dataclasses.fields(hint) if each.repr
        }  # fmt: skip
    kind, inside = typing.get_origin(hint), typing.get_args(hint)
    if kind is tuple:
        return [form_of(inside[0])]
    if kind is Mapping:
        return {str: form_of(inside[1])}
    return OneOf(map(form_of, inside)) if inside else _FORMS.get(hint, hint)


_FORMS = {int: NUMBER, float: OneOf((NUMBER, float)), type(None): None}


def built(hint: Any, data: Any) -> Any:
    """Return what ``dataclasses.asdict`` has taken apart, of a dataclass or another type of one of its fields."""
    if hasattr(hint, "FORM"):
        return hint.from_dict(data)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = hints_of(hint)
        names = [each.name for each in dataclasses.fields(hint) if each.repr and each.name in data]
        return hint(**{name: built(hints[name], data[name]) for name in names})
    kind, inside = typing.get_origin(hint), typing.get_args(hint)
    if kind is tuple:
        return tuple([built(inside[0], each) for each in data])
    return {key: built(inside[1], each) for key, each in data.items()} if kind is Mapping else data


def check_form(data: object, form: Any, where: str) -> None:
    """Hold what a file says to a form.

    Raises:
        ArtifactError: If a part is not of it; the error names the part.
    """
    waiting: list[tuple[Any, Any, tuple[str | int, ...]]] = [(data, form, ())]
    while waiting:
        value, wanted, path = waiting.pop()
        wanted = next((each for each in wanted if _is(value, each)), wanted) if isinstance(wanted, OneOf) else wanted
        wanted = wanted() if callable(wanted) and not isinstance(wanted, type) and wanted is not Any else wanted
        if not _is(value, wanted):
            place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
            raise ArtifactError(
                "the description is damaged", where=f"{where}, {place}" if place else where, expected=_text(wanted),
                found="nothing" if value is _MISSING else shown(value), hint=DAMAGED,
            )  # fmt: skip
        if isinstance(wanted, list):
            waiting += [(each, wanted[0], (*path, i)) for i, each in enumerate(value)]
        elif isinstance(wanted, tuple) and not isinstance(wanted, OneOf):
            waiting += [(each, part, (*path, i)) for i, (each, part) in enumerate(zip(value, wanted, strict=True))]
        elif isinstance(wanted, dict) and str in wanted:
            waiting += [(each, wanted[str], (*path, key)) for key, each in value.items()]
        elif isinstance(wanted, dict):
            waiting += [
                (value.get(name, _MISSING), part, (*path, name)) for key, part in wanted.items()
                if (name := key.removesuffix("?")) in value or name == key
            ]  # fmt: skip


@contextlib.contextmanager
def locating(where: str = "", kind: type[TinycompError] = ArtifactError) -> Iterator[None]:
    """Let errors of one kind be of a damaged file, and name it before the part that they are about."""
    try:
        yield
    except kind as error:
        if isinstance(error, ArtifactError) and error.where.startswith(where):
            raise
        place, hint = ", ".join(filter(None, (where, error.where))), error.hint or DAMAGED
        raise ArtifactError(
            error.message, where=place, expected=error.expected, found=error.found, hint=hint
        ) from error


def _is(value: object, form: Any) -> bool:
    """Tell whether a value is what a form says, its parts left out."""
    if isinstance(form, OneOf):
        return any(_is(value, each) for each in form)
    if isinstance(form, range):
        return type(value) is int and value in form
    if isinstance(form, frozenset):
        return isinstance(value, str) and value in form
    if isinstance(form, (tuple, list)):
        return isinstance(value, list) and (isinstance(form, list) or len(value) == len(form))
    if isinstance(form, dict):
        return isinstance(value, dict)
    return value is form if form is None else form is Any or not isinstance(form, type) or type(value) is form


def _text(form: Any) -> str:
    """Return what a form asks for, in words."""
    if isinstance(form, OneOf):
        return " or ".join(map(_text, form))
    if isinstance(form, range):
        return f"an integer of 64 bits, {form.start} or more" if form.start >= 0 else "an integer of 64 bits"
    if isinstance(form, (tuple, list)):
        return "a list" if isinstance(form, list) else f"a list of {len(form)}"
    if isinstance(form, frozenset):
        return " or ".join(sorted(form))
    return "an object" if isinstance(form, dict) else _NAMES.get(form, "another type")
