"""The part of oneDNN's C interface that the target needs, bound at run time through cffi's ABI mode.

Nothing is compiled and nothing is linked: :func:`load` opens ``libdnnl.so.2`` where the system has it. Handles belong
to Python objects and are destroyed with them. Source: oneDNN 2.6, ``dnnl.h`` and ``dnnl_types.h``.
"""

from __future__ import annotations

import ctypes.util
import functools
import os
from collections.abc import Sequence
from typing import Any

import cffi

from tinycomp.errors import ExecutionError, TargetError

PATH_VARIABLE = "TINYCOMP_DNNL"
"""Environment variable with the path of a library to use instead of the system's."""
OLDEST, NEWEST = (2, 6), (2, 7)
"""Versions whose interface is the one declared here; 3.0 changed it."""
INSTALL = (
    "Install oneDNN 2.6 or 2.7, on Debian and Ubuntu with `apt-get install libdnnl2`, "
    f"or set {PATH_VARIABLE} to the path of libdnnl.so.2."
)

# Descriptors are opaque here, because only the library reads them: a memory descriptor has 696 bytes, the largest
# operation descriptor (convolution) 5976.
_DECLARATIONS = """
typedef struct {
    int major; int minor; int patch; const char *hash; unsigned cpu_runtime; unsigned gpu_runtime;
} dnnl_version_t;
typedef struct { int64_t opaque[87]; } md_t;
typedef struct { int64_t opaque[747]; } op_desc_t;
typedef struct { int arg; void *memory; } exec_arg_t;
const dnnl_version_t *dnnl_version(void);

int omp_get_max_threads(void);

int dnnl_engine_create(void **engine, int kind, size_t index);
int dnnl_stream_create(void **stream, void *engine, unsigned flags);
int dnnl_stream_wait(void *stream);
int dnnl_stream_destroy(void *stream);

int dnnl_memory_desc_init_by_strides(md_t *md, int rank, const int64_t *dims, int dtype, const int64_t *strides);
int dnnl_memory_desc_init_by_tag(md_t *md, int rank, const int64_t *dims, int dtype, int tag);
int dnnl_memory_desc_equal(const md_t *a, const md_t *b);
size_t dnnl_memory_desc_get_size(const md_t *md);
int dnnl_memory_create(void **memory, const md_t *md, void *engine, void *data);
int dnnl_memory_set_data_handle(void *memory, void *data);
int dnnl_memory_destroy(void *memory);

int dnnl_primitive_attr_create(void **attr);
int dnnl_primitive_attr_destroy(void *attr);
int dnnl_primitive_attr_set_scratchpad_mode(void *attr, int mode);
int dnnl_primitive_attr_set_post_ops(void *attr, void *post_ops);
int dnnl_post_ops_create(void **post_ops);
int dnnl_post_ops_destroy(void *post_ops);
int dnnl_post_ops_append_sum(void *post_ops, float scale);
int dnnl_post_ops_append_eltwise(void *post_ops, float scale, int kind, float alpha, float beta);

int dnnl_primitive_desc_create(void **pd, const op_desc_t *desc, void *attr, void *engine, void *hint);
int dnnl_reorder_primitive_desc_create(
    void **pd, const md_t *from, void *from_engine, const md_t *to, void *to_engine, void *attr);
int dnnl_concat_primitive_desc_create(
    void **pd, const md_t *to, int count, int axis, const md_t *from, void *attr, void *engine);
const md_t *dnnl_primitive_desc_query_md(void *pd, int what, int index);
int dnnl_primitive_desc_query(void *pd, int what, int index, void *result);
int dnnl_primitive_desc_destroy(void *pd);
int dnnl_primitive_create(void **primitive, void *pd);
int dnnl_primitive_execute(void *primitive, void *stream, int count, const exec_arg_t *args);
int dnnl_primitive_destroy(void *primitive);

int dnnl_dilated_convolution_forward_desc_init(
    op_desc_t *desc, int prop, int kind, const md_t *x, const md_t *w, const md_t *b, const md_t *y,
    const int64_t *strides, const int64_t *dilations, const int64_t *before, const int64_t *after);
int dnnl_matmul_desc_init(op_desc_t *desc, const md_t *x, const md_t *w, const md_t *b, const md_t *y);
int dnnl_pooling_v2_forward_desc_init(
    op_desc_t *desc, int prop, int kind, const md_t *x, const md_t *y, const int64_t *strides, const int64_t *kernel,
    const int64_t *dilations, const int64_t *before, const int64_t *after);
int dnnl_eltwise_forward_desc_init(op_desc_t *desc, int prop, int kind, const md_t *x, float alpha, float beta);
int dnnl_binary_desc_init(op_desc_t *desc, int kind, const md_t *a, const md_t *b, const md_t *y);
int dnnl_softmax_forward_desc_init(op_desc_t *desc, int prop, const md_t *x, int axis);
int dnnl_logsoftmax_forward_desc_init(op_desc_t *desc, int prop, const md_t *x, int axis);
"""

_STATUS = ("success", "out of memory", "invalid arguments", "unimplemented", "iterator ends", "runtime error")
_CPU, _F32, _TAG_ANY = 1, 3, 1


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


class Library:
    """An opened oneDNN with its CPU engine; safe to use from many threads.

    Args:
        path: File or soname to open.

    Raises:
        OSError: If there is no such library.
        TargetError: If its version is another one, or it has no CPU engine.
    """

    def __init__(self, path: str) -> None:
        self.ffi, self.lib = _open(path)
        self.version = self._supported_version(path)
        # The engine lives as long as the process: what is made on it does not keep it alive.
        self.engine = self._create(self.lib.dnnl_engine_create, None, _CPU, 0)
        self._process = os.getpid()
        self._has_threads = getattr(self.lib, "omp_get_max_threads", lambda: 2)() > 1

    def _supported_version(self, path: str) -> str:
        found = self.lib.dnnl_version()
        if not OLDEST <= (found.major, found.minor) <= NEWEST:
            raise TargetError(
                "this oneDNN has another interface",
                where=path,
                expected=f"version {'.'.join(map(str, OLDEST))} to {'.'.join(map(str, NEWEST))}",
                found=f"{found.major}.{found.minor}.{found.patch}",
                hint=INSTALL,
            )
        return f"{found.major}.{found.minor}.{found.patch}"

    # Layouts -------------------------------------------------------------------------------------------------------

    def plain(self, shape: Sequence[int], strides: Sequence[int] | None = None) -> Layout:
        """Return a layout with one element after the other; row-major unless ``strides`` (in elements) say other."""
        steps = list(strides) if strides is not None else _row_major(shape)
        md = self.ffi.new("md_t *")
        self.check(self.lib.dnnl_memory_desc_init_by_strides(md, len(shape), list(shape), _F32, steps), "strides")
        return Layout(self, md)

    def undecided(self, shape: Sequence[int]) -> Any:
        """Return a descriptor that leaves the memory order to the primitive."""
        md = self.ffi.new("md_t *")
        self.check(self.lib.dnnl_memory_desc_init_by_tag(md, len(shape), list(shape), _F32, _TAG_ANY), "layout")
        return md

    def layout(self, md: Any) -> Layout:
        """Return the layout of a descriptor that belongs to somebody else."""
        return Layout(self, self.ffi.new("md_t *", md[0]))

    # Handles -------------------------------------------------------------------------------------------------------

    def stream(self) -> Any:
        """Return a stream of its own for one run at a time."""
        return self._create(self.lib.dnnl_stream_create, self.lib.dnnl_stream_destroy, self.engine, 1)

    def memory(self, layout: Layout, data: Any) -> Any:
        """Return a memory object for ``data``, a pointer that must outlive it; NULL is set before each run."""
        create, destroy = self.lib.dnnl_memory_create, self.lib.dnnl_memory_destroy
        return self._create(create, destroy, layout.md, self.engine, data)

    def _create(self, create: Any, destroy: Any, *args: Any) -> Any:
        out = self.ffi.new("void **")
        self.check(create(out, *args), "create")
        return out[0] if destroy is None else self.ffi.gc(out[0], destroy)

    def check_process(self) -> None:
        """Refuse to compute in a forked child, where OpenMP would wait for threads that stayed in the parent.

        Raises:
            ExecutionError: If this is such a child, and the library has more than one thread.
        """
        if self._has_threads and os.getpid() != self._process:
            raise ExecutionError(
                "oneDNN cannot run in a forked process: its threads stayed in the parent",
                where="dnnl",
                hint="Start processes with the method spawn or forkserver, or set OMP_NUM_THREADS=1.",
            )

    def check(self, status: int, what: str) -> None:
        """Raise what a status other than success stands for.

        Raises:
            MemoryError: If memory ran out.
            TargetError: For every other failure.
        """
        if status == 0:
            return
        reason = _STATUS[status] if status < len(_STATUS) else f"status {status}"
        if reason == "out of memory":
            raise MemoryError(f"oneDNN, {what}: {reason}")
        raise TargetError(f"oneDNN {self.version} answers: {reason}", where=what)


def _open(path: str) -> tuple[Any, Any]:
    """Return cffi's two objects, typed as Any because what they hold is known at run time only."""
    ffi = cffi.FFI()
    ffi.cdef(_DECLARATIONS)
    return ffi, ffi.dlopen(path)


def _row_major(shape: Sequence[int]) -> list[int]:
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= max(size, 1)
    return steps[::-1]


def candidates() -> tuple[str, ...]:
    """Return the names to try, in order."""
    if chosen := os.environ.get(PATH_VARIABLE):
        return (chosen,)
    return tuple(filter(None, ("libdnnl.so.2", ctypes.util.find_library("dnnl"))))


def load() -> Library:
    """Return the library, opened once per process.

    Raises:
        TargetError: If there is none, or its version is another one; the message says what to install.
    """
    return _load(candidates())


@functools.cache
def _load(paths: tuple[str, ...]) -> Library:
    failures = []
    for path in paths:
        try:
            return Library(path)
        except OSError as error:
            failures.append(str(error))
    raise TargetError("oneDNN cannot be opened", where="dnnl", found="; ".join(failures), hint=INSTALL)
