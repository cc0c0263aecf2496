"""Dataclasses that take no time to define: their methods are not compiled until they are called.

The standard decorator writes and compiles up to seven functions per class, half a millisecond each time a process
starts, which for all classes of the compiler is longer than a small model takes to compile and run. Here the standard
library reads the fields, which is quick; ``__init__`` is compiled when the first object is made, and the other methods
are closures over the names of the fields. :mod:`dataclasses` treats the result as its own: ``fields``, ``replace``,
``asdict`` and standard dataclasses that inherit from it work as usual.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import reprlib
from collections.abc import Callable
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
        cls.__dataclass_params__ = _parameters(frozen, eq, repr)
        for name, method in _methods(cls, frozen, eq, repr, slots).items():
            if name not in own:
                setattr(cls, name, method)
        return cls


@functools.cache
def _parameters(frozen: bool, eq: bool, repr_: bool) -> Any:
    """Return what a standard dataclass with these options says of itself."""
    return dataclasses.make_dataclass("_", (), frozen=frozen, eq=eq, repr=repr_).__dataclass_params__  # type: ignore[attr-defined]


def _methods(cls: type[Any], frozen: bool, eq: bool, repr_: bool, slots: bool) -> dict[str, Any]:
    fields = dataclasses.fields(cls)
    methods: dict[str, Any] = {"__init__": _Init(cls, frozen, slots)}
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


class _Init:
    """An ``__init__`` that puts the compiled function in its place as soon as somebody asks for it."""

    __slots__ = ("_cls", "_frozen", "_slots")

    def __init__(self, cls: type[Any], frozen: bool, slots: bool) -> None:
        self._cls, self._frozen, self._slots = cls, frozen, slots

    def __get__(self, instance: object, owner: type[Any]) -> Any:
        function = _compiled_init(self._cls, self._frozen, self._slots)
        self._cls.__init__ = function
        return function.__get__(instance, owner)


class _NotGiven:
    """The default of a parameter whose field has a factory."""

    def __repr__(self) -> str:
        """Return what the standard library shows in signatures."""
        return "<factory>"


_NOT_GIVEN = _NotGiven()


def _compiled_init(cls: type[Any], frozen: bool, slots: bool) -> Callable[..., None]:
    scope: dict[str, Any] = {"_assign_field": object.__setattr__, "_not_given": _NOT_GIVEN, "__name__": cls.__module__}
    parameters, lines = ["self"], []
    annotations = {}
    for field in dataclasses.fields(cls):
        name, value = field.name, field.name
        if field.default_factory is not dataclasses.MISSING:
            scope[f"_make_{name}"] = field.default_factory
            default, value = "_not_given", f"_make_{name}() if {name} is _not_given else {name}"
        elif field.default is not dataclasses.MISSING:
            default = f"_default_{name}"
            scope[default] = field.default
        else:
            default = ""
        if field.init:
            parameters.append(f"{name}={default}" if default else name)
            annotations[name] = field.type
        elif default == "_not_given":
            value = f"_make_{name}()"
        elif default and slots:
            value = default
        else:
            continue
        lines.append(f"_assign_field(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "\n ".join(lines or ["pass"])
    exec(f"def __init__({', '.join(parameters)}):\n {body}", scope)
    function: Callable[..., None] = scope["__init__"]
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
