"""The library for programs without Python, called as such a program would, by way of cffi."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest

import tinycomp

PACKAGE = Path(tinycomp.__file__).parent
LIBRARY = PACKAGE / "lib" / "libtinycomp.so"
HEADERS = Path(__file__).resolve().parents[2] / "runtime_c" / "include"


class LibraryError(Exception):
    """What the library reports: its status, and its message."""


@functools.cache
def library() -> tuple[Any, Any]:
    """The declarations and the library; the test is skipped where it is not built."""
    if not LIBRARY.exists():
        pytest.skip(f"there is no {LIBRARY.name}: it is built with the extension, on systems with shared objects")
    ffi = cffi.FFI()
    for name in ("tinycomp_error.h", "tinycomp_run.h"):
        text = re.sub(r'extern "C" {|^}$', "", (HEADERS / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        ffi.cdef("\n".join(lines).replace("TC_PUBLIC", "").replace("[TC_TENSOR_RANK]", "[8]"))
    return ffi, ffi.dlopen(str(LIBRARY))


@functools.cache
def building() -> tuple[Any, Any]:
    """The same for the calls that the reader of records makes, and all others of the runtime that Python makes."""
    library()
    ffi = cffi.FFI()
    places = [HEADERS / name for name in ("tinycomp_error.h", "tinycomp.h")]
    for path in (*places, HEADERS.parent / "src" / "building.h"):
        text = path.read_text(encoding="utf-8").split("/* cdef-begin", 1)[1].split("/* cdef-end", 1)[0]
        ffi.cdef(text.split("*/", 1)[1])
    return ffi, ffi.dlopen(str(LIBRARY))


class CModule:
    """A module of the library with one session."""

    def __init__(self, contents: bytes, regions: Sequence[tuple[str, Any]] = (), threads: int = 1) -> None:
        self.ffi, self.lib = library()
        self.error = self.ffi.new("tc_error *")
        self._contents = self.ffi.from_buffer(contents)
        self._names = [self.ffi.new("char[]", name.encode()) for name, _ in regions]
        self._regions = self.ffi.new(
            "tc_region[]", [(name, run) for name, (_, run) in zip(self._names, regions, strict=True)] or 1
        )
        options = self.ffi.new(
            "tc_module_options *", {"threads": threads, "regions": len(regions), "of": self._regions}
        )
        out = self.ffi.new("tc_module **")
        self._check(self.lib.tc_module_read(self._contents, len(contents), options, out, self.error))
        self._sessions = [0]
        self.handle = out[0]
        self._open()

    def beside(self) -> CModule:
        """Return one more session of the same module."""
        other = copy.copy(self)
        other.error = self.ffi.new("tc_error *")
        other._open()
        return other

    def _open(self) -> None:
        """Open a session; the last one that is closed closes the module, whatever the order of a garbage collection."""
        module, count = self.handle, self._sessions
        close, close_module, session = (
            self.lib.tc_session_close,
            self.lib.tc_module_close,
            self.ffi.new("tc_session **"),
        )
        status = self.lib.tc_session_open(module, session, self.error)
        if status and not count[0]:
            close_module(module)
        self._check(status)
        count[0] += 1

        def done(handle: Any) -> None:
            close(handle)
            count[0] -= 1
            if not count[0]:
                close_module(module)

        self.session = self.ffi.gc(session[0], done)
        self._held: dict[int, Any] = {}

    def _check(self, status: int) -> None:
        if status:
            message = self.ffi.string(self.error.message).decode("utf-8", "replace")
            raise LibraryError(status, message)

    def specs(self, kind: str) -> list[tuple[str, str, list[int | str | None]]]:
        """Name, dtype and dimensions of the inputs or outputs."""
        found, spec = [], self.ffi.new("tc_tensor_spec *")
        for index in range(getattr(self.lib, f"tc_module_{kind}_count")(self.handle)):
            assert getattr(self.lib, f"tc_module_{kind}")(self.handle, index, spec) == 0
            dims = [
                spec.dims[d] if spec.dims[d] >= 0
                else None if spec.symbols[d] == self.ffi.NULL
                else self.ffi.string(spec.symbols[d]).decode("utf-8", "replace")
                for d in range(spec.rank)
            ]  # fmt: skip
            found.append(
                (self.ffi.string(spec.name).decode("utf-8", "replace"), self.ffi.string(spec.dtype).decode(), dims)
            )
        return found

    def set_input(self, index: int, array: np.ndarray) -> None:
        array = np.require(array, requirements=["C"])
        dtype = self.ffi.new("char[]", array.dtype.name.encode())
        tensor = self.ffi.new("tc_tensor *")
        data = array.reshape(-1).view(np.uint8) if array.size else np.zeros(8, np.uint8)
        tensor.data, tensor.dtype, tensor.rank = self.ffi.from_buffer(data), dtype, array.ndim
        for d, size in enumerate(array.shape):
            tensor.dims[d] = size
        self._held[index] = array, data, dtype
        self._check(self.lib.tc_session_set_input(self.session, index, tensor, self.error))

    def set_output(self, index: int, array: np.ndarray) -> None:
        self._held[-1 - index] = array
        data = self.ffi.from_buffer(array.reshape(-1).view(np.uint8), require_writable=True)
        self._check(self.lib.tc_session_set_output(self.session, index, data, array.nbytes, self.error))

    def limit(self, seconds: float = 0.0, nbytes: int = 0) -> None:
        self.lib.tc_session_limit(self.session, seconds, nbytes)

    def output(self, index: int) -> np.ndarray:
        """A copy of a result."""
        tensor = self.ffi.new("tc_tensor *")
        self._check(self.lib.tc_session_output(self.session, index, tensor, self.error))
        shape = [tensor.dims[d] for d in range(tensor.rank)]
        name = self.ffi.string(tensor.dtype).decode()
        dtype = tinycomp.ir.types.numpy_dtype(name) if name not in np.sctypeDict else np.dtype(name)
        nbytes = int(np.prod(shape)) * dtype.itemsize
        return np.frombuffer(bytes(self.ffi.buffer(tensor.data, nbytes)), dtype).reshape(shape)

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        for index, array in enumerate(arrays):
            self.set_input(index, array)
        self._check(self.lib.tc_session_run(self.session, self.error))
        return [self.output(i) for i in range(self.lib.tc_module_output_count(self.handle))]
