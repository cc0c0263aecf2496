"""Modules that are imported when something of them is first asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """Stand for a module whose import takes long and which few programs need.

    Type checkers are told of the real one::

        if TYPE_CHECKING:
            import networkx as nx
        else:
            nx = LazyModule("networkx")
    """

    def __getattr__(self, name: str) -> Any:
        """Import the module, and keep what was asked for."""
        value = getattr(importlib.import_module(self.__name__), name)
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
        value = getattr(importlib.import_module(where[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
