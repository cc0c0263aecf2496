"""Writing the graph after every pass, so that it can be read, compared and replayed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from tinycomp.errors import ModelError, ParseError
from tinycomp.ir.graph import Graph
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.text.printer import print_graph
from tinycomp.memory.reading import read_regular, reading
from tinycomp.ops.typing import infer_node_types
from tinycomp.runtime.archive import Archive, read_archive
from tinycomp.runtime.files import make_folder, write_files

STORE = ".tca"
"""The ending of files that hold large constants, by content hash."""
CONSTANTS = f"constants{STORE}"
"""The store that all dumps of one pipeline share, beside them."""

_NUMBERED = re.compile(r"\d\d+-[a-z0-9-]+\.tir")


class Dump:
    """Write ``00-input.tir``, ``01-<pass>.tir``, … and one store of constants, as an observer of a pipeline.

    Args:
        folder: Where to write; made if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._constants: dict[str, np.ndarray] = {}
        self._written = -1
        make_folder(folder)

    def __call__(self, number: int, name: str, graph: Graph) -> None:
        """Write the graph after pass ``number``; the first one replaces the files of an earlier pipeline."""
        text = print_graph(graph, constants=self._constants)
        files = {self.folder / f"{number:02}-{name}.tir": text.encode()}
        if len(self._constants) != self._written:
            files[self.folder / CONSTANTS] = Archive(arrays=self._constants).to_bytes()
        write_files(files)
        self._written = len(self._constants)
        if number == 0:
            for path in self.folder.glob("*.tir"):
                if _NUMBERED.fullmatch(path.name) and path not in files:
                    path.unlink()


def write_graph(path: Path, graph: Graph) -> list[Path]:
    """Write a graph to a ``.tir`` file, and its large constants, if it has any, to a ``.tca`` file of the same name.

    Returns:
        The files written.

    Raises:
        WriteError: If there is no space or permission; files that were there stay as they were.
    """
    constants: dict[str, np.ndarray] = {}
    files = {path: print_graph(graph, constants=constants).encode()}
    if constants:
        files[path.with_suffix(STORE)] = Archive(arrays=constants).to_bytes()
    write_files(files)
    return list(files)


def read_dump(path: Path) -> Graph:
    """Return the graph in a ``.tir`` file; large constants come from its own store, else from the folder's.

    Raises:
        ModelError: If the file cannot be read, or is not text.
        ParseError: If the text is not valid, or a constant is in no store.
        ArtifactError: If the store is damaged.
    """
    own, shared = path.with_suffix(STORE), path.parent / CONSTANTS
    store = own if own.exists() else shared
    constants = read_archive(store).arrays if store.exists() else {}
    with reading(ModelError, path, "tinycomp IR as UTF-8 text", problem="not a text file"):
        text = read_regular(path).decode()
    try:
        return parse_graph(text, constants=constants, infer=infer_node_types)
    except ParseError as error:
        parts = {name: getattr(error, name) for name in ("expected", "found", "hint", "snippet")}
        raise ParseError(error.message, where=f"{path}, {error.where}", **parts) from error
