"""Restoring saved modules that need the compiler again: host nodes, callables, C source, symbolic sizes.

C source is saved, but loading asks the target for it again: source from a file is compiled only on request.
Blobs are given to the loader of their target, which knows its format and checks it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tinycomp.driver.blobs import may_use
from tinycomp.driver.compiler import Compiler
from tinycomp.driver.devices import from_saved
from tinycomp.driver.diagram import make_diagram
from tinycomp.driver.lowering import specs
from tinycomp.driver.models import copied
from tinycomp.driver.options import CompileOptions
from tinycomp.errors import ArtifactError, OptionError, TargetError
from tinycomp.ir.graph import Graph
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.verify import verify
from tinycomp.memory.reading import reading
from tinycomp.ops.typing import infer_node_types
from tinycomp.runtime.archive import Archive
from tinycomp.runtime.artifact import Load, generated_from_dict, module_parts, pool_for, saved_bounds
from tinycomp.runtime.assumptions import module_of
from tinycomp.runtime.blob import Blob
from tinycomp.runtime.module import Module
from tinycomp.runtime.native.program import Program
from tinycomp.runtime.validate import check_operands
from tinycomp.target import Target, find

if TYPE_CHECKING:
    from tinycomp.driver.devices import Devices, Faults
    from tinycomp.driver.lowering import Programs


def restore(
    archive: Archive,
    data: NDArray[np.uint8],
    targets: Sequence[Target],
    threads: int | None,
    load: Load,
    *,
    trusted: bool = False,
    devices: Devices = None,
    faults: Faults = None,
) -> Module:
    """Return the module of an archive that :func:`tinycomp.driver.save.pack` made.

    Args:
        archive: The contents of the file.
        data: The file itself.
        targets: Targets that are not installed under their names.
        threads: Threads that a run may use.
        load: Loads a module in the archive.
        trusted: Whether to compile the C source in the archive instead of asking the target for it.
        devices: Devices to use instead of those that the archive names.
        faults: What is done when a device fails, before what the archive says.

    Raises:
        ArtifactError: If the archive is damaged.
        TargetError: If a target is missing.
        OptionError: If ``devices`` or ``faults`` is not what it should be.
    """
    about = archive.manifest
    wanted = _find_targets(about, targets, optional=trusted)
    pool, specialize = pool_for(archive, threads), about.get("specialize") is True
    compiler = Compiler(
        wanted, pool, CompileOptions(passes=about.get("passes"), specialize=specialize),
        devices=from_saved(about, wanted, devices, faults),
    )  # fmt: skip
    lowering = compiler.lowering()
    with reading(ArtifactError, problem="the description is damaged"):
        programs = archive.recorded().programs
        constants = {h: archive.array(key) for h, key in about["constants"].items()}
        for entry in about["programs"]:
            if trusted or "source" not in entry:
                key = entry["symbol"], tuple(map(tuple, entry["shapes"]))
                generated = generated_from_dict(entry, archive, programs)
                if not isinstance(generated, Blob) or _is_of_use(generated, lowering.targets, key[0]):
                    lowering.programs[key] = generated
        partitioned = parse_graph(archive.texts["partitioned.tir"], constants=constants, infer=infer_node_types)
        partitioned.bounds.update(saved_bounds(about))
        verify(partitioned, types=False)
    _check_owners(partitioned, lowering.programs)
    _check_programs(partitioned, lowering.programs)
    plan = lowering.plan(partitioned)
    return module_of(
        module_parts(archive, data, plan, compiler.pool.threads, lambda text: copied(partitioned), make_diagram, load)
    )


def _is_of_use(blob: Blob, targets: Mapping[str, Target], symbol: str) -> bool:
    """Tell whether to load a blob; one of a missing target is loaded, so that the error names the target."""
    return blob.target not in targets or may_use(blob, targets[blob.target], symbol)


def _check_owners(graph: Graph, programs: Programs) -> None:
    """Refuse a blob of another target than that of its region, so that no loader sees the bytes of another target.

    Raises:
        ArtifactError: If there is one.
    """
    owners = {node.op: node.target for _, node in graph.walk() if node.is_region}
    for (symbol, _), made in programs.items():
        if isinstance(made, Blob) and made.target != owners.get(symbol):
            raise ArtifactError(
                "the blob is of another target than its region", where=f"region {symbol}",
                expected=f"a blob of {owners.get(symbol)}", found=f"one of {made.target}",
                hint="The file is damaged: save the module again.",
            )  # fmt: skip


def _check_programs(graph: Graph, programs: Programs) -> None:
    """Refuse a program that does not fit its region.

    Raises:
        ArtifactError: If there is one.
    """
    regions = {node.op: node for _, node in graph.walk() if node.is_region}
    for (symbol, _), made in programs.items():
        if isinstance(made, Program) and symbol in regions:
            inputs, outputs = (
                [None if value is None else specs(("",), (value,))[0] for value in values]
                for values in (regions[symbol].inputs, regions[symbol].outputs)
            )
            check_operands(f"region {symbol}", made, inputs, outputs)


def _find_targets(about: Mapping[str, Any], given: Sequence[Target], optional: bool) -> tuple[Target, ...]:
    """Return the targets that the archive names, with their options; ``optional`` leaves out those not there."""
    targets = {t.name: t for t in given}
    names, options = about.get("targets", []), about.get("options", {})
    with reading(ArtifactError, problem="the description is damaged"):
        for name in names:
            if name not in targets:
                with contextlib.suppress(*[TargetError] if optional else []):
                    targets[name] = find(name)
            if name in targets and options.get(name):
                targets[name] = _with_options(targets[name], options[name])
    return tuple(targets[name] for name in names if name in targets)


def _with_options(target: Target, options: Mapping[str, Any]) -> Target:
    try:
        return target.with_options(**options)
    except OptionError as error:
        raise ValueError(error) from error
