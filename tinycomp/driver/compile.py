"""``tinycomp.compile``: from the cache of modules if that is asked for, else through the compiler.

What a kept module needs in order to be loaded is a small part of the package, so this file imports no more, and the
compiler (:mod:`tinycomp.driver.compiler`) only when there is something to compile.
"""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tinycomp.errors import OptionError, TinycompWarning, did_you_mean
from tinycomp.lazy import LazyModule
from tinycomp.memory.interpreter import importing

if TYPE_CHECKING:
    from tinycomp.driver import compiler, module_cache
    from tinycomp.driver.compiler import AnyTarget, Model
    from tinycomp.driver.devices import Devices, Faults
    from tinycomp.frontend import Shapes
    from tinycomp.passes.base import Pass
    from tinycomp.passes.round_weights import Precision
    from tinycomp.runtime.module import Module
    from tinycomp.target import Policy
    from tinycomp.target.placement import Which
else:
    compiler, module_cache = LazyModule("tinycomp.driver.compiler"), LazyModule("tinycomp.driver.module_cache")

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _checking_names(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a function answer an unknown option with the one that may have been meant, and take those that moved."""
    known = [p.name for p in inspect.signature(function).parameters.values()]

    @functools.wraps(function)
    def call(*args: _P.args, **options: _P.kwargs) -> _R:
        for name in options:
            if name not in (*known, *_MOVED):
                raise OptionError(
                    f'{function.__name__} has no option "{name}"',
                    expected=f"one of {', '.join(known)}",
                    hint=did_you_mean(name, known),
                )
        moved = {name: options.pop(name) for name in _MOVED if name in options}
        if moved:
            target = args[1] if len(args) > 1 else options.get("target", "c")
            options["options"] = _with_moved(moved, target, options.get("options"))
        return function(*args, **options)

    return call


_MOVED = ("winograd", "requantize", "tuning")
"""Options of the target ``c`` that :func:`compile` still takes itself, for a release."""


def _with_moved(moved: Mapping[str, Any], target: Any, options: Any) -> Any:
    """Return the options of targets with those of the target ``c`` that were given beside them."""
    old = ", ".join(f"{name}={value!r}" for name, value in moved.items())
    new = ", ".join(f'"{name}": {value!r}' for name, value in moved.items())
    warnings.warn(
        f'compile({old}) is deprecated: these are options of the target c; write options={{"c": {{{new}}}}}',
        TinycompWarning,
        stacklevel=3,
    )
    targets = target if isinstance(target, (list, tuple)) else (target,)
    names = [getattr(each, "name", str(each).partition(":")[0]) for each in targets]
    if "c" not in names or not isinstance(options or {}, Mapping):
        return options
    given = (options or {}).get("c", {})
    return {**(options or {}), "c": {**moved, **given} if isinstance(given, Mapping) else given}


@_checking_names
def compile(  # noqa: A001 - the public name
    model: Model,
    target: AnyTarget | Sequence[AnyTarget] = "c",
    *,
    shapes: Shapes | None = None,
    threads: int | None = None,
    strict: bool = False,
    passes: str | Sequence[Pass] | None = None,
    dump: str | os.PathLike[str] | None = None,
    verify: bool = False,
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
    """Compile a model for one or more targets; what none of them takes runs on the host.

    Args:
        model: Path or bytes of an ONNX file, a ModelProto, or a graph.
        target: Name of a target, a Target, or several in order of priority; ``"host"`` for none.
        shapes: Shapes that replace the declared ones of inputs, for example ``{"image": (1, 3, 224, 224)}``. A
            dimension is a size, a name, None for unknown, or has bounds that every run is held to: ``(1, 512)``, or
            ``("seq", 1, 512)`` with a name.
        threads: Threads that a run may use; by default what the process's affinity and cgroup allow.
        strict: Raise if any node is left to the host that does more than handle sequences and optionals of the caller.
        passes: What to run instead of the default pipeline: passes, or a text such as ``"simplify,fold-constants"``.
        dump: A folder to write the graph to after every pass.
        verify: Check structure and numbers after every pass, and every region against the numpy kernels.
        policy: What every region must fulfil, whatever its target; or policies by name of the target, each in the place
            of the target's own, with one for all under ``"*"``. Ignored where ``passes`` are given.
        place: Where nodes run, as in ``{"encoder/*": "npu", "Softmax": "host"}``: by source name, operator, a glob for
            either, or a predicate on the node, the name of a target or ``"host"``. The first that fits counts.
        memory_limit: Bytes that the values of a run may take together, weights apart; by default what the machine has
            available. What is known to need more is refused here, the rest when it runs, before it is allocated.
        options: Options of the targets by their names, for example ``{"c": {"winograd": False}}``: a dict, or an
            instance of the class that declares them. ``tinycomp targets NAME`` lists them; those of the target ``c``
            are described in :class:`tinycomp.targets.c.options.COptions`.
        specialize: Build regions with dynamic dimensions for each set of sizes that comes, and keep the last 16,
            instead of one program that serves all sizes: for few sizes that come again and again.
        optimize: Simplify the graph before it is partitioned; without it, the targets are asked about the nodes of the
            model as they stand. Ignored where ``passes`` are given.
        precision: What products compute with: ``"bf16"`` and ``"f16"`` round their weights of 1 MB and more, which
            halves their memory and nearly the time of products of few rows. With ``"bf16"``, the target ``c`` rounds
            all factors of products and convolutions to bfloat16 where the processor multiplies these faster. Sums stay
            in float32. The report says so, with ``verify`` also by how much of the largest one results of random inputs
            change. By default nothing is rounded, but the factors in a model that computes its products in bfloat16.
        timeout: Seconds that compiling may take; passes, folded nodes and regions are not begun after that.
        devices: For a target that has devices how many a module uses, or which: a number, a list of indices or of open
            devices; of several such targets a dict by name. Requests are spread over them. By default one.
        faults: What is done when a device fails, a :class:`tinycomp.FaultPolicy`; or a dict of them by symbol of a
            region, source name, target, or a glob for these, of which the first that fits counts.
        cache: Where to keep the module, so that the next process with the same model and options loads it instead of
            compiling again: True for the user's cache folder, or a folder. Its ``cache_file`` says whether it did.

    Returns:
        The module.

    Raises:
        ModelError: If the model is not valid.
        UnsupportedError: If it asks for something that no tier can do.
        TargetError: If a target is unknown, or its code generator fails.
        FallbackError: If ``strict`` and nodes were left to the host.
        PlacementError: If a node cannot run where ``place`` wants it.
        VerifyError: If ``verify`` finds a difference.
        MemoryLimitError: If the model needs more memory than ``memory_limit``.
        ExecutionError: If the time is up.
        OptionError: If there is no such option, or it does not take the value, or what is asked for cannot be kept.
        TuningError: If a tuning log that the options name cannot be read.
    """
    given: dict[str, Any] = {
        "shapes": shapes, "threads": threads, "strict": strict, "passes": passes, "dump": dump, "verify": verify,
        "memory_limit": memory_limit, "policy": policy, "place": place, "options": options, "specialize": specialize,
        "optimize": optimize, "precision": precision, "timeout": timeout, "devices": devices, "faults": faults,
    }  # fmt: skip
    if cache is not None and cache is not False:
        return module_cache.compile_cached(model, target, given, cache)
    with importing():
        compile_anew = compiler.compile_anew
    return compile_anew(model, target, **given)
