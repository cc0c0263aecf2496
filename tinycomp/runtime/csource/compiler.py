"""The system's C compiler: which one it is, what tells it from others, and turning C source into a shared object."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import shutil
import subprocess
from pathlib import Path

from tinycomp.errors import TargetError
from tinycomp.records import dataclass
from tinycomp.runtime.csource.source import CSource

COMPILERS = ("cc", "gcc", "clang")
"""What is looked for when ``CC`` is not set."""
BASE_FLAGS = ("-std=c11", "-O3", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=hidden")
ENTRY = "tinycomp_region_entry"
"""The one symbol that a compiled object exports."""
TIMEOUT = 600
"""Seconds that a compilation may take."""
_SIGNATURE = "const void *const *inputs, void *const *outputs, const void *const *constants, void *scratch"
_SEARCH_PATHS = ("CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX")
"""Environment variables that change what a compiler finds."""
_MAX_MESSAGE = 4000


@dataclass(frozen=True)
class CCompiler:
    """A compiler and what it is called with.

    Attributes:
        command: The program's path and the arguments that ``CC`` gives it.
        version: What ``--version`` prints.
        stamp: Time of change in nanoseconds and size of the program.
    """

    command: tuple[str, ...]
    version: str
    stamp: tuple[int, int]

    def identity(self) -> tuple[str, ...]:
        """Return everything about the compiler and the machine that its output may depend on."""
        machine = (platform.system(), platform.machine(), _processor())
        paths = (f"{name}={os.environ.get(name, '')}" for name in _SEARCH_PATHS)
        return (*self.command, self.version, str(self.stamp), *machine, *paths)

    def build(self, source: CSource, folder: Path, where: str) -> Path:
        """Compile ``source`` inside ``folder`` and return the shared object.

        Args:
            source: What to compile.
            folder: A private folder for the intermediate files.
            where: Target and region, for messages.

        Raises:
            TargetError: If the compiler refuses the source; it shows the compiler's message.
        """
        (folder / "region.c").write_bytes(translation_unit(source, where))
        headers, binaries = ([os.path.abspath(d) for d in dirs] for dirs in (source.include_dirs, source.library_dirs))  # noqa: PTH100
        arguments = [*BASE_FLAGS, *source.flags, *(f"-I{path}" for path in headers)]
        libraries = [f for path in binaries for f in (f"-L{path}", f"-Wl,-rpath,{path}")]
        libraries += [*(f"-l{name}" for name in source.libraries), "-lm"]
        # Relative names, so that messages and objects do not depend on the folder.
        command = [*self.command, *arguments, "-o", "region.so", "region.c", *libraries]
        _run(command, where, "the C compiler refuses the generated source", folder)
        return folder / "region.so"


def find_compiler() -> CCompiler:
    """Return the compiler that ``CC`` names, or the first of :data:`COMPILERS`.

    Raises:
        TargetError: If there is none, or it does not run.
    """
    wanted = os.environ.get("CC", "").strip()
    try:
        candidates = [shlex.split(wanted)] if wanted else [[name] for name in COMPILERS]
    except ValueError as error:
        raise TargetError(
            "cannot be read as a command", where="CC", expected="a compiler and its options, quoted as for a shell",
            found=f"{wanted}: {error}",
        ) from error  # fmt: skip
    for program, *arguments in candidates:
        path = shutil.which(program)
        if path is not None:
            status = Path(path).stat()  # of the program itself, should the path be a link
            return _known(os.path.abspath(path), tuple(arguments), (status.st_mtime_ns, status.st_size))  # noqa: PTH100
    raise TargetError(
        "there is no C compiler",
        where=f'CC="{wanted}"' if wanted else "",
        expected=f"one of {', '.join(words[0] for words in candidates)} in PATH",
        hint="This target generates C source: install gcc or clang (package gcc, or build-essential; xcode-select "
        "--install on macOS), or set CC to a compiler.",
    )


@functools.lru_cache(maxsize=8)
def _known(path: str, arguments: tuple[str, ...], stamp: tuple[int, int]) -> CCompiler:
    """Ask a compiler for its version, once per program file."""
    version = _run([path, *arguments, "--version"], path, "the C compiler does not tell its version")
    return CCompiler((path, *arguments), version.strip(), stamp)


def _run(command: list[str], where: str, failure: str, folder: Path | None = None) -> str:
    """Run a command without a shell and return what it prints."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT, check=False,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise TargetError(
            f"the C compiler does not run: {error}", where=where, found=command[0], hint="Set CC to one that does."
        ) from error
    if done.returncode:
        message = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
        raise TargetError(
            failure,
            where=where,
            found=f"exit code {done.returncode} from {shlex.join(command)}",
            hint="Its message follows.",
            snippet=message[:_MAX_MESSAGE],
        )
    return done.stdout.decode("utf-8", "replace")


def translation_unit(source: CSource, where: str, name: str = ENTRY) -> bytes:
    """Return the source, and behind it the exported function, with which the compiler checks the target's signature.

    Args:
        source: The source.
        where: For messages.
        name: What the function is called.

    Raises:
        TargetError: If the text is no UTF-8.
    """
    entry = (
        f'\n#if defined(__GNUC__)\n__attribute__((visibility("default")))\n#endif\nint {name}({_SIGNATURE}) {{\n'
        f"  int (*const function)({_SIGNATURE}) = {source.function};\n"
        "  return function(inputs, outputs, constants, scratch);\n}\n"
    )
    try:
        return f'{source.text}\n#pragma GCC diagnostic error "-Wincompatible-pointer-types"{entry}'.encode()
    except UnicodeEncodeError as error:
        raise TargetError(
            "the C text cannot be written as UTF-8", where=where, found=str(error), hint="Use c_comment and c_string."
        ) from error


@functools.lru_cache(maxsize=1)
def _processor() -> str:
    """Return what tells this processor from others of its family, for flags such as ``-march=native``."""
    telling = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    except OSError:
        return platform.processor()
    return "\n".join(line for line in first.splitlines() if line.startswith(telling))
