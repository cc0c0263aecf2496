"""Export compiled modules as ONNX models whose regions are EPContext nodes, which onnxruntime's providers read.

An EPContext node of the domain ``com.microsoft`` takes the place of a region that became a blob: its operands and
results are those of the region, its attributes hold the blob or name a file with it (onnxruntime's documentation, "EP
Context Design"). What runs on the host or became something else stays ONNX.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinycomp.arguments import checked
from tinycomp.errors import ArtifactError, UnsupportedError
from tinycomp.frontend import export_model
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.text.literals import content_hash
from tinycomp.ir.text.parser import parse_graph
from tinycomp.memory.reading import reading
from tinycomp.ops.typing import infer_node_types
from tinycomp.runtime.archive import Archive
from tinycomp.runtime.artifact import generated_from_dict
from tinycomp.runtime.blob import Blob
from tinycomp.runtime.files import write_files
from tinycomp.runtime.module import Module

DOMAIN = "com.microsoft"
OP = "EPContext"
_Key = tuple[str, tuple[tuple[Any, ...], ...]]


@checked()
def export_ep_context(
    module: Module,
    path: str | os.PathLike[str],
    *,
    embed: bool = True,
    sources: Mapping[str, str] | None = None,
) -> None:
    """Write a compiled module as an ONNX model with an EPContext node for every region that became a blob.

    The attributes of a node: ``partition_name`` is the symbol of its region, ``source`` the name of its target,
    ``ep_sdk_version`` the version of its blob, and ``main_context`` is 0 where a node before it has the same region.
    Arrays that a blob names beside its bytes are initializers, each stored once, and follow the operands of the region
    in the order of the blob; ``notes`` names them.

    Args:
        module: The module.
        path: Where to write the model.
        embed: Whether the nodes hold the blobs (``embed_mode`` 1). Otherwise these become files beside the model, which
            the nodes name relative to it; blobs that are equal share one.
        sources: What ``source`` says instead of a target's name, such as ``{"npu": "AcmeExecutionProvider"}``.

    Raises:
        UnsupportedError: If no region became a blob, or one became a blob for some of its sizes only.
        WriteError: If the files cannot be written.
    """
    graph, blobs = _contents(module)
    writer = _Writer(blobs, Path(path), embed, sources or {})
    for owner, node in [*graph.walk()]:
        if node.is_region:
            writer.replace(owner, node)
    if not writer.seen:
        raise UnsupportedError(
            "no region of the module became a blob", where=graph.name,
            expected="a target whose code generator returns a Blob",
            found=", ".join(sorted({r.target for r in module.report().regions})) or "no region",
            hint="Graphs without blobs are exported by tinycomp.to_onnx.",
        )  # fmt: skip
    write_files({**writer.files, Path(path): export_model(graph).SerializeToString()})


def _contents(module: Module) -> tuple[Graph, dict[_Key, Blob]]:
    """Return the partitioned graph of a module and its blobs, by region symbol and operand shapes."""
    archive = Archive.from_bytes(module.to_bytes())
    about = archive.manifest
    blobs: dict[_Key, Blob] = {}
    with reading(ArtifactError, problem="the description is damaged"):
        for entry in about.get("programs", ()):
            made = generated_from_dict(entry, archive, ()) if "blob" in entry else None
            if isinstance(made, Blob):
                blobs[entry["symbol"], tuple(map(tuple, entry["shapes"]))] = made
        constants = {h: archive.array(key) for h, key in about.get("constants", {}).items()}
        if not blobs:
            return Graph(module.report().model), blobs
        return parse_graph(archive.texts["partitioned.tir"], constants=constants, infer=infer_node_types), blobs


class _Writer:
    """Put EPContext nodes in the places of regions.

    Attributes:
        seen: The symbols of the regions that were replaced.
        files: The contents of the files beside the model.
    """

    def __init__(self, blobs: Mapping[_Key, Blob], path: Path, embed: bool, sources: Mapping[str, str]) -> None:
        self._blobs, self._path, self._embed, self._sources = blobs, path, embed, sources
        self._arrays: dict[tuple[Graph, str], Value] = {}
        self.seen: set[str] = set()
        self.files: dict[Path, bytes] = {}

    def replace(self, graph: Graph, node: Node) -> None:
        """Replace a region whose blob is known; leave others alone.

        Raises:
            UnsupportedError: If it has blobs for some sizes only.
        """
        shapes = tuple((v.shape if v is not None else None) or () for v in node.inputs)
        blob = self._blobs.get((node.op, shapes))
        if blob is None:
            if any(symbol == node.op for symbol, _ in self._blobs):
                raise UnsupportedError(
                    "the region has a blob for every set of sizes, but an EPContext node holds only one",
                    where=f"{node.target}, region {node.op}", found=", ".join(str(v.type) for v in node.body.inputs),
                    hint="Compile with shapes={...}, so that all sizes are known.",
                )  # fmt: skip
            return
        arrays = [self._array(graph, array) for array in blob.arrays.values()]
        names = [graph.fresh(v.name) if v.name else "" for v in node.outputs]
        made = graph.add(
            OP, [*node.inputs, *arrays], self._attributes(node, blob), domain=DOMAIN, version=1, outputs=names,
            types=[v.type for v in node.outputs], at=node,
        )  # fmt: skip
        self.seen.add(node.op)
        results = [(old, new, old.name) for old, new in zip(node.outputs, made.outputs, strict=True) if old.name]
        for old, new, _ in results:
            graph.replace_uses(old, new)
        graph.erase(node)
        for _, new, name in results:
            graph.rename(new, name)

    def _attributes(self, node: Node, blob: Blob) -> dict[str, Any]:
        attributes: dict[str, Any] = {
            "main_context": int(node.op not in self.seen),
            "embed_mode": int(self._embed),
            "partition_name": node.op,
            "source": self._sources.get(blob.target, blob.target),
        }
        if attributes["main_context"]:
            attributes["ep_cache_context"] = blob.data if self._embed else self._file(blob)
        if blob.version:
            attributes["ep_sdk_version"] = blob.version
        if blob.arrays:
            attributes["notes"] = f"operands from {len(node.inputs)} on: {', '.join(blob.arrays)}"
        return attributes

    def _file(self, blob: Blob) -> str:
        """Return the name of the file with a blob, relative to the model."""
        name = f"{self._path.stem}_{hashlib.sha256(blob.data).hexdigest()[:16]}.bin"
        self.files[self._path.with_name(name)] = blob.data
        return name

    def _array(self, graph: Graph, array: Any) -> Value:
        key = graph, content_hash(array)
        if key not in self._arrays:
            self._arrays[key] = graph.add_const(array, graph.fresh("weights"))
        return self._arrays[key]
