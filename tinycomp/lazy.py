"""Modules that are imported when something of them is first asked for."""

from __future__ import annotations

import importlib
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
