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
        objects = []
        self.compiler.compile = lambda *args, **kwargs: objects.extend(compile_in_parallel(*args, **kwargs)) or objects
        try:
            super().build_extension(ext)
        finally:
            self.compiler.compile = compile_all
        if ext.name == "tinycomp.runtime._native" and os.name == "posix":
            self._build_library(ext, [path for path in objects if "runtime_c" in Path(path).parts])

    def _build_library(self, ext, objects):
        """Link the runtime's objects once more: a library for programs without Python, with its headers beside it."""
        package = Path(self.get_ext_fullpath(ext.name)).parent.parent
        library = package / "lib" / "libtinycomp.so"
        self.mkpath(str(library.parent / "pkgconfig"))
        self.mkpath(str(package / "include"))
        soname = [] if sys.platform == "darwin" else [f"-Wl,-soname,{library.name}"]
        arguments = [*ext.extra_link_args, *soname]
        self.compiler.link_shared_object(objects, str(library), libraries=["m"], extra_postargs=arguments)
        for name in ("tinycomp_run.h", "tinycomp_error.h"):
            self.copy_file(str(RUNTIME / "include" / name), str(package / "include" / name))
        text = (RUNTIME / "tinycomp.pc.in").read_text(encoding="utf-8")
        text = text.replace("@VERSION@", self.distribution.get_version())
        (library.parent / "pkgconfig" / "tinycomp.pc").write_text(text, encoding="utf-8")

    def copy_extensions_to_source(self):
        """Copy what was built into the source tree, for an editable installation."""
        super().copy_extensions_to_source()
        built, package = Path(self.build_lib, "tinycomp"), RUNTIME.parent / "tinycomp"
        for folder in ("lib", "include"):
            if (built / folder).is_dir():
                self.copy_tree(str(built / folder), str(package / folder))


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
