"""Dataclasses that take little time to define: their methods are made when they are first looked up.

The standard decorator compiles up to six functions for every class, which for the classes of a compiler takes longer
than a small model takes to compile and run. Many classes of a process have no instance, and of the others few are
compared or shown. All else is as in :mod:`dataclasses`, whose functions treat the classes as their own, and whose
dataclasses may inherit from these and the other way round. Comparing is the same in every version of Python: as tuples
of the fields are compared. ``ClassVar`` is known by its name.
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
from operator import attrgetter
from types import CellType, CodeType, FunctionType, MemberDescriptorType, MethodType
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
_FEW = 16
"""How many instances are made without the ``__init__`` of their class: to make that takes as long as some dozens."""


def _is_special(cls: type[Any]) -> bool:
    kinds = " ".join(map(str, cls.__annotations__.values()))
    return "InitVar" in kinds or "KW_ONLY" in kinds


def _made(cls: Any, *, eq: bool, repr: bool, frozen: bool, slots: bool) -> Any:  # noqa: A002 (the standard's)
    """Return the class, or the one with slots, with the methods that these options ask for."""
    everything = _inherited(cls, frozen) | _own(cls)
    ordinary = [one for one in everything.values() if one._field_type is _standard._FIELD]
    positional = [one for one in ordinary if one.init and not one.kw_only]
    optional = [one.default is not MISSING or one.default_factory is not MISSING for one in positional]
    if sorted(optional) != optional:
        wrong = positional[optional.index(False, optional.index(True))]
        raise TypeError(f"non-default argument {wrong.name!r} follows default argument")
    given = set(vars(cls))
    if "__eq__" in given and vars(cls)["__hash__"] is None:  # which is Python's own doing
        given.discard("__hash__")
    refusals = ["__setattr__", "__delattr__"] if frozen else []
    for name in refusals:
        if name in given:
            raise TypeError(f"Cannot overwrite attribute {name} in class {cls.__name__}")
    methods = ["__init__", *["__repr__"] * repr, *["__eq__", "__hash__"] * eq, *refusals]
    later = [_Later(name) for name in [*methods, *["__doc__"] * (not cls.__doc__)]]
    wanted: dict[str, Any] = {each.name: each for each in later}
    if eq and not frozen:
        wanted["__hash__"] = None
    if frozen and slots:
        wanted |= {"__getstate__": _getstate, "__setstate__": _setstate}
    wanted |= {"__replace__": replace, "__match_args__": tuple([one.name for one in positional])}
    wanted = {name: value for name, value in wanted.items() if name not in given or name == "__doc__"}
    wanted |= {"__dataclass_fields__": everything, "__dataclass_params__": _parameters(eq, repr, frozen, slots)}
    if slots:
        cls = _with_slots(cls, [one.name for one in ordinary], wanted)
    else:
        for name, value in wanted.items():
            setattr(cls, name, value)
    for each in later:
        each.cls = cls
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
        found[name] = one = _field(cls, name, kind)
        if isinstance(vars(cls).get(name), Field):
            if one.default is MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, one.default)
    for name, value in vars(cls).items():
        if isinstance(value, Field):
            raise TypeError(f"{name!r} is a field but has no type annotation")
    return found


def _field(cls: type[Any], name: str, kind: Any) -> Any:
    """Return a field as the standard library has it, which is asked where it may be another thing than a field."""
    if not isinstance(kind, str) or "ClassVar" in kind:
        return _standard._get_field(cls, name, kind, False)
    default = vars(cls).get(name, MISSING)
    if default is MISSING and cls.__bases__ != (object,):
        default = getattr(cls, name, MISSING)
    one: Any = default
    if not isinstance(default, Field):
        one = field(default=MISSING if isinstance(default, MemberDescriptorType) else default)
    one.name, one.type, one._field_type = name, kind, _standard._FIELD
    if one.kw_only is MISSING:
        one.kw_only = False
    if one.default.__class__.__hash__ is None:
        raise ValueError(f"mutable default {type(one.default)} for field {name} is not allowed: use default_factory")
    return one


def _with_slots(cls: Any, names: list[str], wanted: dict[str, Any]) -> Any:
    """Return a class with slots for what none of its bases has one for, and with all that is wanted."""
    if "__slots__" in vars(cls):
        raise TypeError(f"{cls.__name__} already specifies __slots__")
    taken = set(names) | {"__dict__", "__weakref__"}
    namespace = {name: value for name, value in vars(cls).items() if name not in taken} | wanted
    theirs = [vars(base).get("__slots__", ()) for base in cls.__mro__[1:-1]]
    inherited = {slot for slots in theirs for slot in ([slots] if isinstance(slots, str) else slots)}
    namespace["__slots__"] = tuple([name for name in names if name not in inherited])
    made = type(cls)(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    return made


class _Later:
    """A method of a class, made when it is first looked up, which it then takes the place of.

    The first instances of a class do without ``__init__``. Threads may look a method up at the same moment: each of
    them makes it, and which one stays makes no difference.
    """

    __slots__ = ("cls", "few", "name", "substitute")

    def __init__(self, name: str) -> None:
        self.cls: Any = None
        self.name = name
        self.few = _FEW if name == "__init__" else 0
        self.substitute: Callable[..., None] | None = None

    def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
        """Return the method, bound to the instance if there is one."""
        if self.few > 0 and instance is not None:
            self.few -= 1
            self.substitute = self.substitute or _field_by_field(self.cls)
            return MethodType(self.substitute, instance)
        method = vars(self.cls)[self.name]
        if method is self:
            method = _METHODS[self.name](self.cls)
            if isinstance(method, FunctionType):
                method.__module__ = self.cls.__module__
                method.__qualname__ = f"{self.cls.__qualname__}.{self.name}"
            setattr(self.cls, self.name, method)
        return method if instance is None or isinstance(method, str) else MethodType(method, instance)


def _field_by_field(cls: Any) -> Callable[..., None]:
    """Return what initialises an instance as ``__init__`` does: slowly, but without being compiled."""
    all_fields = fields(cls)
    assign: Any = object.__setattr__ if cls.__dataclass_params__.frozen else setattr
    positional = [one.name for one in all_fields if one.init and not one.kw_only]
    known = {one.name for one in all_fields if one.init}
    needed = {one.name for one in all_fields if one.init and one.default is one.default_factory is MISSING}
    post_init, slots = hasattr(cls, "__post_init__"), "__slots__" in vars(cls)

    def initialise(instance: Any, /, *args: Any, **more: Any) -> None:
        values = dict(zip(positional, args, strict=False))
        if len(args) > len(values) or more.keys() & values.keys() or not needed <= values.keys() | more.keys() <= known:
            cls.__init__(instance, *args, **more)  # which says what is wrong
            return
        values |= more
        for one in all_fields:
            if one.name in values:
                assign(instance, one.name, values[one.name])
            elif one.default_factory is not MISSING:
                assign(instance, one.name, one.default_factory())
            elif one.default is not MISSING and (one.init or slots):
                assign(instance, one.name, one.default)
        if post_init:
            instance.__post_init__()

    return initialise


_VALUES = {
    "given": "field_{0}",
    "given or made": "make_{0}() if field_{0} is absent else field_{0}",
    "made": "make_{0}()",
    "default": "default_{0}",
}
"""Where the value of a field comes from."""


@functools.cache
def _template(fields_: tuple[tuple[str, bool], ...], frozen: bool, post_init: bool) -> CodeType:
    """Return the code of an ``__init__`` whose fields are called ``field_0`` and so on.

    Args:
        fields_: Where the value of each comes from, a key of :data:`_VALUES`, and whether it is given by name only.
        frozen: Whether the fields cannot be assigned to in the usual way.
        post_init: Whether ``__post_init__`` follows.
    """
    line = "assign(self, 'field_{0}', {1})" if frozen else "self.field_{0} = {1}"
    lines = [line.format(at, _VALUES[source].format(at)) for at, (source, _by_name) in enumerate(fields_)]
    lines += ["self.__post_init__()"] if post_init else []
    given = [(f"field_{at}", by_name) for at, (source, by_name) in enumerate(fields_) if source.startswith("given")]
    named = [name for name, by_name in given if by_name]
    heads = ["self", *[name for name, by_name in given if not by_name], *["*"] * bool(named), *named]
    free = [f"{'default' if source == 'default' else 'make'}_{at}" for at, (source, _by_name) in enumerate(fields_)]
    return _compiled({}, f"__init__({', '.join(heads)})", lines or ["pass"], ["assign", "absent", *free]).__code__


def _init(cls: Any) -> FunctionType:
    """Return a template with the names of the fields of the class."""
    absent = _standard._HAS_DEFAULT_FACTORY
    scope: dict[str, Any] = {"assign": object.__setattr__, "absent": absent}
    names: dict[Any, str] = {}
    shape: list[tuple[str, bool]] = []
    for one in fields(cls):
        at, made = len(shape), one.default_factory is not MISSING
        if one.init:
            shape.append(("given or made" if made else "given", bool(one.kw_only)))
        elif made or (one.default is not MISSING and "__slots__" in vars(cls)):
            shape.append(("made" if made else "default", False))
        else:
            continue  # the class has the default, or __post_init__ assigns
        names[f"field_{at}"] = one.name
        scope |= {f"make_{at}": one.default_factory, f"default_{at}": one.default}
    code = _template(tuple(shape), cls.__dataclass_params__.frozen, hasattr(cls, "__post_init__"))
    names["self"] = "__dataclass_self__" if "self" in names.values() else "self"
    code = code.replace(
        co_varnames=tuple([names[name] for name in code.co_varnames]),
        co_names=tuple([names.get(name, name) for name in code.co_names]),
        co_consts=tuple([names.get(const, const) for const in code.co_consts]),
    )
    cells = tuple([CellType(scope[name]) for name in code.co_freevars])
    function = FunctionType(code, _globals(cls), "__init__", None, cells)
    given = sorted([one for one in fields(cls) if one.init], key=attrgetter("kw_only"))
    kinds = [(one, one.default if one.default_factory is MISSING else absent) for one in given]
    function.__defaults__ = tuple([x for one, x in kinds if x is not MISSING and not one.kw_only]) or None
    function.__kwdefaults__ = {one.name: x for one, x in kinds if x is not MISSING and one.kw_only} or None
    function.__annotations__ = {one.name: one.type for one in given} | {"return": None}
    return function


def _globals(cls: Any) -> dict[str, Any]:
    return vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}


def _compiled(where: dict[str, Any], head: str, lines: list[str], free: Iterable[str] = ()) -> FunctionType:
    body = "\n  ".join(lines)
    text = f"def make({', '.join(free)}):\n def {head}:\n  {body}\n return {head.partition('(')[0]}"
    found: dict[str, Any] = {}
    exec(text, where, found)
    function: FunctionType = found["make"](*free)
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
    return _compiled(_globals(cls), "__eq__(self, other)", lines)


def _hash(cls: Any) -> FunctionType:
    hashed = [one for one in fields(cls) if (one.compare if one.hash is None else one.hash)]
    return _compiled(_globals(cls), "__hash__(self)", [f"return hash({_tuple('self', hashed)})"])


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
