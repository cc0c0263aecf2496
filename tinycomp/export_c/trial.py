"""Building an exported project and running its test: here, or on a processor that qemu emulates.

With ``-icount shift=0`` every instruction of the emulated processor takes one nanosecond of the board's time, so that
its system timer counts instructions: the same number in every run, within the timer's step of some 40.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tinycomp.errors import ExecutionError, UnsupportedError
from tinycomp.export_c.processors import Processor
from tinycomp.export_c.project import Project
from tinycomp.export_c.text import filled, template
from tinycomp.records import dataclass

_SECONDS = 600
_WARNINGS = ("-Wall", "-Wextra", "-pedantic")
_FLAGS = ("-std=c11", "-ffp-contract=fast", "-fno-math-errno", "-ffunction-sections", "-fdata-sections")
_RISCV_MEMORY = (
    "__flash=0x80000000", "__flash_size=0x800000", "__ram=0x80800000", "__ram_size=0x800000", "__stack_size=0x10000",
)  # fmt: skip
"""Where qemu's board has memory, for picolibc's linker script."""
_CONSTANTS = "CONSTANTS (r) : ORIGIN = {}, LENGTH = 4M"
_MEMORY = {"mps3-an547": ("512K", "512K", _CONSTANTS.format("0x60000000"))}
_USUAL = ("2M", "4M", _CONSTANTS.format("0x00200000"))
"""Flash, RAM and constants of boards. That of the Cortex-M55 has little of the fastest memory, and much of another."""


@dataclass(frozen=True)
class Trial:
    """What a run of a project's test showed.

    Attributes:
        passed: Whether all results were as expected.
        output: What the test printed.
        instructions: Of the run; None where they cannot be counted.
        stack_bytes: The depth of the stack during the run; None where it was not measured.
        code_bytes: Machine code and tables of the model without its weights; None where it was not measured.
    """

    passed: bool
    output: str
    instructions: int | None = None
    stack_bytes: int | None = None
    code_bytes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what was measured."""
        return {
            "passed": self.passed, "instructions": self.instructions, "stack_bytes": self.stack_bytes,
            "code_bytes": self.code_bytes,
        }  # fmt: skip


def missing_tools(processor: Processor) -> list[str]:
    """Return the programs that a trial for a processor needs and this machine lacks."""
    needed = [processor.compiler or "cc", *([processor.emulator] if processor.emulator else [])]
    return [tool for tool in needed if shutil.which(tool) is None]


def run_trial(project: Project, *options: str) -> Trial:
    """Build a project in a temporary folder, without warnings, and run its test.

    Args:
        project: What to build.
        options: For the compiler and the linker; ``-O3`` if there are none.

    Raises:
        UnsupportedError: If the tools are missing, or nothing here runs such code.
        ExecutionError: If the compiler or the emulator fails.
    """
    processor = project.processor
    missing = missing_tools(processor)
    if missing:
        raise UnsupportedError(
            "tools are missing", where=processor.name, expected=", ".join(missing), found="not on the PATH",
            hint="On Debian: gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm; for RISC-V "
            "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf qemu-system-misc; for others qemu-user, and "
            "gcc-aarch64-linux-gnu or gcc-powerpc64-linux-gnu.",
        )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        project.write(folder)
        return (_on_board if processor.board else _here)(project, Path(folder), options or ("-O3",))


def _here(project: Project, folder: Path, options: Sequence[str]) -> Trial:
    """Run a test as a program of this machine, or of an emulator of programs for another one."""
    processor = project.processor
    compiler, emulated = processor.compiler or "cc", bool(processor.emulator)
    objects = _objects(project, folder, compiler, options, [])
    _call([compiler, *options, *(["-static"] if emulated else []), "-o", "test", *objects, "-lm"], folder)
    command = [*([processor.emulator] if emulated else []), "./test"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS)
    return Trial(done.returncode == 0, done.stdout + done.stderr)


def _on_board(project: Project, folder: Path, options: Sequence[str]) -> Trial:
    processor = project.processor
    objects = _objects(project, folder, processor.compiler, options, ["-DTEST_SETUP"])
    is_arm = processor.emulator == "qemu-system-arm"
    board = (_link_for_arm if is_arm else _link_for_riscv)(processor, folder, objects)
    command = [
        processor.emulator, "-M", processor.board, *board, "-nographic", "-monitor", "none", "-serial", "none",
        "-semihosting-config", "enable=on,target=native", "-icount", "shift=0", "-kernel", "test.elf",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS)
    output = done.stdout + done.stderr  # it depends on the C library where the test prints
    ticks, stack = (re.search(rf"^{what} (\d+)$", output, re.MULTILINE) for what in ("ticks", "stack"))
    if ticks is None or stack is None:
        raise ExecutionError("the emulated board did not finish", where=processor.board, found=output[-500:])
    count = round(int(ticks[1]) * processor.clock)
    return Trial(done.returncode == 0, output, count, int(stack[1]), _code_bytes(project, folder))


def _link_for_riscv(processor: Processor, folder: Path, objects: Sequence[str]) -> list[str]:
    """Link a test for the board, and return how qemu is told of it."""
    (folder / "startup.c").write_text(template("startup_riscv.c"))
    own = [processor.compiler, *_flags(processor)]
    _call([*own, "-march=rv32imc_zicsr", "-O2", "-c", "startup.c"], folder)
    memory = [f"-Wl,--defsym={each}" for each in _RISCV_MEMORY]
    link = [*own, "--oslib=semihost", "--crt0=semihost", "-Wl,--gc-sections", *memory]
    _call([*link, "startup.o", *objects, "-lm", "-o", "test.elf"], folder)
    return ["-bios", "none", "-m", "32M"]


def _link_for_arm(processor: Processor, folder: Path, objects: Sequence[str]) -> list[str]:
    """Link a test for the board."""
    flash, ram, constants = _MEMORY.get(processor.board, _USUAL)
    (folder / "startup.c").write_text(template("startup_arm.c"))
    memory = {"flash": flash, "ram": ram, "constants": constants}
    (folder / "board.ld").write_text(filled("board.ld", memory))
    flags = processor.flags.split()
    _call([processor.compiler, *flags, "-O2", "-c", "startup.c"], folder)
    link = [
        "--specs=rdimon.specs",
        "-nostartfiles",
        "-T",
        "board.ld",
        "-Wl,--gc-sections",
        "-Wl,--no-warn-rwx-segments",
    ]
    _call([processor.compiler, *flags, *link, "startup.o", *objects, "-lm", "-o", "test.elf"], folder)
    return []


def _flags(processor: Processor) -> list[str]:
    """Return what the compiler at hand has to be told, with the C library that it shall take."""
    library = ["--specs=picolibc.specs"] if processor.emulator == "qemu-system-riscv32" else []
    return [*processor.flags.split(), *library]


def _objects(project: Project, folder: Path, compiler: str, options: Sequence[str], test: list[str]) -> list[str]:
    """Compile every file of the project; return the names of the objects."""
    flags = _flags(project.processor)
    include = ["-I.", "-Iruntime/src", "-Iruntime/include"]
    objects = []
    for source in (*project.sources, "test.c"):
        target = Path(source).stem + ".o"
        extra = test if source == "test.c" else []
        _call(
            [
                compiler, *options, *_FLAGS, *_WARNINGS, "-Werror", *flags, *include, *extra,
                *project.flags.get(source, ()), "-c", source, "-o", target,
            ],
            folder,
        )  # fmt: skip
        objects.append(target)
    return objects


def _code_bytes(project: Project, folder: Path) -> int:
    """Return the bytes of code and tables that the linker kept of the model."""
    compiler, run = project.processor.compiler, f"{project.name}_run"
    kept = ["-nostartfiles", "-nostdlib", "-r", "-Wl,--gc-sections", f"-Wl,-u,{run}", f"-Wl,-e,{run}"]
    _call([compiler, *project.processor.flags.split(), *kept, f"{project.name}.o", "-o", "code.o"], folder)
    prefix = compiler.removesuffix("gcc")
    sizes = _call([f"{prefix}size", "code.o"], folder).splitlines()[-1].split()
    return int(sizes[0]) + int(sizes[1])


def _call(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        raise ExecutionError(
            "the build failed", where=" ".join(command)[:200], found=f"exit code {done.returncode}", snippet=done.stderr
        )
    return done.stdout
