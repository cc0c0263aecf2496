"""Dataclasses for which nothing is compiled behave as those of the standard library."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

import pytest

import tinycomp
import tinycomp.dataclass

DECORATORS: dict[str, Callable[..., Any]] = {"standard": dataclasses.dataclass, "own": tinycomp.dataclass.dataclass}


def make(decorator: Callable[..., Any], **options: Any) -> Any:
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
        key: str = field(default="key", hash=False, repr=False)

    return Point


def behaviour(cls: Any) -> dict[str, object]:
    """Return what can be seen of a class of :func:`make`, errors included."""

    def outcome(call: Callable[[], object]) -> object:
        try:
            return call()
        except (AttributeError, TypeError) as error:
            return type(error), str(error).replace("make.<locals>.", "")

    one, same, other = cls(1, tags=["a"]), cls(1, 2, ["a"], "noted"), cls(1, y=3)
    return {
        "repr": repr(one),
        "fields": [(f.name, f.type, f.init, f.compare) for f in dataclasses.fields(cls)],
        "match": cls.__match_args__,
        "parameters": repr(cls.__dataclass_params__),
        "signature": str(inspect.signature(cls)),
        "equal": (one == same, one == other, one == (1,), one == one),
        "dict": dataclasses.asdict(one),
        "replaced": repr(dataclasses.replace(one, y=7)),
        "own lists": cls(1).tags is not cls(1).tags,
        "hash": outcome(lambda: hash(cls(1, tags=())) == hash(cls(1, tags=(), note="noted"))),
        "unhashable": outcome(lambda: isinstance(hash(one), int)),
        "assigned": outcome(lambda: setattr(one, "x", 5)),
        "deleted": outcome(lambda: delattr(other, "x")),
        "unknown": outcome(lambda: setattr(one, "z", 5)),
        "missing": outcome(cls),
        "copied": copy.copy(one) is not one,
    }


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize("eq", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_it_behaves_as_the_standard_one(frozen: bool, eq: bool, slots: bool) -> None:
    standard, own = (behaviour(make(decorator, frozen=frozen, eq=eq, slots=slots)) for decorator in DECORATORS.values())
    if frozen and slots:  # the standard one fails with the class that slots have replaced, differently in each version
        standard["unknown"] = own["unknown"]
    assert own == standard


@pytest.mark.parametrize("base", DECORATORS)
@pytest.mark.parametrize("derived", DECORATORS)
def test_either_may_inherit_from_the_other(base: str, derived: str) -> None:
    parent = make(DECORATORS[base], frozen=True)

    @DECORATORS[derived](frozen=True)
    class Child(parent):  # type: ignore[misc, valid-type]
        z: int = 0

        def __post_init__(self) -> None:
            object.__setattr__(self, "key", f"of {self.z}")

    child = Child(1, z=4)
    assert (child.x, child.y, child.z, child.key) == (1, 2, 4, "of 4")
    assert child != parent(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        child.z = 5
    with pytest.raises(TypeError, match="non-frozen"):
        DECORATORS[derived](type("Loose", (parent,), {"__annotations__": {}}))


def test_what_a_class_defines_stays() -> None:
    @tinycomp.dataclass.dataclass(frozen=True)
    class Named:
        name: str

        def __repr__(self) -> str:
            return self.name

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

    assert (repr(Named("a")), Named("a") == 1, hash(Named("a"))) == ("a", True, 5)


@tinycomp.dataclass.dataclass(frozen=True, slots=True)
class Kept:
    """One that pickle finds by its name."""

    a: int
    b: tuple[int, ...] = ()


def test_a_frozen_one_with_slots_is_pickled() -> None:
    assert pickle.loads(pickle.dumps(Kept(1, (2, 3)))) == Kept(1, (2, 3))
    assert not hasattr(Kept(1), "__dict__")


def test_one_that_holds_itself_is_shown() -> None:
    point = make(tinycomp.dataclass.dataclass)(1)
    point.tags.append(point)
    assert "tags=[...]" in repr(point)


def test_classes_are_defined_in_no_other_way() -> None:
    """The standard decorator is left to the examples, whose authors have the standard library alone."""
    package = Path(tinycomp.__file__).parent
    exempt = {package / "dataclass.py", *(package / "targets").glob("*_sim*.py")}
    found = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if path not in exempt
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (
            isinstance(node, ast.ImportFrom)
            and node.module == "dataclasses"
            and "dataclass" in [a.name for a in node.names]
        )
        or (isinstance(node, ast.Attribute) and ast.unparse(node) == "dataclasses.dataclass")
    ]
    assert not found, "import dataclass from tinycomp.dataclass"
