"""Compiled modules that are kept from one process to the next: what they are known by, finding them, keeping them.

The key of a module is a hash of all that decides what compiling makes: the contents of the model, the arguments of
:func:`tinycomp.compile`, the processor, and the files of tinycomp, of onnx and of the package of a target. What cannot
be named in a key is an error. External data are not in the key, so that a model that is found need not be parsed: the
entry lists the files with their checksums. Where these differ, the module is under a second key, made of the first one
and the checksums: so the same graph with several sets of weights has an entry for each.

What is found is loaded as a saved module is, without the compiler or onnx.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import hashlib
import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tinycomp.arguments import is_model_proto
from tinycomp.driver.load import load_mapped
from tinycomp.driver.options import CompileOptions, options_by_name
from tinycomp.errors import ArtifactError, ModelError, OptionError, TargetError, TinycompError, TinycompWarning, shown
from tinycomp.lazy import LazyModule
from tinycomp.memory.budget import limited
from tinycomp.memory.interpreter import compiling, importing
from tinycomp.memory.mapped import map_file, mappings_of
from tinycomp.memory.system import open_regular, opened_beneath
from tinycomp.records import dataclass
from tinycomp.runtime.archive import FORMAT
from tinycomp.runtime.cache import Entry, ModuleCache, size_limit
from tinycomp.runtime.module import Module, with_parts
from tinycomp.runtime.native.processor import (
    cache_bytes,
    cpu_features,
    default_isa,
    default_threads,
    isa_shape,
    this_machine,
)
from tinycomp.version import STARTED, own_stamp, stamp_of

if TYPE_CHECKING:
    from tinycomp import frontend
    from tinycomp.driver import compiler
    from tinycomp.frontend import ModelSource
    from tinycomp.target import Target, lookup, options
else:  # a module that is found needs none of these
    compiler, frontend = LazyModule("tinycomp.driver.compiler"), LazyModule("tinycomp.frontend")
    lookup, options = LazyModule("tinycomp.target.lookup"), LazyModule("tinycomp.target.options")

_WHERE = "compile(cache=…)"
_DEFAULT: tuple[list[str], ...] = (["c"], ["host"], [])
"""Targets that are known without importing them, as long as they have no options."""
_PIECE = 1 << 24
"""Bytes that are hashed at a time, each piece by one thread."""


def compile_cached(model: Any, given: CompileOptions) -> Module:
    """Return a module from the cache, or compile it and put it there.

    Args:
        model: As for :func:`tinycomp.compile`.
        given: Its options.

    Raises:
        OptionError: If something is asked for that cannot stand in a key, or that compiling alone can give.
        TinycompError: What compiling raises.
    """
    store, _ = _store(given.cache), size_limit()
    for name, about in options_by_name().items():
        if about.uncached and getattr(given, name):
            raise _unnameable(name, about.uncached, getattr(given, name), f"Leave out cache= or {name}=.")
    if own_stamp().newest > STARTED:
        warnings.warn(
            "tinycomp's own files have changed since this process began, so the cache of modules is left alone: start"
            " the process again",
            TinycompWarning,
            stacklevel=4,
        )
        return _compiled(model, given)
    try:
        wanted = _Wanted.of(model, given)
    except OSError as error:  # of a file that compiling will read, too, and say what is wrong
        _log("the cache is left alone: %s", error)
        return _compiled(model, given)
    found = _find(store, wanted, given)
    return _make(store, wanted, model, given) if found is None else found


def _store(cache: object) -> ModuleCache:
    if cache is True:
        return ModuleCache()
    if isinstance(cache, (str, os.PathLike)) and os.fspath(cache):
        return ModuleCache(Path(os.fsdecode(cache)).absolute())
    raise OptionError(
        "not a cache", where="compile, cache", expected="True, None, or the path of a folder", found=shown(cache)
    )


def _compiled(model: Any, given: CompileOptions) -> Module:
    with importing():
        compile_uncached = compiler.compile_uncached
    return compile_uncached(model, given)


# What a module is known by --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Content:
    """What a file held when it was read: a hash, and device, inode, size and time."""

    digest: str
    state: tuple[int, ...]


@dataclass(frozen=True)
class _Wanted:
    """A module that is asked for.

    Attributes:
        key: What it is known by.
        names: The names of its targets.
        targets: Those that are not the C target with its defaults, with the options in force.
        path: The file of the model, if it has one.
        content: What that file held.
        threads: Threads that may hash files.
    """

    key: str
    names: tuple[str, ...]
    targets: tuple[Target, ...]
    path: Path | None
    content: _Content | None
    threads: int

    @classmethod
    def of(cls, model: Any, given: CompileOptions) -> _Wanted:
        """Return what is asked for.

        Raises:
            OptionError: If it cannot be named.
            OSError: If a file that belongs to it cannot be read.
        """
        names, targets = _targets(given.target, given.options)
        threads = default_threads() if given.threads is None else given.threads
        path, content, model_about = _model(model, threads)
        isa = default_isa()
        about = {
            "format": [FORMAT, 1],
            "model": model_about,
            "targets": [names, [_target_about(each) for each in targets]],
            "arguments": {name: _described(_checked(name, value), name) for name, value in given.in_key().items()},
            "threads": default_threads() if given.threads is None else None,
            "processor": [isa, list(isa_shape(isa)), list(cpu_features()), [cache_bytes(level) for level in (1, 2, 3)]],
            "machine": str(this_machine()) if targets else None,  # which tuning logs name
            "code": [own_stamp().digest, _package("onnx"), np.__version__],
        }
        text = json.dumps(about, sort_keys=True).encode("utf-8", "surrogatepass")
        return cls(hashlib.sha256(text).hexdigest(), tuple(names), targets, path, content, threads)

    def key_with(self, checksums: Mapping[str, str]) -> str:
        """Return the second key, for external data with these checksums."""
        return hashlib.sha256(json.dumps([self.key, dict(checksums)], sort_keys=True).encode()).hexdigest()

    def external(self, names: Iterable[str]) -> dict[str, str]:
        """Return the checksums of files of external data; empty if one cannot be read."""
        if self.path is None:
            return {}
        try:
            return {name: _external(self.path.parent, name, self.threads) for name in names}
        except (OSError, ValueError):
            return {}

    def dependencies(self, source: ModelSource | None) -> dict[str, str] | None:
        """Return checksums of the external data of a model that has been compiled; None if a file is not as it was."""
        if source is None or self.path is None or self.content is None:
            return {}
        try:
            if _state(self.path.stat()) != self.content.state:
                return None
            files = {} if source.external is None else source.external.files
            checksums = {name: _digest(data, self.threads) for name, data in files.items()}
            for mapping in mappings_of([data[:] for data in files.values()]):
                mapping.check()
                mapping.give_back()
        except (OSError, ModelError):
            return None
        return checksums


def _model(model: Any, threads: int) -> tuple[Path | None, _Content | None, list[str]]:
    """Return the file of a model, what it holds, and what stands for the model in a key."""
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        content = _read(path, threads)
        return path, content, ["file", content.digest]
    if isinstance(model, (bytes, bytearray, memoryview)):
        return None, None, ["bytes", hashlib.sha256(model).hexdigest()]
    if is_model_proto(model):
        try:
            data = model.SerializeToString(deterministic=True)
        except Exception as error:  # of several kinds, by the implementation of protobuf
            raise _unnameable(
                "model", f"it cannot be serialised ({error})", f"a ModelProto of {model.ByteSize()} bytes",
                "Save it as a file with external data, and give its path.",
            ) from error  # fmt: skip
        return None, None, ["proto", hashlib.sha256(data).hexdigest()]
    raise _unnameable(
        "model", "it is no file, bytes or ModelProto", type(model).__name__,
        "Give the .onnx file, or leave out cache=; tinycomp.to_onnx(graph) is a ModelProto.",
    )  # fmt: skip


def _targets(target: Any, values: Any) -> tuple[list[str], tuple[Target, ...]]:
    """Return the names of targets, and the targets themselves unless nothing of them needs to be known."""
    listed = list(target) if isinstance(target, Sequence) and not isinstance(target, str) else [target]
    if not values and listed in _DEFAULT:
        return [str(name) for name in listed], ()
    with importing():
        from tinycomp.driver.targets import resolve_targets
    for each in listed:
        if not isinstance(each, str) and not _is_found_by_name(each):
            raise _unnameable(
                "target", "it is not what its name stands for", repr(getattr(each, "name", each)),
                'Give the name of an installed target, with options as in "npu:rows=8" or options=.',
            )  # fmt: skip
    resolved = resolve_targets(target, values)
    for each in resolved:
        if each.name not in lookup.SELF_CONTAINED and each.version is None:
            raise _unnameable(
                "target", "it has no version, so nobody knows whether it would make the same again", each.name,
                "Give it one, Target(name, version=...), or leave out cache=.",
            )  # fmt: skip
    return [each.name for each in resolved], resolved


def _is_found_by_name(target: Any) -> bool:
    try:
        return lookup.find(str(getattr(target, "name", ""))) is target
    except TinycompError:
        return False


def _target_about(target: Target) -> list[Any]:
    """Return what stands for a target with its options in a key."""
    values = {}
    for name, option in options.declared(target.options).items():
        value, where = getattr(target.options, name), f"options, {target.name}, {name}"
        is_file = option.file and isinstance(value, (str, os.PathLike)) and os.fspath(value)
        values[name] = ["file", _read(Path(value)).digest] if is_file else _described(value, where)
    module = "" if target.name in lookup.BUILT_IN else lookup.module_of(target.name)
    return [target.name, target.version, values, _package(module.partition(".")[0]) if module else None]


def _checked(name: str, value: Any) -> Any:
    if name == "passes" and not (value is None or isinstance(value, str)):
        raise _unnameable(name, "passes are no text", type(value).__name__, "Write them as a text: pass1,pass2{x=1}.")
    return value


def _described(value: Any, where: str, depth: int = 0) -> Any:
    """Return a value in a form that JSON has, and that is different for all values that differ.

    Raises:
        OptionError: If there is none.
    """
    if depth > _DEEPEST:
        raise _unnameable(where, "objects lie in objects, too deep", type(value).__name__, _ANOTHER_WAY)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, np.integer)):
        return ["int", hex(value)]
    if isinstance(value, float):
        return ["float", value.hex()]
    if isinstance(value, os.PathLike):
        return ["path", os.fsdecode(value)]
    if isinstance(value, Mapping):  # in order, which decides what of a placement counts
        return ["dict", [[_described(each, where, depth + 1) for each in pair] for pair in value.items()]]
    if isinstance(value, (list, tuple)):
        return ["list", [_described(each, where, depth + 1) for each in value]]
    kind = type(value)
    if dataclasses.is_dataclass(value) and kind.__module__.partition(".")[0] == "tinycomp":
        fields = {each.name: _described(getattr(value, each.name), where) for each in dataclasses.fields(kind)}
        return [f"{kind.__module__}.{kind.__qualname__}", fields]
    raise _unnameable(where, "it has no value that could be compared in another process", repr(value), _ANOTHER_WAY)


_DEEPEST = 64
_ANOTHER_WAY = "Use names, texts and numbers, or leave out cache=."


def _unnameable(what: str, why: str, found: Any, hint: str) -> OptionError:
    return OptionError(
        f"a compilation with this {what} cannot be kept: {why}", where=_WHERE, found=str(found), hint=hint
    )


def _package(name: str) -> str:
    """Return the stamp of an installed package without importing it: of all its files for a package of targets.

    Of onnx the main file is enough, which every installation writes.
    """
    spec = importlib.util.find_spec(name)
    if spec is None:
        return ""
    places: list[str | None] = [] if name == "onnx" else [*(spec.submodule_search_locations or [])]
    return ",".join(stamp_of(Path(place)).digest for place in places or [spec.origin] if place is not None)


# Files ----------------------------------------------------------------------------------------------------------------


def _read(path: Path, threads: int = 1) -> _Content:
    """Return what a regular file holds.

    Raises:
        OSError: If it cannot be read, or somebody writes to it meanwhile.
    """
    descriptor = open_regular(path)
    try:
        return _hashed(descriptor, path, threads)
    finally:
        os.close(descriptor)


def _external(folder: Path, name: str, threads: int) -> str:
    """Return the checksum of a file of external data; it may lie only where importing looks for it.

    Raises:
        OSError: If it cannot be read, or somebody writes to it meanwhile.
    """
    with opened_beneath(folder, PurePosixPath(name).parts) as descriptor:
        if os.fstat(descriptor).st_nlink > 1:
            return ""
        return _hashed(descriptor, folder / name, threads).digest


def _hashed(descriptor: int, path: Path, threads: int) -> _Content:
    state, data = _state(os.fstat(descriptor)), map_file(descriptor, path)
    digest = _digest(data, threads)
    try:
        for mapping in mappings_of([data]):
            mapping.check()
    except ModelError as error:
        raise OSError(errno.EBUSY, "written to while it was read", os.fspath(path)) from error
    return _Content(digest, state)


def _digest(data: NDArray[np.uint8], threads: int) -> str:
    """Return a hash of bytes: of the hashes of their pieces, which several threads compute if there are many."""
    pieces = [data[start : start + _PIECE] for start in range(0, data.size, _PIECE)]
    if min(threads, len(pieces)) < 2:
        return hashlib.sha256(b"".join(map(_digest_of_piece, pieces))).hexdigest()
    from concurrent.futures import ThreadPoolExecutor  # imported here: it takes longer than to hash a small model

    with ThreadPoolExecutor(min(threads, len(pieces))) as pool:
        return hashlib.sha256(b"".join(pool.map(_digest_of_piece, pieces))).hexdigest()


def _digest_of_piece(piece: NDArray[np.uint8]) -> bytes:
    return hashlib.sha256(piece.data).digest()


def _state(info: os.stat_result) -> tuple[int, ...]:
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


# Finding and keeping --------------------------------------------------------------------------------------------------


def _find(store: ModuleCache, wanted: _Wanted, given: CompileOptions) -> Module | None:
    """Return the module in the cache, if there is one that is whole."""
    there: dict[str, str] = {}

    def is_current(entry: Entry) -> bool:
        there.update({} if there else wanted.external(entry.depends_on))
        return there == entry.depends_on

    found = store.mapped(wanted.key, is_current)
    if found is None and there:
        found = store.mapped(wanted.key_with(there), is_current)
    if found is None:
        return None
    path, data = found
    try:
        module = load_mapped(
            data, str(path), threads=given.threads, targets=wanted.targets,
            accept=functools.partial(store.names, path),
        )  # fmt: skip
    except (ArtifactError, TargetError) as error:
        _log("%s is not used: %s", path, error)
        return None
    _log("%s is loaded", path)
    return with_parts(module, memory_limit=given.memory_limit, cache_file=path)


def _make(store: ModuleCache, wanted: _Wanted, model: Any, given: CompileOptions) -> Module:
    """Compile a model, and put the module into the cache."""
    usable = store.is_usable()
    source = None
    if wanted.path is not None:
        with importing():
            read = frontend.ModelSource.of
        with limited(given.memory_limit, given.timeout), compiling():
            source = read(model, mapped=True)
    module = _compiled(model if source is None else source, given)
    if not usable:
        return module
    depends_on = wanted.dependencies(source)
    if depends_on is None:
        _log("a module is not kept: the files of the model have changed while it was compiled")
        return module
    try:
        data = module.to_bytes()
    except TinycompError as error:
        warnings.warn(f"a compiled module is not kept: {error}", TinycompWarning, stacklevel=5)
        return module
    entry = store.entry(wanted.key)
    is_first = entry is None or entry.depends_on == depends_on
    key = wanted.key if is_first else wanted.key_with(depends_on)
    store.keep(key, data, ",".join(wanted.names), _name_of(module, wanted), depends_on)
    return module


def _name_of(module: Module, wanted: _Wanted) -> str:
    """Return what to call a module where entries are listed: by its file, or its outputs."""
    return wanted.path.name if wanted.path is not None else ", ".join(spec.name for spec in module.outputs)


def _log(message: str, *arguments: Any) -> None:
    """Say something to whoever listens; a program that has not imported logging does not, and loads faster without."""
    if "logging" in sys.modules:
        sys.modules["logging"].getLogger("tinycomp.cache").info(message, *arguments)
