"""Regions that run compiled C source: finding or making the shared object, loading it, calling it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cffi
import numpy as np

from tinycomp.errors import ExecutionError, TargetError
from tinycomp.memory.system import REMOVES_LOADED_FILES
from tinycomp.records import dataclass
from tinycomp.runtime.cache import CCache
from tinycomp.runtime.csource.compiler import ENTRY, CCompiler, find_compiler
from tinycomp.runtime.csource.source import CSource
from tinycomp.runtime.native.program import Array, BufferSpec
from tinycomp.runtime.spec import TensorSpec
from tinycomp.version import installed_version

SCRATCH_ALIGNMENT = 64
"""In bytes: a cache line, and the widest vector there is."""


@dataclass(frozen=True)
class Origin:
    """What C source was made from.

    Attributes:
        target: Name of the target.
        region: Symbol of the region.
        graph: The region as text, with attributes, types and shapes.
    """

    target: str
    region: str
    graph: str

    def __str__(self) -> str:
        return f"{self.target}, region {self.region}"


class CRegion:
    """Compiled C source as a step of a plan. Safe to call from many threads if the source is.

    Args:
        source: What to run.
        inputs: The operands; their shapes must be known.
        outputs: The results, likewise.
        origin: What the source was made from.
        cache: Where compiled objects are kept.

    Raises:
        TargetError: If there is no compiler, or it refuses the source.
    """

    def __init__(
        self,
        source: CSource,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        origin: Origin,
        cache: CCache | None = None,
    ) -> None:
        self.source = source
        self.origin = origin
        self.buffers = _buffers(inputs), _buffers(outputs)
        self._inputs = [_expected(spec, origin) for spec in inputs]
        self._outputs = [_expected(spec, origin) for spec in outputs]
        self._kept = [np.ascontiguousarray(c) for c in source.constants]
        self._constants = _pointers(self._kept)
        self._library = load(source, origin, CCache() if cache is None else cache)
        self._entry = getattr(self._library, ENTRY)

    @property
    def results(self) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
        """The dtype and the shape of each result."""
        return self._outputs

    def __call__(self, operands: Sequence[Array]) -> list[Array]:
        """Return fresh arrays with the results; operands that are not contiguous are copied.

        Raises:
            ExecutionError: If an operand does not fit, or the function does not return 0.
        """
        held = [self._checked(x, *wanted) for x, wanted in zip(operands, self._inputs, strict=True)]
        results = [np.empty(shape, dtype) for dtype, shape in self._outputs]
        memory, scratch = _scratch(self.source.scratch_bytes)
        status = self._entry(_pointers(held), _pointers(results), self._constants, scratch)
        del memory, held  # they had to live until here
        if status:
            raise ExecutionError(
                "the region's C function reports a failure", where=str(self.origin), expected="0", found=str(status)
            )
        return results

    def _checked(self, array: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """C believes every pointer that it gets, so nothing but what was compiled for may get there."""
        if array.dtype != dtype or array.shape != shape:
            raise ExecutionError(
                "an operand does not fit the compiled region",
                where=str(self.origin),
                expected=f"{dtype}{list(shape)}",
                found=f"{array.dtype}{list(array.shape)}",
            )
        flags = array.flags
        return array if flags.c_contiguous and flags.aligned else np.require(array, requirements=["C", "A"])


def load(source: CSource, origin: Origin, cache: CCache) -> Any:
    """Return the library with the compiled source: from the cache, or compiled and put there.

    What is loaded is a private copy, so that neither damage to the cache nor a race in it can reach code that runs. A
    cache that cannot be used, or that others could write to, is left alone with a warning.

    Raises:
        TargetError: If there is no compiler, or it refuses the source, or what it made does not load.
    """
    compiler, usable = find_compiler(), cache.is_usable()
    try:
        key = cache_key(source, origin, compiler)
        # The libraries that it brings may have started threads, as OpenMP does, whose code must not go away.
        stays = bool(source.flags or source.libraries)
        with tempfile.TemporaryDirectory(prefix="tinycomp-", ignore_cleanup_errors=not REMOVES_LOADED_FILES) as name:
            data = cache.find(key) if usable else None
            if data is not None:
                with contextlib.suppress(OSError):
                    return _open(data, Path(name) / "kept.so", cache.place(key, data), stays)
            data = compiler.build(source, Path(name), str(origin)).read_bytes()
            if usable:
                cache.keep(key, data, origin.target, origin.region)
            return _open(data, Path(name) / "new.so", cache.place(key, data), stays)
    except OSError as error:
        raise TargetError(
            f"the compiled source does not load: {error}",
            where=str(origin),
            hint="Check flags, libraries and disk space; where a folder forbids execution, set TMPDIR.",
        ) from error


def cache_key(source: CSource, origin: Origin, compiler: CCompiler) -> str:
    """Return a hash of everything that the compiled object, or its being right, can depend on."""
    digest = hashlib.sha256()
    texts = [installed_version(), origin.target, origin.graph, source.text, source.function, str(source.scratch_bytes)]
    lists: list[Iterable[str]] = [texts, compiler.identity(), source.flags, source.libraries]
    lists += [_headers(source.include_dirs), _binaries(source)]
    for items in lists:
        values = [item.encode("utf-8", "surrogatepass") for item in items]
        # With lengths, so that no two series of texts run into the same bytes.
        digest.update(f"{len(values)}:{[len(v) for v in values]}".encode() + b"".join(values))
    for constant in source.constants:
        digest.update(f"{constant.dtype.name}{constant.shape}".encode())
        digest.update(np.ascontiguousarray(constant).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _open(data: bytes, copy: Path, kept: Path, stays: bool) -> Any:
    """Load a shared object by way of a copy that may then be removed; it ``stays`` loaded, or goes with its region.

    Raises:
        OSError: If it does not load.
    """
    copy.write_bytes(data)
    ffi = _fresh_ffi()  # each keeps the libraries that it has opened
    flags = ffi.RTLD_NOW | (getattr(os, "RTLD_NODELETE", 0) if stays else 0)
    try:
        library = ffi.dlopen(str(copy), flags)
    except OSError:
        # The reason may be that temporary folders forbid execution.
        if not kept.exists():
            raise
        library = ffi.dlopen(str(kept), flags)
    if not hasattr(library, ENTRY):
        raise OSError(f"the object does not export {ENTRY}")
    return library


def _fresh_ffi() -> Any:
    ffi = cffi.FFI()
    ffi.cdef(f"int {ENTRY}(const void *const *, void *const *, const void *const *, void *);")
    return ffi


_ffi = functools.lru_cache(maxsize=1)(_fresh_ffi)
"""What makes pointers, for all regions."""


def _pointers(arrays: Sequence[Array]) -> Any:
    """Addresses of arrays, which must live as long; an array of none has one element all the same."""
    ffi = _ffi()
    pointers = ffi.new("void *[]", len(arrays) or 1)
    for index, array in enumerate(arrays):
        try:
            pointers[index] = ffi.from_buffer(array)
        except (BufferError, ValueError, TypeError):
            # Types that numpy did not define itself, such as bfloat16, have no buffer interface of their own.
            pointers[index] = ffi.cast("void *", array.ctypes.data)
    return pointers


def _scratch(size: int) -> tuple[Array | None, Any]:
    """Memory for one call, and the first aligned address in it."""
    if not size:
        return None, _ffi().NULL
    memory: Array = np.empty(size + SCRATCH_ALIGNMENT, np.uint8)
    address = -(-memory.ctypes.data // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
    return memory, _ffi().cast("void *", address)


def _buffers(specs: Sequence[TensorSpec]) -> tuple[BufferSpec, ...]:
    return tuple(BufferSpec(s.name, s.dtype, tuple(d for d in s.shape or () if isinstance(d, int))) for s in specs)


def _expected(spec: TensorSpec, origin: Origin) -> tuple[np.dtype[Any], tuple[int, ...]]:
    dtype = spec.numpy_dtype
    if dtype is None or dtype.kind == "O" or not spec.is_static:
        raise TargetError(
            f'"{spec.name}" cannot be handed to C',
            where=str(origin),
            expected="a tensor of numbers with a known shape",
            found=str(spec),
            hint="Let the target refuse the node that reads or makes it.",
        )
    return dtype, tuple(d for d in spec.shape or () if isinstance(d, int))


def _headers(folders: Sequence[str]) -> Iterator[str]:
    """Return every file in folders with headers as it is now: a changed header makes another object."""
    for folder in folders:
        yield from (_stamp(p) for p in sorted(Path(folder).rglob("*")) if p.is_file())


def _binaries(source: CSource) -> Iterator[str]:
    for folder in source.library_dirs:
        yield str(Path(folder).absolute())
        for name in source.libraries:
            yield from (_stamp(p) for p in sorted(Path(folder).glob(f"lib{name}.*")) if p.is_file())


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{path.absolute()} {status.st_size} {status.st_mtime_ns}"
