"""Loading saved modules. Those that are native through and through need neither onnx nor the compiler."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tinycomp.arguments import checked
from tinycomp.errors import ArtifactError, ModelError, OptionError
from tinycomp.memory.constants import is_large, spilled
from tinycomp.memory.interpreter import compiling
from tinycomp.memory.mapped import mappings_of
from tinycomp.runtime.archive import Archive, map_path
from tinycomp.runtime.artifact import load_native
from tinycomp.runtime.forms import check_form, locating
from tinycomp.runtime.manifest import MODULE
from tinycomp.runtime.module import Module
from tinycomp.runtime.plan import Plan

if TYPE_CHECKING:
    from tinycomp.driver.devices import Devices, Faults
    from tinycomp.runtime.diagram import Diagram
    from tinycomp.target import Target


@checked(least={"threads": 1})
def load(
    source: str | os.PathLike[str] | bytes,
    *,
    threads: int | None = None,
    targets: Sequence[Target] = (),
    trusted: bool = False,
    devices: Devices = None,
    faults: Faults = None,
) -> Module:
    """Return a module that :meth:`Module.save` wrote.

    Args:
        source: Path of the file, or its bytes.
        threads: Threads that a run may use; by default what the process may use.
        targets: Targets that are not installed under their names, for regions that need them.
        trusted: Compile and run the C source in the file, if it has any. Without it, the target generates the source
            anew, so that nothing is executed that came with the file.
        devices: Devices to use instead of those that the module was compiled for, as for :func:`tinycomp.compile`.
        faults: What is done when a device fails, likewise; it comes before what the module says.

    Raises:
        ArtifactError: If the file is damaged, was written by another format version, or is not a saved module.
        TargetError: If a target is missing.
    """
    # Opened once: the file may have been replaced or removed a moment later.
    data, where = (_kept(source), "saved module") if isinstance(source, bytes) else (map_path(source), str(source))
    return load_mapped(data, where, threads=threads, targets=targets, trusted=trusted, devices=devices, faults=faults)


@compiling()
def load_mapped(
    data: NDArray[np.uint8],
    where: str,
    *,
    threads: int | None = None,
    targets: Sequence[Target] = (),
    trusted: bool = False,
    devices: Devices = None,
    faults: Faults = None,
    accept: Callable[[str], bool] | None = None,
) -> Module:
    """Return the module in the contents of a file.

    Args:
        data: The contents.
        where: The name of the file, for messages.
        threads: As for :func:`load`, like ``targets``, ``trusted``, ``devices`` and ``faults``.
        targets: Likewise.
        trusted: Likewise.
        devices: Likewise.
        faults: Likewise.
        accept: Tells by its fingerprint whether it is the file that is wanted.

    Raises:
        ArtifactError: Also if it is not the one that is wanted.
    """
    archive = Archive.from_bytes(data, where)
    if accept is not None and not accept(archive.fingerprint):
        raise ArtifactError("this is another module than its name says", where=where)
    for mapping in mappings_of([data]):
        mapping.give_back()  # the checksums have read everything
    check_form(archive.manifest, MODULE, where)
    load = functools.partial(
        load_mapped, where=where, threads=threads, targets=targets, trusted=trusted, devices=devices, faults=faults
    )
    with locating(where):
        module = load_native(archive, data, threads, _graph, _diagram, load)
        if module is None:
            from tinycomp.driver.restore import restore

            module = restore(archive, data, targets, threads, load, trusted=trusted, devices=devices, faults=faults)
            devices = faults = None
    if devices is not None:
        raise OptionError("no region of the module runs on a device", where="devices", hint="Leave it out.")
    if faults is not None:
        from tinycomp.driver.devices import DeviceOptions

        DeviceOptions.read(None, faults, ())
    try:
        for mapping in mappings_of([data]):
            mapping.check()
    except ModelError as error:
        raise ArtifactError("the file has changed while it was read", where=where, hint="Load it again.") from error
    return module


def _graph(text: str) -> Any:
    """Return the graph of a module whose constants have been packed, so that of the large ones it has hashes only."""
    from tinycomp.ir.text.parser import parse_graph
    from tinycomp.ops.typing import infer_node_types

    return parse_graph(text, infer=infer_node_types, absent=True)


def _diagram(graph: Any, plan: Plan, sizes: Mapping[str, int]) -> Diagram:
    from tinycomp.driver.diagram import make_diagram

    return make_diagram(graph, plan, sizes)


def _kept(source: bytes) -> NDArray[np.uint8]:
    """Return the bytes of a module where they take no memory while nobody reads them, if that is worth a file."""
    data = np.frombuffer(source, np.uint8)
    return spilled([data])[0] if is_large(data) else data
