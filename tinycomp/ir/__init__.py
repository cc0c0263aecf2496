"""The intermediate representation: types, values, nodes, graphs, their text, and their verifier.

A graph knows neither how types are inferred nor how it is printed; here it is given both.
"""

from typing import TYPE_CHECKING

from tinycomp.ir.graph import COMPOSITE, REGION, TINYCOMP, Graph, Node, Value
from tinycomp.ir.infer import infer_types
from tinycomp.ir.types import UNKNOWN, Dim, MapType, OptionalType, SequenceType, TensorType, Type
from tinycomp.lazy import LazyModule
from tinycomp.remark import Remark

if TYPE_CHECKING:
    from tinycomp.ir.text import printer
else:
    printer = LazyModule("tinycomp.ir.text.printer")

Graph.default_inference = infer_types
Graph.printer = lambda graph: printer.print_graph(graph)

__all__ = [
    "COMPOSITE",
    "REGION",
    "TINYCOMP",
    "UNKNOWN",
    "Dim",
    "Graph",
    "MapType",
    "Node",
    "OptionalType",
    "Remark",
    "SequenceType",
    "TensorType",
    "Type",
    "Value",
]
