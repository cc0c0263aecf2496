"""Builds the C runtime; everything else about the package is in pyproject.toml."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

RUNTIME = Path(__file__).resolve().parent / "runtime_c"
sys.path.insert(0, str(RUNTIME))
from build_ffi import extensions  # noqa: E402


class ParallelBuild(build_ext):
    """Compile the files of an extension side by side: each instruction set is one large file."""

    def build_extension(self, ext):
        """Build one extension."""
        compile_all = self.compiler.compile

        def compile_in_parallel(sources, *args, **kwargs):
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                objects = list(pool.map(lambda source: compile_all([source], *args, **kwargs), sources))
            return [path for paths in objects for path in paths]

        self.compiler.compile = compile_in_parallel
        try:
            super().build_extension(ext)
        finally:
            self.compiler.compile = compile_all


class WithKernels(build_py):
    """Add the C runtime's sources, of which exported projects take the kernels that they call."""

    def run(self):
        """Build the package."""
        super().run()
        if not self.editable_mode:
            for folder, pattern in (("include", "*.h"), ("src", "*.[ch]"), ("kernels", "**/*.h"), ("kernels", "*.def")):
                for path in sorted((RUNTIME / folder).glob(pattern)):
                    target = Path(self.build_lib, "tinycomp", "runtime_c", path.relative_to(RUNTIME))
                    self.mkpath(str(target.parent))
                    self.copy_file(str(path), str(target))


setup(
    cffi_modules=["runtime_c/build_ffi.py:make_ffi"],
    ext_modules=extensions(),
    cmdclass={"build_ext": ParallelBuild, "build_py": WithKernels},
)
