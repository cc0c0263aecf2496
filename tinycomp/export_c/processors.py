"""The processors that a project can be made for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType

from tinycomp.errors import UnsupportedError, did_you_mean
from tinycomp.records import dataclass
from tinycomp.runtime.native.processor import available_isas, packs_weights


@dataclass(frozen=True)
class Processor:
    """What a project must know of the processor that it is for.

    Attributes:
        name: What ``--cpu`` calls it.
        isa: The instruction set of the C runtime whose kernels and packed weights fit.
        description: For people.
        flags: What a compiler has to be told.
        alignment: Of weights, in bytes.
        compiler: What builds for it; empty for the machine's own.
        board: The machine of qemu that has such a processor, where a trial is possible; else empty.
        clock: Nanoseconds of a tick of that machine's system timer.
        cache: What the second-level cache is taken to hold, in bytes, wherever the project is made. Kernels copy what
            they read in blocks that fit; where there is no cache, small ones save memory.
        emulator: The qemu that has the board, or that runs programs for such a processor where there is no board.
        big_endian: Whether numbers begin with their highest byte, those in packed weights too.
    """

    name: str
    isa: str
    description: str
    flags: str = ""
    alignment: int = 16
    compiler: str = ""
    board: str = ""
    clock: float = 40.0
    cache: int = 256 << 10
    emulator: str = ""
    big_endian: bool = False

    @property
    def is_small(self) -> bool:
        """Whether memory is scarce."""
        return self.cache < 256 << 10

    @property
    def options(self) -> Mapping[str, object]:
        """Options of the target c for it: Winograd's algorithm takes memory that small ones lack."""
        return {"winograd": False} if self.is_small else {}

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The headers of its SIMD vocabulary."""
        return (f"simd_{self.isa}.h",)

    @property
    def intrinsics(self) -> str:
        """The header with its intrinsics, if it has any."""
        return {"avx2": "immintrin.h", "neon": "arm_neon.h", "helium": "arm_mve.h"}.get(self.isa, "")

    @property
    def guard(self) -> tuple[str, ...]:
        """Lines that stop a compiler that builds for another one."""
        macro = {"avx2": "__AVX2__", "neon": "__aarch64__", "helium": "__ARM_FEATURE_MVE"}.get(self.isa)
        order = "BIG" if self.big_endian else "LITTLE"
        lines = [
            f"#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_{order}_ENDIAN__",
            f'#error "the weights are packed for processors of {order.lower()}-endian byte order"',
            "#endif",
            "#include <float.h>",
            "#if FLT_EVAL_METHOD != 0",
            '#error "floats are computed with more bits than they have: on 32-bit x86 build with -msse2 -mfpmath=sse"',
            "#endif",
        ]
        if macro is not None:
            lines += [f"#ifndef {macro}", f'#error "build with {self.flags or "the flags of the Makefile"}"', "#endif"]
        return tuple(lines)


_CORTEX = {
    "m0": ("", "mps2-an385", 40.0),
    "m4": (" -mfloat-abi=hard -mfpu=fpv4-sp-d16", "mps2-an386", 40.0),
    "m7": (" -mfloat-abi=hard -mfpu=fpv5-d16", "mps2-an500", 40.0),
    "m33": (" -mfloat-abi=hard -mfpu=fpv5-sp-d16", "mps3-an547", 31.25),
    "m55": (" -mfloat-abi=hard", "mps3-an547", 31.25),
}
"""How a compiler is told of each Cortex-M's floating-point unit, a board of qemu that runs its code, and its clock."""


def _cortex(short: str) -> Processor:
    unit, board, clock = _CORTEX[short]
    # Scheduled before registers are allocated, the loads of a loop come first and push its sums out of the registers.
    flags = f"-mthumb -mcpu=cortex-{short}{unit} -fno-schedule-insns"
    name = f"cortex-{short}"
    description = f"Arm Cortex-{short.upper()}"
    isa = "helium" if short == "m55" else "scalar"
    emulator = "qemu-system-arm"
    return Processor(name, isa, description, flags, 16, "arm-none-eabi-gcc", board, clock, 16 << 10, emulator)


PROCESSORS: Mapping[str, Processor] = MappingProxyType(
    {
        each.name: each
        for each in (
            Processor("generic", "scalar", "any little-endian processor"),
            Processor(
                "generic-be", "scalar", "any big-endian processor", compiler="powerpc64-linux-gnu-gcc",
                emulator="qemu-ppc64", big_endian=True,
            ),
            Processor("x86-64-v3", "avx2", "x86 processors with AVX2, FMA and F16C", "-mavx2 -mfma -mf16c", 64),
            Processor(
                "armv8-a", "neon", "64-bit Arm processors", "", 64, "aarch64-linux-gnu-gcc", emulator="qemu-aarch64"
            ),
            *map(_cortex, _CORTEX),
            Processor(
                "rv32imc", "scalar", "32-bit RISC-V", "-march=rv32imc -mabi=ilp32", 16, "riscv64-unknown-elf-gcc",
                "virt", 1.0, 16 << 10, "qemu-system-riscv32",
            ),
        )
    }
)  # fmt: skip
"""By what ``--cpu`` calls them; ``host`` is the best of them that runs here."""


def processor_named(name: str) -> Processor:
    """Return a processor by its name; ``"host"`` for the best that runs here.

    Raises:
        UnsupportedError: If there is none of this name, or if its weights cannot be packed on this machine.
    """
    if name == "host":
        best = next((isa for isa in ("avx2", "neon") if isa in available_isas()), "scalar")
        is_big = sys.byteorder == "big"
        return next(each for each in PROCESSORS.values() if each.isa == best and each.big_endian == is_big)
    if name not in PROCESSORS:
        raise UnsupportedError(
            "no such processor", where="cpu", expected=f"one of host, {', '.join(PROCESSORS)}", found=name,
            hint=did_you_mean(name, ("host", *PROCESSORS)),
        )  # fmt: skip
    processor = PROCESSORS[name]
    if not packs_weights(processor.isa):
        raise UnsupportedError(
            f"weights for {processor.isa} cannot be packed on this machine", where=name,
            expected=f"an instruction set of {', '.join(available_isas())}",
            hint="Export on a machine that has it, or for the processor generic.",
        )  # fmt: skip
    return processor
