"""Saved modules: the contents of the archive, and the loading of those that need no compiler.

A module whose steps are all native regions is rebuilt from its programs, without onnx or the IR.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tinycomp.errors import ArtifactError, TargetError
from tinycomp.lazy import LazyModule
from tinycomp.memory.constants import Constants
from tinycomp.memory.mapped import mapping_of
from tinycomp.memory.reading import reading
from tinycomp.runtime.archive import Archive
from tinycomp.runtime.assumptions import module_of
from tinycomp.runtime.forms import DAMAGED, locating
from tinycomp.runtime.module import Module, ModuleParts
from tinycomp.runtime.native.executor import Pool
from tinycomp.runtime.native.module_records import Recorded
from tinycomp.runtime.native.processor import default_threads
from tinycomp.runtime.native.program import Program
from tinycomp.runtime.plan import DISCARD, FIRST_FREE, Plan, Step
from tinycomp.runtime.regions import NativeRegion, settled
from tinycomp.runtime.report import Report
from tinycomp.runtime.spec import TensorSpec
from tinycomp.runtime.validate import Link, check_module, check_plan

if TYPE_CHECKING:
    from tinycomp.runtime import blob
    from tinycomp.runtime.csource import source as c_source
    from tinycomp.runtime.diagram import Diagram
else:  # modules whose steps are all native have none of these
    blob, c_source = LazyModule("tinycomp.runtime.blob"), LazyModule("tinycomp.runtime.csource.source")

_BLOB = ("target", "version", "options")
"""The fields of a blob, without its data and its arrays."""


def native_plan(archive: Archive, pool: Pool) -> Plan:
    """Return the plan of a module whose steps are all native regions.

    Args:
        archive: The contents of the file.
        pool: Threads that the regions share.

    Raises:
        ArtifactError: If the file is damaged.
    """
    recorded = archive.recorded()
    with reading(ArtifactError, problem="the plan is damaged"):
        inputs, outputs = (tuple([spec for spec, _ in ports]) for ports in (recorded.inputs, recorded.outputs))
        input_slots, output_slots = (
            tuple([slot for _, slot in ports]) for ports in (recorded.inputs, recorded.outputs)
        )
        _check_slot_count(recorded)
        read = {slot for step in recorded.steps for slot in step.reads} | {*output_slots}
        links, constants = list[Link](), Constants()
        for step in recorded.steps:
            if not 0 <= step.unit < len(recorded.programs):
                raise ValueError(f"there is no program {step.unit}")
            writes = tuple([slot if slot in read else DISCARD for slot in step.writes])
            program = settled(recorded.programs[step.unit], constants)
            links.append((step.label, program, tuple(step.reads), writes, tuple(step.frees)))
        check_plan((inputs, input_slots), (outputs, output_slots), recorded.constants, recorded.slots, links)
        slots: list[Any] = [None] * recorded.slots
        for index, array in recorded.constants.items():
            slots[index] = constants.own(array)
        with locating(kind=TargetError):
            steps = [
                Step(label, of.op, of.tier, NativeRegion(program, pool), reads, writes, frees, tuple(of.sources))
                for (label, program, reads, writes, frees), of in zip(links, recorded.steps, strict=True)
            ]
        return Plan(inputs, outputs, tuple(steps), tuple(slots), input_slots, output_slots)


def _ports(ports: Sequence[tuple[TensorSpec, int]]) -> tuple[tuple[TensorSpec, ...], tuple[int, ...]]:
    return tuple([spec for spec, _ in ports]), tuple([slot for _, slot in ports])


def _check_slot_count(recorded: Recorded) -> None:
    """Hold the number of slots against that of the places where a slot is named."""
    named = len(recorded.inputs) + len(recorded.constants) + sum(len(step.writes) for step in recorded.steps)
    if not FIRST_FREE <= recorded.slots <= FIRST_FREE + named:
        raise ArtifactError(
            "the plan has another number of slots", where="plan.slots",
            expected=f"{FIRST_FREE} to {FIRST_FREE + named}", found=str(recorded.slots), hint=DAMAGED,
        )  # fmt: skip


def generated_to_dict(generated: Program | c_source.CSource | blob.Blob, archive: Archive) -> dict[str, Any]:
    """Return a compiled region as data for JSON, with its constants stored in ``archive``."""
    if isinstance(generated, Program):
        return {"program": archive.record.program(generated, [archive.store(c) for c in generated.constants])}
    if isinstance(generated, blob.Blob):
        about = {name: getattr(generated, name) for name in _BLOB}
        data = archive.store(np.frombuffer(generated.data, np.uint8))
        arrays = {name: archive.store(array) for name, array in generated.arrays.items()}
        return {"blob": {**about, "data": data, "arrays": arrays}}
    return {"source": {**generated.to_dict(), "constants": [archive.store(c) for c in generated.constants]}}


def generated_from_dict(
    data: Mapping[str, Any], archive: Archive, programs: Sequence[Program]
) -> Program | c_source.CSource | blob.Blob:
    """Rebuild a compiled region from the result of :func:`generated_to_dict` and the programs of the archive."""
    if "program" in data:
        program: int = data["program"]
        return programs[program]
    if "blob" in data:
        about = data["blob"]
        arrays = {name: archive.array(key) for name, key in about["arrays"].items()}
        contents = archive.array(about["data"]).tobytes()
        return blob.Blob(contents, arrays=arrays, **{name: about[name] for name in _BLOB})
    source = data["source"]
    return c_source.CSource.from_dict(source, [archive.array(key) for key in source["constants"]])


Describe = Callable[[Any, Plan, Mapping[str, int]], "Diagram"]
"""Describes a partitioned graph and its plan for pictures, for sizes by symbol."""
Load = Callable[[NDArray[np.uint8]], Module]
"""Loads a saved module that lies in another one."""


def load_native(
    archive: Archive,
    data: NDArray[np.uint8],
    threads: int | None,
    graph: Callable[[str], Any],
    diagram: Describe,
    load: Load,
) -> Module | None:
    """Return the module of an archive that holds native regions only; None if it needs the compiler.

    Args:
        archive: The contents of the file.
        data: The file itself.
        threads: Threads that a run may use.
        graph: Makes the graph of the module of its text, if somebody asks for it.
        diagram: Describes the graph, likewise.
        load: Loads a module in the archive.
    """
    about = archive.manifest
    if not about["native"]:
        return None
    pool = pool_for(archive, threads)
    plan = native_plan(archive, pool)
    return module_of(module_parts(archive, data, plan, pool.threads, graph, diagram, load))


def pool_for(archive: Archive, threads: int | None) -> Pool:
    """Return a pool of as many threads as are asked for now, were asked for when compiling, or suit the machine."""
    return Pool(threads or archive.manifest.get("threads") or default_threads())


def module_parts(
    archive: Archive,
    data: NDArray[np.uint8],
    plan: Plan,
    threads: int,
    graph: Callable[[str], Any],
    diagram: Describe,
    load: Load,
) -> ModuleParts:
    """Return the parts of a loaded module, given its plan.

    Raises:
        ArtifactError: If the description is damaged.
    """
    about = archive.manifest
    with reading(ArtifactError, problem="the description is damaged"):
        inputs, outputs = _specs(about["inputs"]), _specs(about["outputs"])
        defaults = {name: np.array(archive.array(key)) for name, key in about["defaults"].items()}
        bounds = saved_bounds(about)
        check_module(inputs, outputs, (plan.inputs, plan.outputs), defaults, bounds)
        text = archive.texts["graph.tir"]
        general = about.get("general")
        report = Report.from_dict(about["report"])
        return ModuleParts(
            inputs=inputs,
            outputs=outputs,
            plan=plan,
            report=lambda sizes: report,
            graph=functools.partial(graph, text),
            pack=lambda: _unchanged(data),
            threads=threads,
            defaults=defaults,
            bounds=bounds,
            diagram=diagram,
            interface=_specs(about.get("interface", [])),
            general=None if general is None else functools.partial(load, archive.array(general)),
        )


def saved_bounds(about: Mapping[str, Any]) -> dict[str, tuple[int, int | None]]:
    """Return the bounds of sizes that a description holds."""
    return {symbol: (least, most) for symbol, (least, most) in about.get("bounds", {}).items()}


def _unchanged(data: NDArray[np.uint8]) -> bytes:
    """Return the bytes of a saved module, whose file must be as it was when it was loaded."""
    mapping = mapping_of(data)
    if mapping is not None:
        mapping.check()
    return data.tobytes()


def _specs(entries: Sequence[Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec.from_dict(entry) for entry in entries)
