"""The intermediate representation: types, values, nodes, graphs, their text, and their verifier."""

from tinycomp.ir.graph import COMPOSITE, REGION, TINYCOMP, Graph, Node, Value
from tinycomp.ir.types import UNKNOWN, Dim, MapType, OptionalType, SequenceType, TensorType, Type
from tinycomp.remark import Remark

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
