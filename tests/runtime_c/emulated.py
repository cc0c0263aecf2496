"""Kernels for instruction sets that this machine lacks: programs go to the driver ``replay``, which is emulated.

The driver is compiled when first asked for, and one process of it serves a whole test session.
"""

from __future__ import annotations

import functools
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import pytest

from tinycomp.runtime.native.encoder import encoded
from tinycomp.runtime.native.executor import NativeProgram, Pool
from tinycomp.runtime.native.library import ffi, raise_error
from tinycomp.runtime.native.processor import available_isas
from tinycomp.runtime.native.program import Program

PROJECT = Path(__file__).resolve().parents[2]
CROSS = PROJECT / "runtime_c" / "tests" / "cross.py"


@dataclass(frozen=True)
class Emulation:
    """How an instruction set is had that this machine lacks."""

    isa: str
    """What the runtime calls it."""
    build: tuple[str, ...]
    """What ``cross.py`` is told before and behind the folder: compiler; folder of substitutes, flags."""
    command: tuple[str, ...]
    """What runs the driver, whose path follows."""
    missing: Callable[[], list[str]]
    """What the machine lacks to do so."""

    @property
    def folder(self) -> Path:
        """Where the driver is made; emulations of one instruction set, compiled alike, share it."""
        return PROJECT / "build" / "".join([self.isa, *(flag for flag in self.build if flag.startswith("-O"))])


def _missing_for_neon() -> list[str]:
    return [tool for tool in ("aarch64-linux-gnu-gcc", "qemu-aarch64") if shutil.which(tool) is None]


@functools.cache
def _missing_for_avx512() -> list[str]:
    missing = [] if "avx2" in available_isas() else ["AVX2"]
    question = "#if !__has_include(<simde/x86/avx512.h>)\n#error\n#endif\n"
    if shutil.which("gcc") is None:
        missing.append("gcc")
    elif subprocess.run(["gcc", "-E", "-"], input=question, capture_output=True, text=True).returncode:
        missing.append("SIMDe")
    return missing


def _missing_for_helium() -> list[str]:
    return [] if shutil.which("gcc") else ["gcc"]


_SHARES = {"some": (0, 8), "sampled": (0, 3), "native": (0, 1), "all": (1, 1)}
"""By ``TINYCOMP_TEST_ISAS``, one case in how many runs for emulated ones and for all of this machine but its best."""
_ASKED_FOR = os.environ.get("TINYCOMP_TEST_ISAS", "some")
if _ASKED_FOR not in _SHARES:
    raise ValueError(f"TINYCOMP_TEST_ISAS: expected one of {', '.join(_SHARES)}, found {_ASKED_FOR!r}")
_EVERY_EMULATED, _EVERY_OLDER = _SHARES[_ASKED_FOR]
_AVX512 = ("gcc", "avx512", "-O1", "-Wno-psabi")

EMULATIONS = {
    "neon": Emulation("neon", ("aarch64-linux-gnu-gcc",), ("qemu-aarch64",), _missing_for_neon),
    "helium": Emulation("helium", ("gcc", "", "-DTC_EMULATES_HELIUM", "-O0"), (), _missing_for_helium),
    "avx512bw": Emulation(
        "avx512", _AVX512, ("env", "TINYCOMP_ABSENT_FEATURES=avx512vnni,avx512bf16"), _missing_for_avx512
    ),
    "avx512vnni": Emulation("avx512", _AVX512, (), _missing_for_avx512),
}
"""Instruction sets by the names that tests know them by; both kinds of AVX-512 multiply 8-bit numbers and
bfloat16 differently."""

EMULATED = tuple(name for name in EMULATIONS if _EVERY_EMULATED and name not in available_isas())
"""What is emulated takes long to compile, so it has to be asked for, as ``.ci/run`` does."""
ISAS = (*available_isas(), *EMULATED)
"""What this machine runs itself, and what it may emulate."""


def every(isa: object) -> int:
    """Return one case in how many runs, chosen by its name, of those for an instruction set.

    Emulation is slow, and most of what may be wrong is wrong for the best instruction set of a machine, too.
    """
    if isa in EMULATED:
        return _EVERY_EMULATED
    return _EVERY_OLDER if isa in available_isas()[:-1] else 1


def require(isa: str) -> None:
    """Skip the test if this machine can neither run nor emulate the instruction set."""
    if isa not in available_isas() and (missing := EMULATIONS[isa].missing()):
        pytest.skip(f"{isa} cannot be emulated without {' and '.join(missing)}")


class EmulatedProgram:
    """What :class:`NativeProgram` is, for one of :data:`EMULATIONS`; the program is described anew for every run.

    Raises:
        TargetError: If the program is not valid, as soon as it is made.
    """

    def __init__(self, program: Program, pool: Pool | None, isa: str) -> None:
        self.program = program
        self.pool = pool
        self.isa = isa

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Run the program on contiguous arrays, writing the outputs in place.

        Raises:
            TargetError: If the program is not valid.
            ExecutionError: If a kernel refused its data.
        """
        driver = _driver(self.isa)
        driver.send(b"".join(self._request(inputs, outputs)))
        stage = driver.number()
        if stage:
            self._raise(stage, driver.number(), driver.bytes())
        for array in outputs:
            array.reshape(-1).view(np.uint8)[:] = np.frombuffer(driver.bytes(), np.uint8)

    def _request(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Iterator[bytes]:
        program = self.program
        yield _text(EMULATIONS[self.isa].isa)
        threads = 1 if self.pool is None else self.pool.threads
        yield _numbers(threads, *map(len, (inputs, outputs, program.constants)))
        yield _bytes(encoded(program))
        yield from map(_array, (*program.constants, *inputs, *outputs))

    def _raise(self, stage: int, code: int, message: bytes) -> NoReturn:
        error = ffi.new("tc_error *", {"code": code, "message": message})
        if stage == 1:
            raise_error(error, self.program.name)
        NativeProgram._raise_run(cast(Any, self), error)


def runner(program: Program, pool: Pool | None, isa: str) -> NativeProgram | EmulatedProgram:
    """Return a program ready to run on an instruction set of this machine or an emulated one."""
    return NativeProgram(program, pool, isa) if isa in available_isas() else EmulatedProgram(program, pool, isa)


class _Driver:
    """The process that runs requests; its form is described in ``runtime_c/tests/replay.c``."""

    def __init__(self, emulation: Emulation) -> None:
        made = _made(emulation.build, emulation.isa, emulation.folder)
        assert made.returncode == 0, f"the driver cannot be compiled:\n{made.stderr}"
        command = [*emulation.command, str(emulation.folder / "replay")]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, request: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(request)
        self._process.stdin.flush()

    def number(self) -> int:
        return int(struct.unpack("<q", self._read(8))[0])

    def bytes(self) -> bytes:
        return self._read(self.number())

    def _read(self, count: int) -> bytes:
        assert self._process.stdout is not None
        found = self._process.stdout.read(count)
        assert len(found) == count, f"the driver ended with code {self._process.wait()}"
        return found


@functools.cache
def _made(build: tuple[str, ...], isa: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Compile the driver; what fails to compile is not tried again by the next test."""
    compiler, *rest = build
    return subprocess.run([sys.executable, CROSS, compiler, isa, folder, *rest], capture_output=True, text=True)


@functools.cache
def _driver(isa: str) -> _Driver:
    return _Driver(EMULATIONS[isa])


def _numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _bytes(data: bytes) -> bytes:
    return _numbers(len(data)) + data


def _text(text: str) -> bytes:
    return _bytes(text.encode())


def _array(array: np.ndarray) -> bytes:
    return _bytes(array.tobytes())
