"""Damaged saved modules: whatever they hold, loading and running them ends well or with an error of tinycomp's own.

Checksums are made right again, so that what stands behind them is reached: the description, the programs for the C
runtime, the graphs as text, and the arrays.
"""

from __future__ import annotations

import functools
import io
import json
import random
import zipfile
import zlib
from collections import Counter

import numpy as np
import safetensors
import safetensors.numpy

import tinycomp
from tests import records
from tests.fuzz.harness import Damage
from tests.fuzz.models import random_model
from tests.fuzz.mutation import mutate_bytes, mutate_json, mutate_text
from tinycomp.checking import random_feeds
from tinycomp.errors import TinycompError
from tinycomp.memory.budget import limited
from tinycomp.runtime.native.module_records import MEMBER

BASES = 200
"""How many random models are saved to start from."""
_MANIFEST, _ARRAYS, _CHECKSUMS = "manifest.json", "arrays.safetensors", "checksums.json"
_RECORDS = "records"


@functools.lru_cache(BASES)
def saved(number: int) -> bytes:
    """Return a saved module of a random model."""
    module = tinycomp.compile(random_model(number).model, threads=1)
    return module._parts.pack()


def base(rng: random.Random) -> bytes:
    """Return a saved module."""
    return saved(rng.randrange(BASES))


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Return the bytes of a saved module with something wrong in it."""
    try:
        manifest, members = _unpacked(data)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError, ValueError, NotImplementedError, RuntimeError):
        return mutate_bytes(rng, data)  # nothing that could be packed again
    if rng.random() < 0.15:
        return mutate_bytes(rng, data)
    texts = [name for name in members if name.endswith(".tir") and name != "graph.tir"]
    choice = rng.random()
    if choice < 0.15 and _ARRAYS in members:
        members[_ARRAYS] = _other_arrays(rng, members[_ARRAYS])
    elif choice < 0.5 and texts:
        name = rng.choice(texts)
        members[name] = mutate_text(rng, members[name].decode(errors="replace")).encode(errors="replace")
    else:
        manifest = _other_manifest(rng, manifest)
    return _packed(manifest, members)


def _unpacked(data: bytes) -> tuple[object, dict[str, bytes]]:
    """Return the description, with the records of the programs as a part of it, and the other members."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = {info.filename: file.read(info) for info in file.infolist()}
    manifest = json.loads(members.pop(_MANIFEST))
    return manifest | {_RECORDS: records.read(members.pop(MEMBER))}, members


def _other_manifest(rng: random.Random, manifest: object) -> object:
    """Change the records or the programs most of the time, for they go deepest."""
    if not isinstance(manifest, dict):
        return mutate_json(rng, manifest)
    keys = [key for key in (_RECORDS, "programs") if manifest.get(key)]
    if keys and rng.random() < 0.8:
        key = rng.choice(keys)
        return {**manifest, key: mutate_json(rng, manifest[key])}
    return mutate_json(rng, manifest)


def _other_arrays(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.3:
        return mutate_bytes(rng, data)
    try:
        arrays = dict(safetensors.numpy.load(data))
    except safetensors.SafetensorError:
        return mutate_bytes(rng, data)
    if arrays:
        key = rng.choice(sorted(arrays))
        raw = mutate_bytes(rng, arrays[key].tobytes())
        arrays[key] = np.frombuffer(raw, np.uint8)
    return safetensors.numpy.save(arrays)


def _packed(manifest: object, members: dict[str, bytes], hidden: bool = True) -> bytes:
    """Return the file, with checksums that are right, or those from before."""
    if isinstance(manifest, dict) and _RECORDS in manifest:
        members = {MEMBER: records.write(manifest[_RECORDS]), **members}
        manifest = {key: value for key, value in manifest.items() if key != _RECORDS}
    members = {_MANIFEST: json.dumps(manifest).encode(), **members}
    if hidden:
        checksums = {name: zlib.crc32(data) for name, data in members.items() if name != _CHECKSUMS}
        members[_CHECKSUMS] = json.dumps(checksums).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        for name, data in members.items():
            file.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


def run(data: bytes, rng: random.Random) -> Counter[str]:
    """Load a saved module and run it."""
    try:
        module = tinycomp.load(data, threads=1)
    except TinycompError:
        return Counter(refused=1)
    try:
        with np.errstate(all="ignore"), limited(memory=1 << 28):
            module.run(random_feeds(module.inputs, rng.getrandbits(32)), timeout=5.0)
    except TinycompError:
        return Counter(loaded=1)
    return Counter(run=1)


DAMAGE = Damage("artifact", ".tcm", base, mutate, run)
HARNESS = DAMAGE.harness()
