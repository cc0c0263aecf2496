"""Builds the C runtime; everything else about the package is in pyproject.toml."""

import os
import re
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.modified import newer_group

zlib.Z_DEFAULT_COMPRESSION = zlib.Z_BEST_COMPRESSION  # of wheels, whose writer takes no level
RUNTIME = Path(__file__).resolve().parent / "runtime_c"
sys.path.insert(0, str(RUNTIME))
import build_ffi  # noqa: E402


class BuildRuntime(build_ext):
    """Build the extensions and, once for them and for programs without Python, the library with the C runtime."""

    def run(self):
        """Build everything; the names that debuggers read stay in this source tree."""
        self._strip = [] if self.inplace or build_ffi.sanitizers() else [build_ffi.strip_flag()]
        super().run()

    def build_extensions(self):
        """Compile the files of each side by side: an instruction set is one large file."""
        compile_some = self.compiler.compile

        def compile_in_parallel(sources, *args, extra_postargs=(), **kwargs):
            def compile_one(source):
                flags = [*extra_postargs, *build_ffi.file_flags(source)]
                return compile_some([source], *args, extra_postargs=flags, **kwargs)

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                return [path for paths in pool.map(compile_one, sources) for path in paths]

        self.compiler.compile = compile_in_parallel
        flags, kept = " ".join([*build_ffi.compile_flags(), *build_ffi.isas()]), Path(self.build_temp, "flags")
        if not kept.exists() or kept.read_text(encoding="utf-8") != flags:
            self.force = True  # what is there was built for other instruction sets, or with other checks
        super().build_extensions()
        self.mkpath(self.build_temp)
        kept.write_text(flags, encoding="utf-8")

    def get_libraries(self, ext):
        """Name what an extension is linked with: on Windows Python's stable interface is a library of its own."""
        if build_ffi.system() == "win" and ext.py_limited_api:
            return [*ext.libraries, "python3"]
        return super().get_libraries(ext)

    def build_extension(self, ext):
        """Build one extension, and the library first if it needs that."""
        if ext.name == "tinycomp.runtime._native" and build_ffi.LIBRARY:
            ext.extra_objects = [self._build_library(ext)]
        ext.extra_link_args = [*ext.extra_link_args, *self._strip]
        super().build_extension(ext)

    def _build_library(self, ext):
        """Build the library, with its headers beside it, and return its path."""
        package = Path(self.get_ext_fullpath(ext.name)).parent.parent
        library = package / "lib" / build_ffi.LIBRARY
        if self.force or newer_group(ext.depends, str(library), "newer"):
            sources = [build_ffi.relative(path) for path in build_ffi.sources()]
            flags = {"include_dirs": ext.include_dirs, "extra_postargs": ext.extra_compile_args}
            objects = self.compiler.compile(sources, output_dir=self.build_temp, depends=ext.depends, **flags)
            self.mkpath(str(library.parent / "pkgconfig"))
            command = self.compiler.linker_so
            # What is linked with must be a library on macOS, and not a bundle as extensions are.
            self.compiler.linker_so = ["-dynamiclib" if word == "-bundle" else word for word in command]
            arguments = [*build_ffi.library_flags(), *self._strip]
            self.compiler.link_shared_object(objects, str(library), libraries=["m"], extra_postargs=arguments)
            self.compiler.linker_so = command
        self.mkpath(str(package / "include"))
        for name in ("tinycomp_run.h", "tinycomp_error.h"):
            self.copy_file(str(RUNTIME / "include" / name), str(package / "include" / name))
        text = (RUNTIME / "tinycomp.pc.in").read_text(encoding="utf-8")
        text = text.replace("@VERSION@", self.distribution.get_version())
        (library.parent / "pkgconfig" / "tinycomp.pc").write_text(text, encoding="utf-8")
        return str(library)

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
            for folder, pattern in (("include", "*.h"), ("src", "*.h"), ("kernels", "**/*.h"), ("kernels", "*.def")):
                for path in sorted((RUNTIME / folder).glob(pattern)):
                    self._add(path)
            # Of the other files those that projects include.
            texts = [path.read_text(encoding="utf-8") for path in (RUNTIME / "src").glob("*.h")]
            for name in sorted({"rows.c"}.union(*(re.findall(r'#include "(\w+\.c)"', text) for text in texts))):
                self._add(RUNTIME / "src" / name)

    def _add(self, path):
        """Copy a file to where it lies in the package."""
        target = Path(self.build_lib, "tinycomp", "runtime_c", path.relative_to(RUNTIME))
        self.mkpath(str(target.parent))
        self.copy_file(str(path), str(target))


setup(
    cffi_modules=["runtime_c/build_ffi.py:make_ffi"],
    ext_modules=build_ffi.extensions(),
    cmdclass={"build_ext": BuildRuntime, "build_py": WithKernels},
    options={
        "bdist_wheel": {"py_limited_api": build_ffi.limited_api() or False},
        # The runtime is written for GCC and Clang.
        "build_ext": {"compiler": "mingw32"} if build_ffi.system() == "win" else {},
    },
)
