"""Values from outside: whether they are of the types that functions and classes declare, and the error if they are not.

What is declared is the annotation. Names in it that only type checkers know may stand for anything here: the function
looks at such values itself. Scalars of numpy count as the numbers that they hold.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeGuard, TypeVar

import numpy as np

from tinycomp.errors import OptionError, TinycompError, did_you_mean, shown
from tinycomp.memory.system import is_path

if TYPE_CHECKING:
    import onnx

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C")
_NOTHING: Mapping[str, float] = types.MappingProxyType({})
_SURROGATE = re.compile("[\ud800-\udfff]")
_LISTS: Any = (Sequence, tuple, list)
_TEXTS = (str, bytes, bytearray)
_LARGEST = sys.float_info.max


def checked(
    *but: str, error: type[TinycompError] = OptionError, least: Mapping[str, float] = _NOTHING, owner: Any = None
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Make a function refuse arguments that are not what it declares, and suggest names for unknown ones.

    Args:
        but: Parameters that the function looks at itself.
        error: What is raised.
        least: The least that numbers may be, by the names of their parameters.
        owner: What has the annotations, if not the function.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        code = function.__code__
        places = code.co_varnames[: code.co_argcount]
        known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> _R:
            called = function.__qualname__.removesuffix(".__init__")
            refuse_unknown(called, options, [each for each in known if each != "self"], error)
            given = {
                name: value for name, value in (*zip(places, args, strict=False), *options.items()) if name not in but
            }
            fitted = fitting(owner or function, given, error, least)
            args = (*(fitted.get(name, value) for name, value in zip(places, args, strict=False)), *args[len(places) :])
            return function(*args, **{name: fitted.get(name, value) for name, value in options.items()})

        return call

    return decorate


def refuse_unknown(called: str, given: Iterable[str], known: Sequence[str], error: type[TinycompError]) -> None:
    """Refuse names of options that are not among the known ones of a function, with an ``error``."""
    for name in given:
        if name not in known:
            raise error(
                f'{called} has no option "{name}"', expected=f"one of {', '.join(known)}",
                hint=did_you_mean(name, known),
            )  # fmt: skip


def checked_fields(
    error: type[TinycompError] = OptionError, least: Mapping[str, float] = _NOTHING
) -> Callable[[type[_C]], type[_C]]:
    """Make a dataclass refuse fields that are not what it declares; arguments are those of :func:`checked`."""

    def decorate(kind: type[_C]) -> type[_C]:
        init: Any = kind.__init__
        setattr(kind, "__init__", checked(error=error, least=least, owner=kind)(init))  # noqa: B010 - for type checkers
        return kind

    return decorate


def fitting(
    owner: Any,
    values: Mapping[str, Any],
    error: type[TinycompError] = OptionError,
    least: Mapping[str, float] = _NOTHING,
) -> dict[str, Any]:
    """Return values by name, with plain numbers for scalars of numpy.

    Args:
        owner: The function or class that declares them.
        values: By name.
        error: What is raised.
        least: The least that numbers may be, by name.

    Raises:
        TinycompError: An ``error``, if one is not what is declared.
    """
    hints, fitted = hints_of(owner), {}
    for name, value in values.items():
        plain = fitted[name] = value.item() if isinstance(value, np.generic) else value
        hint, bound = hints[name], least.get(name)
        if (
            not fits(plain, hint)
            or not _is_written(plain, hint)
            or (bound is not None and isinstance(plain, (int, float)) and plain < bound)
        ):
            known = values_of(hint)
            raise error(
                "the option does not take this value", where=name, found=shown(value),
                expected=joined(known) + (f", {bound:g} or more" if bound is not None else ""),
                hint=did_you_mean(plain, [text.strip('"') for text in known]) if isinstance(plain, str) else "",
            )  # fmt: skip
    return fitted


def _is_written(value: Any, hint: Any) -> bool:
    """Tell whether a path is one that a system can take, and another text has a form in UTF-8; others are no texts."""
    if any(typing.get_origin(each) is os.PathLike for each in typing.get_args(hint)):
        return not isinstance(value, (str, os.PathLike)) or is_path(value)
    of_others = isinstance(hint, type) and issubclass(hint, _Unknown)
    return of_others or not isinstance(value, str) or _SURROGATE.search(value) is None


def fits(value: Any, hint: Any) -> bool:
    """Tell whether a value is of a type: a class, literals, a union, or a collection of either. NaN is no number."""
    kind: Any = typing.get_origin(hint) or hint
    arguments, contents = typing.get_args(hint), value
    if kind in (types.UnionType, typing.Union):
        return any(fits(value, each) for each in arguments)
    if kind is typing.Literal:
        return any(is_same(value, each) for each in arguments)
    if kind is None:
        return value is None
    if kind is Any or not isinstance(kind, type) or issubclass(kind, _Unknown):
        return True
    if getattr(kind, "_is_protocol", False):
        return all(hasattr(value, name) for name in vars(kind) if not name.startswith("_"))
    if kind is int or (kind is float and isinstance(value, int)):
        return isinstance(value, int) and not isinstance(value, bool) and (kind is int or abs(value) <= _LARGEST)
    if kind is float:
        return isinstance(value, float) and value == value
    if (kind in (*_LISTS, Iterable) and (isinstance(value, _TEXTS) or _is_scalar(value))) or not isinstance(
        value, kind
    ):
        return False
    if kind in _LISTS and arguments:
        each = arguments if kind is tuple and ... not in arguments else arguments[:1] * len(contents)
        return len(each) == len(contents) and all(fits(one, type_) for one, type_ in zip(contents, each, strict=True))
    if kind is Mapping and arguments:
        return all(fits(pair, types.GenericAlias(tuple, arguments)) for pair in contents.items())
    return True


def _is_scalar(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 0


class _Unknown:
    """What a name stands for that only type checkers know."""

    def __class_getitem__(cls, _: Any) -> type[_Unknown]:
        return cls


class _Names(dict[str, Any]):
    """The names that an annotation may use."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, None) or type(name, (_Unknown,), {})


class _Hints(dict[str, Any]):
    """Types by name, read from the annotations of a function or class when they are first asked for."""

    def __init__(self, owner: Any) -> None:
        super().__init__()
        self._written: dict[str, tuple[Any, _Names]] = {}
        for each in reversed(owner.__mro__) if isinstance(owner, type) else (owner,):
            names = _Names(vars(sys.modules[each.__module__]))
            self._written.update({name: (hint, names) for name, hint in inspect.get_annotations(each).items()})

    def __missing__(self, name: str) -> Any:
        hint, names = self._written.get(name, (Any, _Names()))
        try:
            self[name] = eval(hint, {}, names) if isinstance(hint, str) else hint
        except (AttributeError, TypeError):
            self[name] = Any  # of a name that only type checkers know
        return self[name]


@functools.cache
def hints_of(owner: Any) -> Mapping[str, Any]:
    """Return the types that the annotations of a function or class say, by name; Any where they say none."""
    return _Hints(owner)


def is_same(one: Any, other: Any) -> bool:
    """Tell whether two values are equal and of one type: 1 is neither True nor 1.0."""
    return (type(one) is type(other) or isinstance(one, str)) and bool(one == other)


def values_of(hint: Any) -> list[str]:
    """Return the values of a type in Python, for messages."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return [text for each in typing.get_args(hint) for text in values_of(each)]
    if typing.get_origin(hint) is typing.Literal:
        return [f'"{each}"' if isinstance(each, str) else str(each) for each in typing.get_args(hint)]
    if hint is bool:
        return ["True", "False"]
    if hint in (None, type(None)):
        return ["None"]
    return [getattr(typing.get_origin(hint) or hint, "__name__", str(hint))]


def joined(texts: Sequence[str]) -> str:
    """Return alternatives as one text, such as ``1, 2 or 3``."""
    return f"{', '.join(texts[:-1])} or {texts[-1]}" if len(texts) > 1 else texts[0]


def is_model_proto(model: object) -> TypeGuard[onnx.ModelProto]:
    """Tell whether a model has been parsed by the caller; without onnx nobody has one."""
    onnx = sys.modules.get("onnx")
    return onnx is not None and isinstance(model, onnx.ModelProto)
