"""oneDNN, bound at run time through cffi's ABI mode.

Nothing is compiled and nothing is linked: :func:`load` opens the library where the system or the Python environment has
it. Handles belong to Python objects and are destroyed with them.
"""

from __future__ import annotations

import ctypes.util
import functools
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cffi

from tinycomp.target_api import ExecutionError, TargetError
from tinycomp_dnnl.interface import (
    ANY_TAG,
    CPU,
    FLOAT32,
    IN_ORDER,
    INFERENCE,
    STATUS,
    VERSION_DECLARATIONS,
    VERSIONS,
    Interface,
    interface_of,
)

PATH_VARIABLE = "TINYCOMP_DNNL"
"""Environment variable with the path of a library to use instead of the system's."""
INSTALL = (
    f"Install oneDNN {VERSIONS}, with `pip install onednn-cpu-gomp` or, on Debian and Ubuntu, with "
    f"`apt-get install libdnnl2`, or set {PATH_VARIABLE} to the path of the library."
)


class Layout:
    """How a float32 tensor of some shape lies in memory: a oneDNN memory descriptor.

    Attributes:
        md: The descriptor, which nobody changes.
        size: Bytes that a tensor occupies; more than its elements need where blocks are padded.
    """

    def __init__(self, library: Library, md: Any) -> None:
        self._library = library
        self.md = md
        self.size = int(library.lib.dnnl_memory_desc_get_size(md))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and bool(self._library.lib.dnnl_memory_desc_equal(self.md, other.md))

    __hash__ = None  # type: ignore[assignment]


class Library(ABC):
    """An opened oneDNN with its CPU engine; safe to use from many threads.

    What all versions do alike stands here, what a major version does otherwise in a class of its own;
    :func:`open_library` chooses it.

    Args:
        ffi: What cffi knows of the interface.
        lib: The opened library.
        interface: Names and numbers of its version.
        version: Of the library, for messages.

    Attributes:
        engine: The CPU.
        has_openmp: Whether it shares its work by OpenMP, and not by threads of another kind.

    Raises:
        TargetError: If it has no CPU engine.
    """

    def __init__(self, ffi: Any, lib: Any, interface: Interface, version: str) -> None:
        self.ffi, self.lib, self.interface, self.version = ffi, lib, interface, version
        # The engine lives as long as the process: what is made on it does not keep it alive.
        self.engine = self.create(lib.dnnl_engine_create, None, CPU, 0, what="engine")
        self._process = os.getpid()
        self.has_openmp = hasattr(lib, "omp_get_max_threads")
        self._has_threads = not self.has_openmp or lib.omp_get_max_threads() > 1

    # Layouts -------------------------------------------------------------------------------------------------------

    def plain(self, shape: Sequence[int], strides: Sequence[int] | None = None) -> Layout:
        """Return a layout with one element after the other; row-major unless ``strides`` (in elements) say other."""
        steps = list(strides) if strides is not None else _row_major(shape)
        return Layout(self, self._memory_desc("memory by strides", "strides", shape, steps))

    def undecided(self, shape: Sequence[int]) -> Any:
        """Return a descriptor that leaves the memory order to the primitive."""
        return self._memory_desc("memory by tag", "layout", shape, ANY_TAG)

    def _memory_desc(self, function: str, what: str, shape: Sequence[int], order: Any) -> Any:
        return self._new_memory_desc(self._function(function), what, len(shape), list(shape), FLOAT32, order)

    @abstractmethod
    def _new_memory_desc(self, make: Any, what: str, *args: Any) -> Any:
        """Return the memory descriptor that a function makes of its arguments."""

    @abstractmethod
    def layout(self, md: Any) -> Layout:
        """Return the layout of a descriptor that belongs to somebody else."""

    # Descriptions of primitives ------------------------------------------------------------------------------------

    @abstractmethod
    def describe(self, name: str, args: Sequence[Any], attributes: Any) -> Any:
        """Return the primitive descriptor of the kind ``name``; what the library chose can be asked of it.

        Args:
            name: Kind of the primitive, such as ``convolution``.
            args: What the function of this kind takes.
            attributes: Attributes with post-ops.
        """

    @abstractmethod
    def describe_eltwise(self, number: int, x: Any, y: Any, alpha: float, beta: float, attributes: Any) -> Any:
        """Return the primitive descriptor of a function of one element from ``x`` to ``y``."""

    @abstractmethod
    def describe_concat(self, operands: Sequence[Any], axis: int, attributes: Any) -> Any:
        """Return the primitive descriptor of a concatenation whose result has any layout."""

    def describe_reorder(self, old: Any, new: Any, attributes: Any) -> Any:
        """Return the primitive descriptor of a copy from one layout to another."""
        create = self.lib.dnnl_reorder_primitive_desc_create
        return self._described("reorder", create, old, self.engine, new, self.engine, attributes)

    def _described(self, what: str, create: Any, *args: Any) -> Any:
        return self.create(create, self.lib.dnnl_primitive_desc_destroy, *args, what=what)

    def _function(self, name: str) -> Any:
        return getattr(self.lib, self.interface.functions[name])

    # Post-ops ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def append_sum(self, post_ops: Any, factor: float) -> None:
        """Add to the result what the destination holds, times a factor."""

    @abstractmethod
    def append_eltwise(self, post_ops: Any, number: int, alpha: float, beta: float) -> None:
        """Apply a function of one element to the result."""

    # Handles -------------------------------------------------------------------------------------------------------

    def stream(self) -> Any:
        """Return a stream of its own for one run at a time."""
        lib = self.lib
        return self.create(lib.dnnl_stream_create, lib.dnnl_stream_destroy, self.engine, IN_ORDER, what="stream")

    def memory(self, layout: Layout, data: Any) -> Any:
        """Return a memory object for ``data``, a pointer that must outlive it; NULL is set before each run."""
        create, destroy = self.lib.dnnl_memory_create, self.lib.dnnl_memory_destroy
        return self.create(create, destroy, layout.md, self.engine, data, what="memory")

    def create(self, create: Any, destroy: Any, *args: Any, what: str) -> Any:
        """Return the handle that ``create`` gives; ``destroy``, if there is any, is called with the last reference."""
        out = self.ffi.new("void **")
        self.check(create(out, *args), what)
        return out[0] if destroy is None else self.ffi.gc(out[0], destroy)

    def check_process(self) -> None:
        """Refuse to compute in a forked child, where the library would wait for threads that stayed in the parent.

        Raises:
            ExecutionError: If this is such a child, and the library has more than one thread.
        """
        if self._has_threads and os.getpid() != self._process:
            raise ExecutionError(
                "oneDNN cannot run in a forked process: its threads stayed in the parent",
                where="dnnl",
                hint="Start processes with the method spawn or forkserver"
                + (", or set OMP_NUM_THREADS=1." if self.has_openmp else "."),
            )

    def check(self, status: int, what: str) -> None:
        """Raise what a status other than success stands for.

        Raises:
            MemoryError: If memory ran out.
            TargetError: For every other failure.
        """
        if status == 0:
            return
        reason = STATUS[status] if status < len(STATUS) else f"status {status}"
        if reason == "out of memory":
            raise MemoryError(f"oneDNN, {what}: {reason}")
        raise TargetError(f"oneDNN {self.version} answers: {reason}", where=what)


class Library2(Library):
    """oneDNN 2.x: memory descriptors are structures of the caller, and operations have descriptors of their own."""

    def _new_memory_desc(self, make: Any, what: str, *args: Any) -> Any:
        md = self.ffi.new("md_t *")
        self.check(make(md, *args), what)
        return md

    def layout(self, md: Any) -> Layout:
        """Return the layout of a descriptor that belongs to somebody else."""
        return Layout(self, self.ffi.new("md_t *", md[0]))

    def describe(self, name: str, args: Sequence[Any], attributes: Any) -> Any:
        """Return the primitive descriptor of the kind ``name``."""
        operation = self.ffi.new("op_desc_t *")
        self.check(self._function(name)(operation, *args), f"{name}, description")
        create = self.lib.dnnl_primitive_desc_create
        return self._described(name, create, operation, attributes, self.engine, self.ffi.NULL)

    def describe_eltwise(self, number: int, x: Any, y: Any, alpha: float, beta: float, attributes: Any) -> Any:
        """Return the primitive descriptor of a function of one element; both tensors have one layout."""
        return self.describe("eltwise", (INFERENCE, number, x, alpha, beta), attributes)

    def describe_concat(self, operands: Sequence[Any], axis: int, attributes: Any) -> Any:
        """Return the primitive descriptor of a concatenation whose result has any layout."""
        many = self.ffi.new("md_t[]", len(operands))
        for index, md in enumerate(operands):
            many[index] = md[0]
        create = self.lib.dnnl_concat_primitive_desc_create
        return self._described("concat", create, self.ffi.NULL, len(many), axis, many, attributes, self.engine)

    def append_sum(self, post_ops: Any, factor: float) -> None:
        """Add to the result what the destination holds, times a factor."""
        self.check(self.lib.dnnl_post_ops_append_sum(post_ops, factor), "sum")

    def append_eltwise(self, post_ops: Any, number: int, alpha: float, beta: float) -> None:
        """Apply a function of one element to the result."""
        self.check(self.lib.dnnl_post_ops_append_eltwise(post_ops, 1.0, number, alpha, beta), "eltwise")


class Library3(Library):
    """oneDNN 3.x: memory descriptors are opaque handles, and primitives are described in one step."""

    def _new_memory_desc(self, make: Any, what: str, *args: Any) -> Any:
        out = self.ffi.new("md_t **")
        self.check(make(out, *args), what)
        return self.ffi.gc(out[0], self.lib.dnnl_memory_desc_destroy)

    def layout(self, md: Any) -> Layout:
        """Return the layout of a descriptor that belongs to somebody else."""
        return Layout(self, self._new_memory_desc(self.lib.dnnl_memory_desc_clone, "layout", md))

    def describe(self, name: str, args: Sequence[Any], attributes: Any) -> Any:
        """Return the primitive descriptor of the kind ``name``."""
        return self._described(name, self._function(name), self.engine, *args, attributes)

    def describe_eltwise(self, number: int, x: Any, y: Any, alpha: float, beta: float, attributes: Any) -> Any:
        """Return the primitive descriptor of a function of one element from ``x`` to ``y``."""
        return self.describe("eltwise", (INFERENCE, number, x, y, alpha, beta), attributes)

    def describe_concat(self, operands: Sequence[Any], axis: int, attributes: Any) -> Any:
        """Return the primitive descriptor of a concatenation whose result has any layout."""
        many = self.ffi.new("md_t *[]", list(operands))
        create = self.lib.dnnl_concat_primitive_desc_create
        return self._described("concat", create, self.engine, self.ffi.NULL, len(many), axis, many, attributes)

    def append_sum(self, post_ops: Any, factor: float) -> None:
        """Add to the result what the destination holds, times a factor."""
        self.check(self.lib.dnnl_post_ops_append_sum(post_ops, factor, 0, FLOAT32), "sum")

    def append_eltwise(self, post_ops: Any, number: int, alpha: float, beta: float) -> None:
        """Apply a function of one element to the result."""
        self.check(self.lib.dnnl_post_ops_append_eltwise(post_ops, number, alpha, beta), "eltwise")


_CLASSES: dict[int, type[Library]] = {2: Library2, 3: Library3}


def open_library(path: str) -> Library:
    """Open a library.

    Args:
        path: File or soname.

    Raises:
        OSError: If there is no such library.
        TargetError: If its version is another one, or it has no CPU engine.
    """
    _, lib = _open(path, VERSION_DECLARATIONS)
    found = lib.dnnl_version()
    version = f"{found.major}.{found.minor}.{found.patch}"
    interface = interface_of(found.major, found.minor)
    if interface is None:
        raise TargetError(
            "this oneDNN has another interface",
            where=path,
            expected=f"version {VERSIONS}",
            found=version,
        )
    return _CLASSES[interface.major](*_open(path, interface.declarations), interface, version)


def _open(path: str, declarations: str) -> tuple[Any, Any]:
    """Return cffi's two objects, typed as Any because what they hold is known at run time only."""
    ffi = cffi.FFI()
    ffi.cdef(declarations)
    return ffi, ffi.dlopen(path)


def _row_major(shape: Sequence[int]) -> list[int]:
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= max(size, 1)
    return steps[::-1]


def candidates() -> tuple[str, ...]:
    """Return the names to try, in order: the Python environment's library, then the system's."""
    if chosen := os.environ.get(PATH_VARIABLE):
        return (chosen,)
    own = Path(sys.prefix) / "lib" / "libdnnl.so.3"
    return tuple(filter(None, (str(own), "libdnnl.so.3", "libdnnl.so.2", ctypes.util.find_library("dnnl"))))


def load() -> Library:
    """Return the first of the candidates that will do, opened once per process.

    Raises:
        TargetError: If there is none that will do; the message says why, and what to install.
    """
    return _load(candidates())


@functools.cache
def _load(paths: tuple[str, ...]) -> Library:
    failures = []
    for path in paths:
        try:
            return open_library(path)
        except (OSError, TargetError) as error:
            failures.append(str(error))
    raise TargetError("oneDNN cannot be opened", where="dnnl", found="; ".join(failures), hint=INSTALL)
