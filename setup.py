"""Builds the C runtime; everything else about the package is in pyproject.toml."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext

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


setup(
    cffi_modules=["runtime_c/build_ffi.py:make_ffi"],
    ext_modules=extensions(),
    cmdclass={"build_ext": ParallelBuild},
)
