"""Dataclasses that take little time to define: their methods are made when they are first looked up.

The standard decorator compiles up to six functions for every class, which for the classes of a compiler takes longer
than a small model takes to compile and run. Most classes of a process have no instance, and of the others few are
compared or shown. All else is as in :mod:`dataclasses`, whose functions
treat the classes as their own, and whose dataclasses may inherit from these and the other way round. Comparing is the
same in every version of Python: as tuples of the fields are compared.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import inspect
import reprlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, FrozenInstanceError, asdict, field, fields, replace
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

__all__ = ["asdict", "dataclass", "field", "fields", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, eq=True, repr=True, frozen=False, slots=False, **more):  # noqa: A002 (the standard's)
        """Make a dataclass of a class, as ``dataclasses.dataclass`` does.

        What no class of this package uses is left to that one: other options, ``InitVar``, ``KW_ONLY``, and versions
        of Python whose fields may be read in another way.

        Args:
            cls: The class; without it, the result is the decorator.
            eq: Compare by the fields; together with ``frozen``, hash by them.
            repr: Show the fields.
            frozen: Refuse to assign to fields.
            slots: Make a class with ``__slots__``.
            more: Options of the standard decorator.
        """
        options = {"eq": eq, "repr": repr, "frozen": frozen, "slots": slots}
        if cls is None:
            return functools.partial(dataclass, **options, **more)
        if more or sys.version_info >= (3, 15) or _is_special(cls):
            return dataclasses.dataclass(**options, **more)(cls)
        return _made(cls, **options)


_standard: Any = dataclasses  # whose private names are those of the versions of Python that are compared in the tests


def _is_special(cls: type[Any]) -> bool:
    return any("InitVar" in (kind := str(each)) or "KW_ONLY" in kind for each in cls.__annotations__.values())


def _made(cls: Any, *, eq: bool, repr: bool, frozen: bool, slots: bool) -> Any:  # noqa: A002 (the standard's)
    """Return the class, or the one with slots, with the methods that these options ask for."""
    everything = _inherited(cls, frozen) | _own(cls)
    ordinary = [one for one in everything.values() if one._field_type is _standard._FIELD]
    positional = [one for one in ordinary if one.init and not one.kw_only]
    optional = [one.default is not MISSING or one.default_factory is not MISSING for one in positional]
    if sorted(optional) != optional:
        wrong = positional[optional.index(False, optional.index(True))]
        raise TypeError(f"non-default argument {wrong.name!r} follows default argument")
    if slots:
        cls = _with_slots(cls, [one.name for one in ordinary])
    given = set(vars(cls))
    if "__eq__" in given and vars(cls)["__hash__"] is None:  # which is Python's own doing
        given.discard("__hash__")
    refusals = ["__setattr__", "__delattr__"] if frozen else []
    for name in refusals:
        if name in given:
            raise TypeError(f"Cannot overwrite attribute {name} in class {cls.__name__}")
    methods = ["__init__", *["__repr__"] * repr, *["__eq__", "__hash__"] * eq, *refusals]
    wanted: dict[str, Any] = {name: _Later(cls, name) for name in methods}
    if eq and not frozen:
        wanted["__hash__"] = None
    if frozen and slots:
        wanted |= {"__getstate__": _getstate, "__setstate__": _setstate}
    wanted |= {"__replace__": replace, "__match_args__": tuple([one.name for one in positional])}
    for name, value in wanted.items():
        if name not in given:
            setattr(cls, name, value)
    if not cls.__doc__:
        cls.__doc__ = _Later(cls, "__doc__")
    cls.__dataclass_fields__ = everything
    cls.__dataclass_params__ = _parameters(eq, repr, frozen, slots)
    return abc.update_abstractmethods(cls)


@functools.cache
def _parameters(eq: bool, repr_: bool, frozen: bool, slots: bool) -> Any:
    more = (True, False, slots, False) if sys.version_info >= (3, 12) else ()
    return _standard._DataclassParams(True, repr_, eq, False, False, frozen, *more)


def _inherited(cls: Any, frozen: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in cls.__mro__[:0:-1]:
        if (theirs := getattr(base, "__dataclass_fields__", None)) is not None:
            found.update(theirs)
            if base.__dataclass_params__.frozen != frozen:
                kinds = "frozen dataclass from a non-frozen" if frozen else "non-frozen dataclass from a frozen"
                raise TypeError(f"cannot inherit {kinds} one")
    return found


def _own(cls: type[Any]) -> dict[str, Any]:
    """Return the fields of the class itself, whose attributes become their defaults."""
    found: dict[str, Any] = {}
    for name, kind in cls.__annotations__.items():
        found[name] = one = _standard._get_field(cls, name, kind, False)
        if isinstance(vars(cls).get(name), Field):
            if one.default is MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, one.default)
    for name, value in vars(cls).items():
        if isinstance(value, Field):
            raise TypeError(f"{name!r} is a field but has no type annotation")
    return found


def _with_slots(cls: Any, names: list[str]) -> Any:
    """Return a class with slots for what none of its bases has one for."""
    if "__slots__" in vars(cls):
        raise TypeError(f"{cls.__name__} already specifies __slots__")
    taken = set(names) | {"__dict__", "__weakref__"}
    namespace = {name: value for name, value in vars(cls).items() if name not in taken}
    theirs = [vars(base).get("__slots__", ()) for base in cls.__mro__[1:-1]]
    inherited = {slot for slots in theirs for slot in ([slots] if isinstance(slots, str) else slots)}
    namespace["__slots__"] = tuple([name for name in names if name not in inherited])
    made = type(cls)(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    return made


class _Later:
    """A method of a class, made when it is first looked up, which it then takes the place of.

    Threads may look it up at the same moment: each of them makes it, and which one stays makes no difference.
    """

    __slots__ = ("cls", "name")

    def __init__(self, cls: type[Any], name: str) -> None:
        self.cls = cls
        self.name = name

    def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
        """Return the method, bound to the instance if there is one."""
        method = vars(self.cls)[self.name]
        if method is self:
            method = _METHODS[self.name](self.cls)
            if isinstance(method, FunctionType):
                method.__module__ = self.cls.__module__
                method.__qualname__ = f"{self.cls.__qualname__}.{self.name}"
            setattr(self.cls, self.name, method)
        return method if instance is None or isinstance(method, str) else MethodType(method, instance)


def _init(cls: Any) -> FunctionType:
    ordinary = fields(cls)
    myself = "__dataclass_self__" if any(one.name == "self" for one in ordinary) else "self"
    scope: dict[str, Any] = {"_assign": object.__setattr__, "_HAS_DEFAULT_FACTORY": _standard._HAS_DEFAULT_FACTORY}
    lines = []
    for one in ordinary:
        value = name = one.name
        if one.default_factory is not MISSING:
            scope[f"_make_{name}"] = one.default_factory
            value = f"_make_{name}()" + one.init * f" if {name} is _HAS_DEFAULT_FACTORY else {name}"
        elif not one.init:
            if one.default is MISSING or "__slots__" not in vars(cls):
                continue  # the class has the default, or __post_init__ assigns
            value = f"_default_{name}"
            scope[value] = one.default
        lines.append(
            f"_assign({myself}, {name!r}, {value})" if cls.__dataclass_params__.frozen else f"{myself}.{name} = {value}"
        )
    if hasattr(cls, "__post_init__"):
        lines.append(f"{myself}.__post_init__()")
    parameters = [one for one in ordinary if one.init and not one.kw_only]
    by_name = [one for one in ordinary if one.init and one.kw_only]
    listed = [myself, *(one.name for one in parameters), *["*"] * bool(by_name), *(one.name for one in by_name)]
    function = _compiled(cls, f"__init__({', '.join(listed)})", lines or ["pass"], scope)
    defaults = {one.name: _default(one) for one in ordinary if _default(one) is not MISSING}
    function.__defaults__ = tuple(defaults[one.name] for one in parameters if one.name in defaults) or None
    function.__kwdefaults__ = {one.name: defaults[one.name] for one in by_name if one.name in defaults} or None
    function.__annotations__ = {one.name: one.type for one in (*parameters, *by_name)} | {"return": None}
    return function


def _default(one: Field[Any]) -> Any:
    return one.default if one.default_factory is MISSING else _standard._HAS_DEFAULT_FACTORY


def _compiled(cls: Any, head: str, lines: list[str], scope: dict[str, Any]) -> FunctionType:
    """Return a function of the module of the class whose free names are those of the scope."""
    body = "\n  ".join(lines)
    text = f"def make({', '.join(scope)}):\n def {head}:\n  {body}\n return {head.partition('(')[0]}"
    found: dict[str, Any] = {}
    exec(text, vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}, found)
    function: FunctionType = found["make"](**scope)
    return function


def _repr(cls: Any) -> Callable[[Any], str]:
    names = [one.name for one in fields(cls) if one.repr]

    @reprlib.recursive_repr()
    def __repr__(self: Any) -> str:  # noqa: N807
        return f"{self.__class__.__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    return __repr__


def _tuple(of: str, chosen: Iterable[Field[Any]]) -> str:
    return f"({''.join([f'{of}.{one.name}, ' for one in chosen])})"


def _eq(cls: Any) -> FunctionType:
    mine, theirs = (_tuple(of, [one for one in fields(cls) if one.compare]) for of in ("self", "other"))
    lines = ["if other.__class__ is self.__class__:", f" return {mine} == {theirs}", "return NotImplemented"]
    return _compiled(cls, "__eq__(self, other)", lines, {})


def _hash(cls: Any) -> FunctionType:
    hashed = [one for one in fields(cls) if (one.compare if one.hash is None else one.hash)]
    return _compiled(cls, "__hash__(self)", [f"return hash({_tuple('self', hashed)})"], {})


def _setattr(cls: Any) -> Callable[[Any, str, object], None]:
    names = frozenset([one.name for one in fields(cls)])

    def __setattr__(self: Any, name: str, value: object) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    return __setattr__


def _delattr(cls: Any) -> Callable[[Any, str], None]:
    names = frozenset([one.name for one in fields(cls)])

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __delattr__


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


def _doc(cls: Any) -> str:
    return f"{cls.__name__}{inspect.signature(cls)}".replace(" -> None", "")


_METHODS: dict[str, Callable[[Any], Any]] = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _setattr,
    "__delattr__": _delattr,
    "__doc__": _doc,
}
"""What makes each method of a class."""
