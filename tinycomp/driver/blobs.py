"""Blobs between code generators, the cache, saved modules and loaders.

The key of a blob in the cache is made of the region with all its constants, the target, its version and its options.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from tinycomp.errors import ArtifactError, TargetError, TinycompError
from tinycomp.ir.graph import Node
from tinycomp.ir.text.literals import content_hash, raw_bytes
from tinycomp.ir.text.printer import print_graph
from tinycomp.runtime.archive import Archive
from tinycomp.runtime.blob import Blob, Call
from tinycomp.runtime.cache import BlobCache
from tinycomp.runtime.device.interface import DeviceProgram
from tinycomp.runtime.native.program import Array
from tinycomp.target import Target
from tinycomp.target.options import declared, saved_values
from tinycomp.version import installed_version

_PLAIN = (bool, int, float, str, type(None))


def build(target: Target, region: Node) -> Any:
    """Call the code generator of a target for a region, unless the cache has its blob.

    A blob is cached only if the target has a version, and options that are numbers, texts or None.

    Args:
        target: A target with a version.
        region: The region.

    Raises:
        TargetError: If the code generator fails.
    """
    constants: dict[str, Array] = {}
    key = cache_key(target, region, constants)
    cache = BlobCache()
    usable = key is not None and cache.is_usable()
    found = _found(cache, key, target, constants) if usable and key is not None else None
    if found is not None:
        return found
    made = stamped(target.build(region), target)
    if isinstance(made, Blob) and usable and key is not None:
        cache.keep(key, _packed(made, constants), target.name, region.op)
    return made


def cache_key(target: Target, region: Node, constants: dict[str, Array]) -> str | None:
    """Return a hash of everything that the blob of a region may depend on; None if that cannot be hashed.

    ``constants`` receives the large constants by content hash.
    """
    options = {name: getattr(target.options, name) for name in declared(target.options)}
    if not all(isinstance(value, _PLAIN) for value in options.values()):
        return None
    text = print_graph(region.body, constants=constants)
    # The hashes in the text are too short to rule out that another array is made to have the same one.
    sums = [hashlib.sha256(_elements(constants[name])).hexdigest() for name in sorted(constants)]
    about = [installed_version(), target.name, target.version, options, region.op, text, sums]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def load(blob: Blob, target: Target, region: Node) -> Call | DeviceProgram:
    """Return what runs a blob: the function that it was made with, or the result of the target's loader.

    Raises:
        TargetError: If it cannot be loaded.
    """
    where = f"{target.name}, region {region.op}"
    call: Any
    if blob.load is None:
        try:
            call = target.load(blob)
        except TargetError as error:
            raise _placed(
                error, where if error.where == f"target {target.name}" else f"{where}, {error.where}"
            ) from error
    else:
        try:
            call = blob.load()
        except TinycompError:
            raise
        except Exception as error:
            raise TargetError(f"the blob does not load: {type(error).__name__}: {error}", where=where) from error
    if not callable(call) and not isinstance(call, DeviceProgram):
        raise TargetError(
            "a loaded blob cannot be called", where=where, expected="a function of the operands, or a DeviceProgram",
            found=type(call).__name__,
        )  # fmt: skip
    return cast("Call | DeviceProgram", call)


def may_use(blob: Blob, target: Target, symbol: str) -> bool:
    """Tell whether to load the blob of a saved module; otherwise the code generator makes another one.

    Raises:
        ArtifactError: If the target refuses it.
        TargetError: If the target gives no answer.
    """
    answer = target.compatible(blob.version)
    if answer == "refuse":
        raise ArtifactError(
            "the target refuses the blob in the saved module", where=f"{target.name}, region {symbol}",
            expected="a version that it can load" + (f", such as {target.version}" if target.version else ""),
            found=f"version {blob.version}" if blob.version else "no version",
            hint="Compile the model again, or install the version of the target that made the module.",
        )  # fmt: skip
    return answer == "use"


def _placed(error: TargetError, where: str) -> TargetError:
    """Return an error that names the region."""
    return TargetError(
        error.message, where=where, expected=error.expected, found=error.found, hint=error.hint, snippet=error.snippet
    )


def stamped(made: Any, target: Target) -> Any:
    """Return a blob with its target, version and options filled in, and anything else as it is."""
    if not isinstance(made, Blob):
        return made
    return dataclasses.replace(
        made, target=target.name, version=made.version or target.version or "", options=saved_values(target.options)
    )


def _found(cache: BlobCache, key: str, target: Target, constants: Mapping[str, Array]) -> Blob | None:
    """Return the blob in the cache, if there is one that is intact and compatible."""
    data = cache.find(key)
    if data is None:
        return None
    try:
        archive = Archive.from_bytes(data)
        about = archive.manifest
        arrays = {name: _array(archive, constants, *entry) for name, entry in about["named"].items()}
        figures = dict(about.get("figures", {}))
        blob = Blob(archive.array(about["data"]).tobytes(), str(about["version"]), arrays=arrays, figures=figures)
    except (ArtifactError, LookupError, TypeError):
        return None  # of another format
    return stamped(blob, target) if target.compatible(blob.version) == "use" else None


def _packed(blob: Blob, constants: Mapping[str, Array]) -> bytes:
    """Return a blob as bytes for the cache; arrays that are constants of the region are stored by name only."""
    archive = Archive()
    arrays = {}
    for name, array in blob.arrays.items():
        known = content_hash(array)
        arrays[name] = ["constant", known] if known in constants else ["array", archive.store(array)]
    archive.manifest = {
        "data": archive.store(np.frombuffer(blob.data, np.uint8)),
        "version": blob.version,
        "named": arrays,
        "figures": dict(blob.figures),
    }
    return archive.to_bytes()


def _array(archive: Archive, constants: Mapping[str, Array], kind: str, key: str) -> Array:
    return constants[key] if kind == "constant" else archive.array(key)


def _elements(array: Array) -> bytes | memoryview:
    if array.dtype.kind == "O":
        return json.dumps([str(text) for text in array.reshape(-1)]).encode()
    return raw_bytes(array)
