"""``tinycomp.compile``: return a module from the cache if the caller asks for that, else from the compiler.

Loading a module from the cache takes a small part of the package. So this file imports no more than that, and the
compiler (:mod:`tinycomp.driver.compiler`) only when there is something to compile.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tinycomp.arguments import checked
from tinycomp.driver.keywords import taking_deprecated
from tinycomp.lazy import LazyModule
from tinycomp.memory.interpreter import importing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tinycomp.driver import compiler, module_cache
    from tinycomp.driver.devices import Devices, Faults
    from tinycomp.driver.models import Model
    from tinycomp.driver.targets import AnyTarget
    from tinycomp.frontend import Shapes
    from tinycomp.passes.base import Pass
    from tinycomp.passes.round_weights import Precision
    from tinycomp.runtime.module import Module
    from tinycomp.target import Policy
    from tinycomp.target.placement import Which
else:
    compiler, module_cache = LazyModule("tinycomp.driver.compiler"), LazyModule("tinycomp.driver.module_cache")


@taking_deprecated
@checked("options", "place")
def compile(  # noqa: A001 - the public name
    model: Model,
    target: AnyTarget | Sequence[AnyTarget] = "c",
    *,
    shapes: Shapes | None = None,
    threads: int | None = None,
    strict: bool = False,
    passes: str | Sequence[Pass] | None = None,
    dump: str | os.PathLike[str] | None = None,
    verify: bool | Mapping[str, NDArray[Any]] = False,
    memory_limit: int | None = None,
    policy: Policy | Mapping[str, Policy] | None = None,
    place: Mapping[Which, str] | None = None,
    options: Mapping[str, Any] | None = None,
    specialize: bool = False,
    optimize: bool = True,
    precision: Precision | None = None,
    timeout: float | None = None,
    devices: Devices = None,
    faults: Faults = None,
    cache: bool | str | os.PathLike[str] | None = None,
) -> Module:
    """Compile a model for one or more targets; nodes that none of them takes run on the host.

    Args:
        model: Path or bytes of an ONNX file, a ModelProto, or a graph.
        target: Name of a target, a Target, or several in order of priority; ``"host"`` for none.
        shapes: Shapes of inputs, in place of the declared ones, for example ``{"image": (1, 3, 224, 224)}``. A
            dimension is a size, a name, or None for unknown. It may have bounds, which every run must respect:
            ``(1, 512)``, or ``("seq", 1, 512)`` with a name.
        threads: Threads that a run may use; by default as many as the process's affinity and cgroup allow.
        strict: Raise if a node runs on the host, unless it only packs or unpacks sequences and optionals at the
            border of the model.
        passes: A pipeline instead of the default one: passes, or a text such as ``"simplify,fold-constants"``.
        dump: A folder to write the graph to after every pass.
        verify: Check structure and numbers after every pass, and every region against the numpy kernels; inputs by name
            to do so with, or True for random ones, in sizes that the conditions of the model's operators allow.
        policy: The conditions on regions of every target, or a dict of policies by target name. A policy in the dict
            replaces the target's own; the one under ``"*"`` holds for all targets. Ignored where ``passes`` are given.
        place: Where nodes run, as in ``{"encoder/*": "npu", "Softmax": "host"}``. A key is a source name, an operator,
            a glob for either, or a predicate on the node; a value is the name of a target or ``"host"``. The first key
            that fits decides.
        memory_limit: Bytes that the values of a run may take together, not counting weights; by default the memory
            that the machine has available. A model that is known to need more is refused here; if only a run shows
            it, the run is refused before it allocates.
        options: Options of the targets by target name, for example ``{"c": {"winograd": False}}``: a dict, or an
            instance of the class that declares them. ``tinycomp targets NAME`` lists them;
            :class:`tinycomp.targets.c.options.COptions` describes those of the target ``c``.
        specialize: Build regions with dynamic dimensions anew for each set of sizes, and keep the last 16, instead of
            building one program for all sizes. It pays off where a few sizes keep coming back.
        optimize: Simplify the graph before it is partitioned; without it, the targets are asked about the nodes of the
            model as they stand. Ignored where ``passes`` are given.
        precision: The number format of products. ``"bf16"`` and ``"f16"`` round weights of 1 MB and more, which halves
            their memory and nearly halves the time of products with few rows. With ``"bf16"``, the target ``c`` also
            rounds all factors of products and convolutions to bfloat16 where the processor multiplies these faster.
            Sums stay in float32. The report says what was rounded and, with ``verify``, how much the results for
            random inputs change. By default, only factors that the model itself has in bfloat16 are rounded.
        timeout: Seconds that compiling may take; no pass, folded node or region is begun after that.
        devices: How many devices of a target the module uses, or which: a number, a list of indices, or a list of open
            devices; with several such targets, a dict by target name. Requests are spread over them. One by default.
        faults: What to do when a device fails: a :class:`tinycomp.FaultPolicy`, or a dict of them by symbol of a
            region, source name, target, or a glob for these. The first key that fits decides.
        cache: A folder for compiled modules, or True for the one in the user's cache. The next process with the same
            model and options loads the module from there instead of compiling it, as its ``cache_file`` then shows.

    Returns:
        The module.

    Raises:
        ModelError: If the model is not valid.
        UnsupportedError: If it asks for something that no tier can do.
        TargetError: If a target is unknown, or its code generator fails.
        FallbackError: If ``strict`` is on and a node would run on the host.
        PlacementError: If a node cannot run where ``place`` puts it.
        VerifyError: If ``verify`` finds a difference.
        MemoryLimitError: If the model needs more memory than ``memory_limit``.
        ExecutionError: If the timeout is over.
        OptionError: If an option does not exist or does not take the value, or if the module cannot be kept.
        TuningError: If a tuning log named in the options cannot be read.
    """
    given: dict[str, Any] = {
        "shapes": shapes, "threads": threads, "strict": strict, "passes": passes, "dump": dump, "verify": verify,
        "memory_limit": memory_limit, "policy": policy, "place": place, "options": options, "specialize": specialize,
        "optimize": optimize, "precision": precision, "timeout": timeout, "devices": devices, "faults": faults,
    }  # fmt: skip
    if cache is not None and cache is not False:
        return module_cache.compile_cached(model, target, given, cache)
    with importing():
        compile_uncached = compiler.compile_uncached
    return compile_uncached(model, target, **given)
