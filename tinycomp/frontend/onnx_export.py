"""Graphs as ONNX models that any runtime can run.

What tinycomp adds to ONNX is expressed in ONNX: composites, regions and calls as model-local functions, changes of
memory layout and fusion barriers as Identity.
"""

from __future__ import annotations

from importlib import metadata

import onnx
from onnx import helper

from tinycomp.errors import ModelError
from tinycomp.frontend.export_graph import Library, Writer
from tinycomp.frontend.export_names import Names
from tinycomp.frontend.loading import newest_opsets
from tinycomp.frontend.opsets import choose_opsets
from tinycomp.ir.graph import Graph

_OLDEST_IR = 8
_IR_WITH_METADATA = 10


def export_model(graph: Graph, *, model_name: str | None = None) -> onnx.ModelProto:
    """Return a graph as an ONNX model.

    Each domain is imported in a version under which the nodes keep the operator version they have. Names of inputs,
    outputs and, where ONNX allows it, of values and nodes are kept; :func:`tinycomp.frontend.import_model` turns the
    functions of composites and regions back into such nodes.

    Args:
        graph: The graph.
        model_name: Name of the exported graph; by default the name it has.

    Raises:
        ModelError: If it is not a graph.
        UnsupportedError: If a node has no counterpart in ONNX, or no opset suits all nodes.
    """
    if not isinstance(graph, Graph):
        raise ModelError(
            "not a graph",
            expected="a tinycomp.Graph",
            found=type(graph).__name__,
            hint="Graphs come from tinycomp.from_onnx and leave a tinycomp.Pipeline.",
        )
    library = Library()
    chosen = choose_opsets(graph)
    writer = Writer(library, chosen)
    proto = onnx.ModelProto(producer_name="tinycomp", producer_version=_version())
    proto.graph.CopyFrom(writer.graph(graph, Names(), {}, nested=False))
    proto.graph.name = model_name or graph.name
    opsets = writer.opsets or {"": chosen.get("", newest_opsets()[""])}
    for function in library.protos:  # runtimes that inline functions want their domains imported by the model too
        for entry in function.opset_import:
            opsets.setdefault(entry.domain, entry.version)
    proto.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in opsets.items())
    proto.functions.extend(library.protos)
    proto.ir_version = _ir_version(proto)
    helper.set_model_props(proto, graph.metadata)
    return proto


def _ir_version(proto: onnx.ModelProto) -> int:
    """Return the oldest IR version that has everything the model uses, so that older runtimes can read it."""
    imports = [*proto.opset_import, *(entry for f in proto.functions for entry in f.opset_import)]
    known = [entry for entry in imports if (entry.domain or "ai.onnx", entry.version) in helper.OP_SET_ID_VERSION_MAP]
    by_opset = helper.find_min_ir_version_for(known) if known else _OLDEST_IR
    return max(_OLDEST_IR, by_opset, _IR_WITH_METADATA if proto.functions else 0)


def _version() -> str:
    try:
        return metadata.version("tinycomp")
    except metadata.PackageNotFoundError:
        return ""
