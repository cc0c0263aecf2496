"""``tinycomp.compile``: return a module from the cache if the caller asks for that, else from the compiler.

Loading a module from the cache takes a small part of the package. So this file imports no more than that, and the
compiler (:mod:`tinycomp.driver.compiler`) only when there is something to compile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinycomp.driver.options import Call, CompileOptions, taking_options
from tinycomp.lazy import LazyModule
from tinycomp.memory.interpreter import importing

if TYPE_CHECKING:
    from tinycomp.driver import compiler, module_cache
    from tinycomp.driver.models import Model
    from tinycomp.runtime.module import Module
else:
    compiler, module_cache = LazyModule("tinycomp.driver.compiler"), LazyModule("tinycomp.driver.module_cache")


@taking_options(Call)
def compile(model: Model, options: CompileOptions) -> Module:  # noqa: A001 - the public name
    """Compile a model for one or more targets; nodes that none of them takes run on the host.

    Args:
        model: Path or bytes of an ONNX file, a ModelProto, or a graph.
        options: Those of :class:`CompileOptions`.

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
    if options.cache is not None and options.cache is not False:
        return module_cache.compile_cached(model, options)
    with importing():
        compile_uncached = compiler.compile_uncached
    return compile_uncached(model, options)
