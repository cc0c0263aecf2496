"""Dataclasses whose methods are made late behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import pickle
import re
import sys
import threading
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import InitVar, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from tinycomp import records

T = TypeVar("T")
DECORATORS: dict[str, Callable[..., Any]] = {"standard": dataclasses.dataclass, "own": records.dataclass}
Make = Callable[..., Any]


def point(decorator: Make, **options: Any) -> Any:
    """Return a class with fields of every kind."""

    @decorator(**options)
    class Point:
        """A point."""

        kind: ClassVar[str] = "point"
        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list)
        note: str = field(default="", compare=False)
        cache: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
        fixed: int = field(default=7, init=False)
        key: str = field(default="key", hash=False, repr=False, metadata={"saved": False})
        last: int = field(default=1, kw_only=True)

        def __post_init__(self) -> None:
            self.cache["post"] = self.x

    return Point


def bare(decorator: Make, **options: Any) -> Any:
    @decorator(**options)
    class Bare:
        pass

    return Bare


def derived(decorator: Make, **options: Any) -> Any:
    @decorator(**options)
    class Derived(point(decorator, **options)):  # type: ignore[misc]
        y: int = 3
        self: int = 4

    return Derived


def plainly_derived(decorator: Make, **options: Any) -> Any:
    class Plain(point(decorator, **options)):  # type: ignore[misc]
        pass

    return Plain


def generic(decorator: Make, **options: Any) -> Any:
    @decorator(**options)
    class Box(Generic[T]):
        x: T
        y: int = 1

    return Box


def abstract(decorator: Make, **options: Any) -> Any:
    class Base(ABC):
        @abstractmethod
        def area(self) -> int: ...

    @decorator(**options)
    class Square(Base):
        x: int
        y: int = 0

        def area(self) -> int:
            return self.x**2

    return Square


def own_methods(decorator: Make, **options: Any) -> Any:
    @decorator(**options)
    class Named:
        x: int
        y: int = 0

        def __repr__(self) -> str:
            return f"<{self.x}>"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

    return Named


def own_equality(decorator: Make, **options: Any) -> Any:
    @decorator(**options)
    class Same:
        x: int
        y: int = 0

        def __eq__(self, other: object) -> bool:
            return True

    return Same


def own_init(decorator: Make, **options: Any) -> Any:
    @decorator(**options)
    class Begun:
        x: int
        y: int = 0

        def __init__(self, x: int, **_more: int) -> None:
            object.__setattr__(self, "x", -x)
            object.__setattr__(self, "y", 8)

    return Begun


def with_initvar(decorator: Make, **options: Any) -> Any:
    @decorator(**options)
    class Started:
        x: int
        y: int = 1
        seed: InitVar[int] = 3  # type: ignore[assignment]

        def __post_init__(self, seed: int) -> None:
            object.__setattr__(self, "y", seed)

    return Started


CLASSES = (
    point, bare, derived, plainly_derived, generic, abstract, own_methods, own_equality, own_init, with_initvar,
)  # fmt: skip
OPTIONS: list[dict[str, bool]] = [
    {"frozen": frozen, "eq": eq, "slots": slots, "repr": repr_}
    for frozen in (False, True) for eq in (False, True) for slots in (False, True) for repr_ in (True, False)
] + [{"order": True}, {"unsafe_hash": True}, {"kw_only": True}, {"init": False}]  # fmt: skip


def outcome(call: Callable[[], object]) -> object:
    """Return what a call returns, or the error that it raises."""
    try:
        return call()
    except (AttributeError, TypeError, ValueError) as error:
        return type(error), str(error)


def shown(call: Callable[[], object]) -> str:
    return str(outcome(call)).partition(" object at ")[0]


def behaviour(cls: Any) -> dict[str, object]:
    """Return what can be seen of a class, errors included."""
    arguments, changes = ((1,), {"y": 3}) if "x" in cls.__dataclass_fields__ else ((), {})
    try:
        one, same, other = cls(*arguments), cls(*arguments), cls(*arguments, **changes)
    except TypeError as error:
        return {"refused": str(error), "signature": str(inspect.signature(cls))}
    return {
        "repr": shown(lambda: one),
        "fields": [(f.name, f.type, f.init, f.compare, f.kw_only, f.metadata) for f in dataclasses.fields(cls)],
        "all fields": [(name, str(f._field_type)) for name, f in cls.__dataclass_fields__.items()],
        "match": cls.__match_args__,
        "parameters": repr(cls.__dataclass_params__),
        "signature": (str(inspect.signature(cls)), str(inspect.signature(cls.__init__))),
        "annotations": list(cls.__init__.__annotations__.items()),
        "names": (cls.__init__.__module__, cls.__init__.__qualname__, cls.__eq__.__qualname__, cls.__repr__.__name__),
        "doc": cls.__doc__,
        "slots": (getattr(cls, "__slots__", None), hasattr(one, "__dict__")),
        "equal": (one == same, one == other, one != other, one == (1,), one == one),
        "dict": outcome(lambda: dataclasses.asdict(one)),
        "replaced": shown(lambda: dataclasses.replace(one, **changes)),
        "fields of one": outcome(lambda: [(f, getattr(one, f)) for f in cls.__dataclass_fields__]),
        "hash": outcome(lambda: isinstance(hash(one), int)),
        "hashes": outcome(lambda: hash(cls(1, 2, ())) == hash(cls(1, 2, (), "noted"))),
        "assigned": outcome(lambda: setattr(other, "x", 5)),
        "deleted": outcome(lambda: delattr(other, "x")),
        "unknown": type(outcome(lambda: setattr(one, "z", 5))),
        "missing": shown(cls),
        "extra": outcome(lambda: cls(*range(20))),
        "unexpected": shown(lambda: cls(*arguments, w=1)),
        "copied": copy.deepcopy(one) == one,
    }


def seen(make: Make, options: dict[str, bool], decorator: Make) -> dict[str, object]:
    return behaviour(make(decorator, **options))


def _differs(make: Make, options: dict[str, bool]) -> Iterator[str]:
    """What depends on the version of Python."""
    if options.get("slots") and options.get("frozen"):  # where no field is assigned to, that class has been replaced
        yield from ("unknown", *["assigned", "deleted"] * (make is bare))
    if options.get("slots") and sys.version_info < (3, 11):  # which has slots twice
        yield "slots"


@pytest.mark.parametrize("few", [0, records._FEW])
@pytest.mark.parametrize("make", CLASSES)
def test_it_behaves_as_the_standard_one(make: Make, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_FEW", few)
    for options in OPTIONS:
        standard, own = (outcome(functools.partial(seen, make, options, d)) for d in DECORATORS.values())
        if isinstance(own, dict) and isinstance(standard, dict):
            for name in _differs(make, options):
                own[name] = standard.get(name)
        assert (options, own) == (options, standard)


@pytest.mark.parametrize(
    ("args", "more"),
    [((), {}), (range(20), {}), ((1,), {"w": 1}), ((1,), {"x": 2}), ((1,), {"cache": {}}), ((1, 2), {"last": 3})],
)
def test_a_first_instance_is_refused_as_any_other(args: Iterable[int], more: dict[str, Any]) -> None:
    standard, own = (shown(lambda d=d: point(d)(*args, **more)) for d in DECORATORS.values())  # type: ignore[misc]
    assert own == standard


@pytest.mark.parametrize("base", DECORATORS)
@pytest.mark.parametrize("child", DECORATORS)
@pytest.mark.parametrize("slots", [False, True])
def test_either_may_inherit_from_the_other(base: str, child: str, slots: bool) -> None:
    @DECORATORS[base](frozen=True, slots=slots)
    class Base:
        x: int
        key: str = field(default="", compare=False)

    @DECORATORS[child](frozen=True, slots=slots)
    class Child(Base):
        z: int = 0

        def __post_init__(self) -> None:
            object.__setattr__(self, "key", f"of {self.z}")

    child_of: Any = Child
    one = child_of(1, z=4)
    assert repr(one).endswith("Child(x=1, key='of 4', z=4)")
    assert one == child_of(1, "", 4)
    assert hash(one) == hash(child_of(1, "other", 4))
    assert [f.name for f in dataclasses.fields(child_of)] == ["x", "key", "z"]
    assert hasattr(one, "__dict__") is not slots
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        one.x = 5
    for frozen, text in (False, "non-frozen dataclass from a frozen"), (True, "frozen dataclass from a non-frozen"):
        parent = DECORATORS[base](frozen=not frozen)(type("Parent", (), {"__annotations__": {"x": int}}))
        with pytest.raises(TypeError, match=f"cannot inherit {text} one"):
            DECORATORS[child](frozen=frozen)(type("Loose", (parent,), {"__annotations__": {}}))


@pytest.mark.parametrize(
    "namespace",
    [
        {"__annotations__": {"a": "list[int]"}, "a": []},
        {"__annotations__": {"a": "int", "b": "int"}, "a": 1},
        {"__annotations__": {}, "a": field(default=1)},
        {"__annotations__": {"a": "int"}, "__slots__": ("a",)},
        {"__annotations__": {"a": "int"}, "__setattr__": object.__setattr__},
        {"__annotations__": {"a": "ClassVar[int]"}, "a": field(default_factory=int)},
    ],
    ids=["mutable", "order", "no annotation", "slots", "setattr", "class variable"],
)
def test_what_the_standard_one_refuses_is_refused_as_it_is_defined(namespace: dict[str, Any]) -> None:
    def refused(decorator: Make) -> object:
        made = {**namespace, "__module__": __name__}
        return outcome(lambda: decorator(frozen=True, slots=True)(type("Wrong", (), copy.deepcopy(made))))

    standard = refused(dataclasses.dataclass)
    own = refused(records.dataclass)
    assert isinstance(standard, tuple)
    assert isinstance(own, tuple)
    assert own[0] == standard[0]
    assert standard[1].startswith(own[1])  # newer versions say more


@records.dataclass(frozen=True, slots=True)
class Kept:
    """One that pickle finds by its name."""

    a: int
    b: tuple[int, ...] = ()


@records.dataclass(slots=True)
class Changed:
    """Another."""

    a: Path
    b: list[Any] = records.field(default_factory=list)


@pytest.mark.parametrize("one", [Kept(1, (2, 3)), Changed(Path("a"), [1])], ids=["frozen", "not frozen"])
def test_those_with_slots_are_pickled_and_copied(one: Any) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(one, protocol)) == one
    assert copy.copy(one) == copy.deepcopy(one) == one
    assert not hasattr(one, "__dict__")


def test_annotations_are_found_where_the_class_is() -> None:
    assert typing.get_type_hints(Kept.__init__) == {"a": int, "b": tuple[int, ...], "return": type(None)}
    assert inspect.signature(Changed).parameters["a"].annotation == "Path"
    assert inspect.signature(Changed, eval_str=True).parameters["a"].annotation is Path


def test_a_case_takes_them_apart() -> None:
    match Kept(1, (2, 3)):
        case Kept(a, (2, b)):
            assert (a, b) == (1, 3)
        case _:
            raise AssertionError


def test_one_that_holds_itself_is_shown() -> None:
    one = Changed(Path("a"))
    one.b.append(one)
    assert "b=[...]" in repr(one)


def test_what_is_kept_of_a_frozen_one_is_kept() -> None:
    @records.dataclass(frozen=True)
    class Circle:
        r: int

        @functools.cached_property
        def area(self) -> int:
            return 3 * self.r**2

    one = Circle(2)
    assert (one.area, vars(one)) == (12, {"r": 2, "area": 12})


def test_the_same_method_is_there_for_all_once_it_is_made() -> None:
    def fresh() -> Any:
        return point(records.dataclass)

    cls = fresh()
    late = vars(cls)["__init__"]
    assert not inspect.isfunction(late)
    child: Any = type("Child", (cls,), {"__init__": late})  # as Protocol does
    assert child(1).x == 1
    assert child.__init__ is vars(cls)["__init__"] is not late
    interval, failed = sys.getswitchinterval(), []
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            cls, begin = fresh(), threading.Barrier(4)

            def use(cls: Any = cls, begin: threading.Barrier = begin) -> None:
                begin.wait()
                if not (cls(1) == cls(1, 2) and cls(1, tags=["a"]).tags == ["a"] and "x=1" in repr(cls(1))):
                    failed.append(cls)

            threads = [threading.Thread(target=use) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            while not inspect.isfunction(vars(cls)["__init__"]):
                cls(1)
    finally:
        sys.setswitchinterval(interval)
    assert not failed


def test_classes_are_defined_in_no_other_way() -> None:
    """The standard decorator is left to the examples of targets, which are written as vendors write theirs."""
    package = Path(records.__file__).parent
    exempt = {"records.py", "targets/device_sim.py", "targets/npu_sim_device.py"}
    standard = re.compile(r"from dataclasses import .*\bdataclass\b|dataclasses\.dataclass\b")
    paths = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    found = [name for name, path in paths.items() if standard.search(path.read_text(encoding="utf-8"))]
    assert set(found) == exempt, "import dataclass from tinycomp.records"
