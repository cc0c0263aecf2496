"""Packing modules into files, with what loading needs of the compiler: graphs, programs, blobs and C source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tinycomp.driver.lowering import Lowered, Shapes, constants_of, specs
from tinycomp.ir.graph import Graph
from tinycomp.ir.text.printer import print_graph
from tinycomp.memory.constants import check_files
from tinycomp.runtime.archive import Archive
from tinycomp.runtime.artifact import generated_to_dict, native_plan_to_dict
from tinycomp.runtime.blob import Blob, BlobRegion
from tinycomp.runtime.csource.source import CSource
from tinycomp.runtime.device.region import DeviceRegion
from tinycomp.runtime.native.program import Program
from tinycomp.runtime.report import Report
from tinycomp.version import installed_version


def pack(about: Mapping[str, Any], lowered: Lowered, report: Report) -> bytes:
    """Return the bytes of a saved module.

    Args:
        about: How it was compiled: the names of its ``targets`` in order, their ``options`` by name, the ``threads``
            that were asked for, the text of the ``passes`` if they were chosen, whether to ``specialize``, and which
            ``devices`` to use, and what is done about their ``faults``.
        lowered: The model after the passes, kept with its constants only if something runs on the host, and its plan.
        report: What runs where.
    """
    archive, graph, plan = Archive(), lowered.graph, lowered.plan
    check_files(constants_of(graph))
    native = native_plan_to_dict(plan, archive)
    archive.manifest = {
        "tinycomp": installed_version(),
        "inputs": [s.to_dict() for s in specs([v.name for v in graph.inputs], graph.inputs)],
        "outputs": [s.to_dict() for s in plan.outputs],
        "defaults": {name: archive.store(array) for name, array in graph.defaults.items()},
        "report": report.to_dict(),
        "plan": native,
        **about,
    }
    archive.texts["graph.tir"] = str(graph)
    if native is None:
        archive.texts["partitioned.tir"] = _text_with_constants(graph, archive)
        archive.manifest["programs"] = [
            {"symbol": symbol, "shapes": shapes, **generated_to_dict(generated, archive)}
            for (symbol, shapes), generated in _generated(lowered)
        ]
    return archive.to_bytes()


def _generated(lowered: Lowered) -> Iterator[tuple[tuple[str, Shapes], Program | CSource | Blob]]:
    """Yield what the regions became, and the blobs for the sets of sizes that came last."""
    yield from lowered.programs.items()
    for symbol, region in lowered.per_shape:
        for shapes, run in region.cache.items():
            blob = run.blob if isinstance(run, (BlobRegion, DeviceRegion)) else None
            if blob is not None:
                yield (symbol, shapes), blob


def _text_with_constants(graph: Graph, archive: Archive) -> str:
    """Print a graph and store its large constants under the hashes that the text names."""
    constants: dict[str, Any] = {}
    text = print_graph(graph, constants=constants)
    keys = archive.manifest.setdefault("constants", {})
    keys.update({content_hash: archive.store(array) for content_hash, array in constants.items()})
    return text
