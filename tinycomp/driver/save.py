"""Pack modules into files, with everything that loading needs: graphs, programs, blobs and C source."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tinycomp.driver.lowering import Lowered, Shapes, constants_of, input_specs
from tinycomp.ir.graph import Graph
from tinycomp.ir.text.printer import print_graph
from tinycomp.memory.constants import check_files
from tinycomp.runtime.archive import Archive
from tinycomp.runtime.artifact import generated_to_dict, saved_bounds
from tinycomp.runtime.blob import Blob, BlobRegion
from tinycomp.runtime.csource.region import CRegion
from tinycomp.runtime.csource.source import CSource
from tinycomp.runtime.device.region import DeviceRegion
from tinycomp.runtime.native.module_records import ModuleRecord, StepRecord
from tinycomp.runtime.native.program import Array, Program
from tinycomp.runtime.plan import ABSENT, DISCARD, Plan
from tinycomp.runtime.regions import NativeRegion
from tinycomp.runtime.report import Report
from tinycomp.runtime.spec import TensorSpec
from tinycomp.version import installed_version


def pack(
    about: Mapping[str, Any],
    lowered: Lowered,
    report: Report,
    interface: Sequence[TensorSpec] = (),
    general: bytes | None = None,
) -> bytes:
    """Return the bytes of a saved module.

    Args:
        about: How it was compiled: the names of its ``targets`` in order, their ``options`` by name, the ``threads``
            that were asked for, the text of the ``passes`` if they were chosen, whether to ``specialize``, and which
            ``devices`` to use, and what is done about their ``faults``.
        lowered: The model after the passes, kept with its constants only if something runs on the host, and its plan.
        report: What runs where.
        interface: All inputs in the model's order, where the plan assumes something of the model: see ``general``.
        general: The bytes of the module that assumes nothing of it.
    """
    archive, graph, plan = Archive(), lowered.graph, lowered.plan
    check_files(constants_of(graph))
    native = all(isinstance(step.run, NativeRegion) for step in plan.steps)
    archive.manifest = {
        "tinycomp": installed_version(),
        "inputs": [s.to_dict() for s in input_specs(graph)],
        "outputs": [s.to_dict() for s in plan.outputs],
        "defaults": {name: archive.store(array) for name, array in graph.defaults.items()},
        "report": report.to_dict(),
        "native": native,
        **about,
    }
    if general is not None:
        archive.manifest["interface"] = [spec.to_dict() for spec in interface]
        archive.manifest["general"] = archive.store(np.frombuffer(general, np.uint8))
    _record(plan, archive, graph.defaults, saved_bounds(about), native)
    archive.texts["graph.tir"] = str(graph)
    if not native:
        archive.texts["partitioned.tir"] = _text_with_constants(graph, archive)
        archive.manifest["programs"] = [
            {"symbol": symbol, "shapes": shapes, **generated_to_dict(generated, archive)}
            for (symbol, shapes), generated in _generated(lowered)
        ]
    return archive.to_bytes()


def _record(
    plan: Plan, archive: Archive, defaults: Mapping[str, Array], bounds: Mapping[str, tuple[int, int | None]],
    native: bool,
) -> None:  # fmt: skip
    """Record how the steps of a module follow each other, unless it has some that need Python.

    Args:
        plan: What it does.
        archive: Where arrays are stored.
        defaults: Values of inputs that may be left out.
        bounds: The least and the most that sizes may be, by symbol.
        native: Whether all steps are programs.
    """
    recordable = native or (
        all(isinstance(step.run, (NativeRegion, CRegion)) and ABSENT not in step.reads for step in plan.steps)
        and all(_is_plain(spec.numpy_dtype) for spec in (*plan.inputs, *plan.outputs))
    )
    if not recordable:
        return
    steps, unwanted = [], itertools.count(len(plan.slots))
    for step in plan.steps:
        run, more = step.run, dict[str, Any]()
        writes = [next(unwanted) if slot == DISCARD else slot for slot in step.writes]
        if isinstance(run, CRegion):
            keys = [archive.store(c) for c in run.source.constants]
            unit, more = -1, {"values": run.buffers, "constants": keys, "scratch_bytes": run.source.scratch_bytes}
        else:
            assert isinstance(run, NativeRegion)
            unit = archive.record.program(run.program, [archive.store(c) for c in run.program.constants])
        texts = step.label, step.op, step.tier, step.sources
        steps.append(StepRecord(*texts, unit, step.reads, writes, step.frees, **more))
    archive.record.module(
        ModuleRecord(
            plan.inputs, plan.outputs, plan.input_slots, plan.output_slots, next(unwanted), bounds,
            {name: (archive.store(array), array) for name, array in defaults.items()},
            {i: (archive.store(array), array) for i, array in enumerate(plan.slots) if array is not None},
            _extended_in_place(plan), steps,
        )
    )  # fmt: skip


def _is_plain(dtype: np.dtype[Any] | None) -> bool:
    return dtype is not None and dtype.kind != "O"


def _extended_in_place(plan: Plan) -> list[tuple[int, int]]:
    """Return the inputs and outputs of a plan of one program that may be the same memory."""
    step = plan.steps[0] if len(plan.steps) == 1 else None
    if step is None or not isinstance(step.run, NativeRegion):
        return []
    return [
        (plan.input_slots.index(step.reads[i]), plan.output_slots.index(step.writes[o]))
        for i, o in sorted(step.run.program.in_place)
        if step.reads[i] in plan.input_slots and plan.output_slots.count(step.writes[o]) == 1
    ]


def _generated(lowered: Lowered) -> Iterator[tuple[tuple[str, Shapes], Program | CSource | Blob]]:
    """Yield the compiled regions, and the blobs for the latest sets of sizes."""
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
