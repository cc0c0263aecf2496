"""Whole models as C: a folder with sources, build files, a test, and a page that says how to use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tinycomp.checking import random_feeds
from tinycomp.errors import UnsupportedError
from tinycomp.export_c import text
from tinycomp.export_c.calls import calls_of
from tinycomp.export_c.processors import Processor, processor_named
from tinycomp.export_c.sources import files_of, headers_of
from tinycomp.export_c.variants import definitions_of
from tinycomp.runtime.files import make_folder, write_files
from tinycomp.runtime.module import Module

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Project:
    """The files of an exported model.

    Attributes:
        files: Their text, by path relative to the project's folder.
        name: In front of all that it exports.
        memory_bytes: Memory of a run, for all values in between.
        weights_bytes: Packed weights and constants.
        kernels: The kernels that it calls.
        processor: What it is for.
    """

    files: Mapping[str, str]
    name: str
    processor: Processor
    memory_bytes: int
    weights_bytes: int
    kernels: tuple[str, ...]

    def write(self, folder: str | PathLike[str]) -> None:
        """Write all files into a folder, which is made if need be; files of other names in it are left alone.

        Raises:
            WriteError: If there is no space or permission.
        """
        root = Path(folder)
        for parent in sorted({(root / name).parent for name in self.files}):
            make_folder(parent)
        write_files({root / name: content.encode() for name, content in self.files.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return what was exported, without the text."""
        return {
            "name": self.name,
            "cpu": self.processor.name,
            "memory_bytes": self.memory_bytes,
            "weights_bytes": self.weights_bytes,
            "kernels": list(self.kernels),
            "files": list(self.files),
        }


def to_c(
    module: Module, cpu: str = "generic", *, name: str = "model", feeds: Sequence[Array] | None = None, seed: int = 0
) -> Project:
    """Turn a compiled module into a C project that needs neither Python nor a heap, threads or files.

    Args:
        module: Compiled for the target ``c``, with static sizes.
        cpu: What it is for: ``"generic"``, ``"host"``, ``"x86-64-v3"``, ``"armv8-a"``, ``"cortex-m4"`` and the like.
        name: In front of all that it exports; an identifier.
        feeds: Inputs of the project's test, in order; by default random ones.
        seed: Of the random ones.

    Raises:
        UnsupportedError: If a node has no form in C, or a size is known only in a run; it names the node and says why.
    """
    if not (name.isidentifier() and name.isascii() and name.islower()):
        raise UnsupportedError(
            "not a name for a project", where="name", expected="an identifier in lower case", found=name
        )
    processor = processor_named(cpu)
    calls = calls_of(module, processor)
    arrays = _random(module, seed) if feeds is None else [np.asarray(feed) for feed in feeds]
    results = module(*arrays)
    expected = [results] if isinstance(results, np.ndarray) else list(results)
    names = text.names_of(calls, name)
    headers = headers_of(calls.kernels)
    values = calls.scratch
    buffers = [
        ("values between nodes", values),
        ("what kernels need while they run", calls.arena_bytes - values),
        ("weights and constants, in flash", len(calls.weights)),
    ]
    files = {
        f"{name}.h": text.header(calls, names),
        f"{name}.c": text.source(calls, names),
        f"{name}_kernels.h": text.kernels(calls.kernels, headers, definitions_of(calls.calls), processor, names),
        f"{name}_weights.h": text.weights_header(names),
        f"{name}_weights.c": text.weights(calls, names, processor),
        "test.c": text.test(names, arrays, expected),
        "Makefile": text.makefile(names, processor),
        "CMakeLists.txt": text.cmake(names, processor),
        "README.md": text.readme(calls, names, processor, buffers),
    }
    runtime = files_of(calls.kernels, processor.vocabulary)
    files |= {f"runtime/{path}": content for path, content in runtime.items()}
    return Project(files, name, processor, calls.arena_bytes, len(calls.weights), calls.kernels)


def _random(module: Module, seed: int) -> list[Array]:
    feeds = random_feeds(module.inputs, seed)
    return [np.asarray(feeds[spec.name]) for spec in module.inputs]
