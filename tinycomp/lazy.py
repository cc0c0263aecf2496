"""What is there when it is first asked for: modules that are imported then, and properties that are computed then.

Most of the package is about operators that a model does not have. So every table of operators, targets and the like
lists by name what each module brings, and :class:`LazyTable` imports a module when one of its names is looked up.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar, overload

_K = TypeVar("_K")
_V = TypeVar("_V")
_T = TypeVar("_T")
_LONGEST_IMPORT = 10.0
"""Seconds that a fork waits for imports of other threads; they may themselves wait for the thread that forks."""


class _Imports:
    """Count imports, which a fork waits for: a child would wait for the lock of a half imported module for ever."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way: dict[int, int] = {}
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._wait, after_in_parent=self._go_on, after_in_child=self._begin_anew)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Import something in the block; a thread may be in several, one within the other."""
        thread = threading.get_ident()
        with self._changed:
            self._under_way[thread] = self._under_way.get(thread, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way[thread] -= 1
                if not self._under_way[thread]:
                    del self._under_way[thread]
                    self._changed.notify_all()

    def _wait(self) -> None:
        self._changed.acquire()
        own = {threading.get_ident()}
        self._changed.wait_for(lambda: self._under_way.keys() <= own, _LONGEST_IMPORT)

    def _go_on(self) -> None:
        self._changed.release()

    def _begin_anew(self) -> None:
        """Forget the threads of the parent that are not there."""
        thread = threading.get_ident()
        self._changed = threading.Condition()
        self._under_way = {own: count for own, count in self._under_way.items() if own == thread}


_imports = _Imports()


def _import(name: str, package: str | None = None) -> ModuleType:
    with _imports.one():
        return importlib.import_module(name, package)


class cached_property(functools.cached_property[_T]):  # noqa: N801 - named as what it replaces
    """Compute an attribute when it is first asked for, without the lock that functools has before Python 3.12.

    That lock is one for all objects, and a child waits for it for ever if another thread holds it when a process
    forks. Two threads that ask at the same moment may both compute the value; the first one counts.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> cached_property[_T]: ...

    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> _T: ...

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> cached_property[_T] | _T:
        """Return the value, or the property itself for a class."""
        if instance is None:
            return self
        assert self.attrname is not None
        value: _T = instance.__dict__.setdefault(self.attrname, self.func(instance))
        return value


class LazyModule(ModuleType):
    """Stand for a module that few programs need and that is slow to import.

    Type checkers are told of the real one::

        if TYPE_CHECKING:
            import networkx as nx
        else:
            nx = LazyModule("networkx")
    """

    def __getattr__(self, name: str) -> Any:
        """Import the module, and keep the attribute."""
        value = getattr(_import(self.__name__), name)
        setattr(self, name, value)
        return value


def from_modules(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package whose names come from modules that are imported on first use.

    Args:
        package: Name of the package.
        where: The module of every name.
    """

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(_import(where[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__


class LazyTable(Mapping[_K, _V]):
    """A table of entries that several modules register; each is imported when one of its names is first looked up.

    Which names there are is known without an import. ``items()`` and ``values()`` import all that is left. Threads may
    look up what they like: Python imports a module once, and all of them find the same.

    Args:
        package: The package of the modules.
        names: By module, relative to the package: exactly the names that it registers.
        registered: Returns what a module registers, once it is imported.

    Raises:
        ImportError: When a module is imported, if it registers others than the names that are listed.

    Example:
        >>> table = LazyTable("json", {"decoder": ["JSONDecoder"]}, lambda module: {"JSONDecoder": module.JSONDecoder})
        >>> list(table), "JSONEncoder" in table
        (['JSONDecoder'], False)
        >>> table["JSONDecoder"]
        <class 'json.decoder.JSONDecoder'>
    """

    def __init__(
        self,
        package: str,
        names: Mapping[str, Iterable[_K]],
        registered: Callable[[ModuleType], Mapping[_K, _V]],
    ) -> None:
        self._package = package
        self._names = {module: tuple(listed) for module, listed in names.items()}
        self._where = {name: module for module, listed in self._names.items() for name in listed}
        assert len(self._where) == sum(map(len, self._names.values())), f"{package}: a name is listed twice"
        self._registered = registered
        self._found: dict[_K, _V] = {}

    def __getitem__(self, name: _K) -> _V:
        if name not in self._found:
            self._import(self._where[name])
        return self._found[name]

    @overload
    def get(self, name: _K, default: None = None, /) -> _V | None: ...
    @overload
    def get(self, name: _K, default: _V, /) -> _V: ...
    @overload
    def get(self, name: _K, default: _T, /) -> _V | _T: ...

    def get(self, name: _K, default: Any = None, /) -> Any:
        """Return the entry of a name, or the default; errors of an import are raised."""
        if name in self._found:  # as nearly always
            return self._found[name]
        return self[name] if name in self._where else default

    def __contains__(self, name: object) -> bool:
        return name in self._where

    def __iter__(self) -> Iterator[_K]:
        return iter(self._where)

    def __len__(self) -> int:
        return len(self._where)

    def _import(self, module: str) -> None:
        found = self._registered(_import(f"{self._package}.{module}"))
        if wrong := found.keys() ^ set(self._names[module]):
            raise ImportError(
                f"{self._package}.{module} does not register what its list says: {sorted(map(str, wrong))}",
                name=f"{self._package}.{module}",
            )
        self._found.update(found)
