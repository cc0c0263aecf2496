"""Dataclasses that take little time to define: nothing is compiled for a class.

The standard decorator writes and compiles up to seven functions per class, half a millisecond each time a process
starts, which for all classes of the compiler is longer than a small model takes to compile and run. Here the standard
library reads the fields, which is quick. An ``__init__`` is compiled for each number of fields and takes on the names
of those of a class; the other methods are closures over these names. :mod:`dataclasses` treats the result as its own:
``fields``, ``replace``, ``asdict`` and standard dataclasses that inherit from it work as usual.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import reprlib
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True, slots=False):  # noqa: A002 (the standard's names)
        """Make a dataclass of a class, as ``dataclasses.dataclass`` does.

        Args:
            cls: The class; without it, the result is the decorator.
            frozen: Refuse to assign to fields.
            eq: Compare by the fields; together with ``frozen``, hash by them.
            repr: Show the fields.
            slots: Make a class with ``__slots__``.
        """
        if cls is None:
            return functools.partial(dataclass, frozen=frozen, eq=eq, repr=repr, slots=slots)
        own = set(vars(cls))
        if vars(cls).get("__hash__") is None and "__eq__" in own:  # Python's own doing
            own.discard("__hash__")
        inherits = any(dataclasses.is_dataclass(base) for base in cls.__mro__[1:])  # which must agree on ``frozen``
        read = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=frozen and inherits, slots=slots)
        cls = read(cls)
        cls.__dataclass_params__ = _parameters(frozen, eq, repr, slots)
        for name, method in _methods(cls, frozen, eq, repr, slots).items():
            if name not in own:
                setattr(cls, name, method)
        return cls


@functools.cache
def _parameters(frozen: bool, eq: bool, repr_: bool, slots: bool) -> Any:
    """Return what a standard dataclass with these options says of itself."""
    without_fields: Any = dataclasses.make_dataclass("_", (), frozen=frozen, eq=eq, repr=repr_, slots=slots)
    return without_fields.__dataclass_params__


def _methods(cls: type[Any], frozen: bool, eq: bool, repr_: bool, slots: bool) -> dict[str, Any]:
    fields = dataclasses.fields(cls)
    methods: dict[str, Any] = {"__init__": _init(cls, frozen, slots)}
    if repr_:
        methods["__repr__"] = _repr(tuple(f.name for f in fields if f.repr))
    if eq:
        methods["__eq__"] = _eq(_values(tuple(f.name for f in fields if f.compare)))
        hashed = (f.name for f in fields if (f.compare if f.hash is None else f.hash))
        methods["__hash__"] = _hash(_values(tuple(hashed))) if frozen else None
    if frozen:
        methods["__setattr__"], methods["__delattr__"] = _refusals(cls, frozenset(f.name for f in fields))
        if slots:
            methods["__getstate__"], methods["__setstate__"] = _getstate, _setstate
    return methods


class _NotGiven:
    """The default of a parameter whose field has a factory."""

    def __repr__(self) -> str:
        """Return what the standard library shows in signatures."""
        return "<factory>"


_NOT_GIVEN = _NotGiven()
_VALUES = {
    "parameter": "field_{0}",
    "parameter or made": "make_{0}() if field_{0} is not_given else field_{0}",
    "made": "make_{0}()",
    "default": "default_{0}",
}
"""Where the value of a field comes from."""


@functools.cache
def _template(sources: tuple[str, ...], frozen: bool, post_init: bool) -> CodeType:
    """Return the code of an ``__init__`` whose fields, and their parameters, are called ``field_0`` and so on.

    Args:
        sources: Where the value of every field comes from, a key of :data:`_VALUES`.
        frozen: Whether the fields cannot be assigned to in the usual way.
        post_init: Whether ``__post_init__`` follows.
    """
    parameters = [f"field_{i}" for i, source in enumerate(sources) if source.startswith("parameter")]
    line = "assign(self, 'field_{0}', {1})" if frozen else "self.field_{0} = {1}"
    lines = [line.format(i, _VALUES[source].format(i)) for i, source in enumerate(sources)]
    lines += ["self.__post_init__()"] if post_init else []
    scope: dict[str, Any] = {}
    body = "\n ".join(lines or ["pass"])
    exec(f"def __init__({', '.join(['self', *parameters])}):\n {body}", scope)
    code: CodeType = scope["__init__"].__code__
    return code


def _init(cls: type[Any], frozen: bool, slots: bool) -> FunctionType:
    """Return the ``__init__`` of a class: a template with the names of its fields."""
    scope: dict[str, Any] = {"assign": object.__setattr__, "not_given": _NOT_GIVEN, "__name__": cls.__module__}
    sources: list[str] = []
    names: dict[str, str] = {}
    defaults: list[Any] = []
    annotations: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        has_factory, has_default = (x is not dataclasses.MISSING for x in (field.default_factory, field.default))
        if not (field.init or has_factory or (has_default and slots)):
            continue  # the class has the default, or __post_init__ assigns
        number = len(sources)
        names[f"field_{number}"] = field.name
        scope |= {f"make_{number}": field.default_factory, f"default_{number}": field.default}
        if field.init:
            sources.append("parameter or made" if has_factory else "parameter")
            annotations[field.name] = field.type
            if has_factory or has_default:
                defaults.append(_NOT_GIVEN if has_factory else field.default)
            elif defaults:
                raise TypeError(f"non-default argument {field.name!r} follows default argument")
        else:
            sources.append("made" if has_factory else "default")
    code = _template(tuple(sources), frozen, hasattr(cls, "__post_init__"))
    code = code.replace(
        co_varnames=tuple(names.get(name, name) for name in code.co_varnames),
        co_names=tuple(names.get(name, name) for name in code.co_names),
        co_consts=tuple(names.get(const, const) for const in code.co_consts),
    )
    function = FunctionType(code, scope, "__init__", tuple(defaults))
    function.__qualname__ = f"{cls.__qualname__}.__init__"
    function.__annotations__ = {**annotations, "return": None}
    return function


def _values(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what makes a tuple of an object's fields."""
    if not names:
        return lambda _self: ()
    values = operator.attrgetter(*names)
    return values if len(names) > 1 else lambda self: (values(self),)


def _repr(names: tuple[str, ...]) -> Callable[[Any], str]:
    @reprlib.recursive_repr()
    def __repr__(self: Any) -> str:  # noqa: N807
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({shown})"

    return __repr__


def _eq(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], bool]:
    def __eq__(self: Any, other: object) -> bool:  # noqa: N807
        if type(other) is not type(self):
            return NotImplemented
        return values(self) == values(other)

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


def _refusals(
    cls: type[Any], names: frozenset[str]
) -> tuple[Callable[[Any, str, object], None], Callable[[Any, str], None]]:
    def __setattr__(self: Any, name: str, value: object) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
