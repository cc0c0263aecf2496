"""The base of all passes: a frozen dataclass with one method, whose fields are the options of the pass."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import ClassVar

from tinycomp.ir.graph import Graph
from tinycomp.records import dataclass


@dataclass(frozen=True)
class Pass(ABC):
    """Transform a graph in place.

    A subclass is a frozen dataclass: its fields are its options, its class name gives its command-line name
    (``MergeRegions`` is ``merge-regions``).
    """

    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        """Derive the command-line name from the class name."""
        super().__init_subclass__()
        cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()

    @abstractmethod
    def run(self, graph: Graph) -> bool:
        """Change ``graph`` in place; the pass itself decides about the bodies below it.

        Returns:
            Whether anything changed.
        """
