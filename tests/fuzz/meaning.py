"""Saved modules whose description says something else in one place, with checksums that are right.

Each case sets one field, drawn by its seed, to a boundary value or to the value of another field. Nothing may crash,
hang, or fail with an error that is not tinycomp's own, while loading or running, and results must have the dtypes and
shapes that the module declares. Runs that differ on the same arrays are counted and are no findings yet: a kernel call
that writes a part of its buffer is accepted, see SECURITY.md.
"""

from __future__ import annotations

import copy
import functools
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import tinycomp
from tests.fuzz.artifact import _packed, _unpacked
from tests.fuzz.harness import Damage, WrongError
from tests.targets.c.harness import make_model
from tinycomp.checking import random_feeds
from tinycomp.data import digits, digits_model
from tinycomp.errors import TinycompError
from tinycomp.memory.budget import limited

BOUNDARIES = (
    0, 1, -1, 2, 7, 127, 255, 2**31 - 1, 2**31, -(2**31), 2**48, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64, 0.5,
    float("inf"), float("nan"), None, True, "", "N", "N - 1", "1000000000000*N", "-N", "\x00", [], {}, [0], ["N"],
)  # fmt: skip
"""What fields are set to."""
OTHERS = 16
"""Weight of the values of other fields beside them."""


def _host() -> bytes:
    """Return a module of a region and a node on the host."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Det", ["p"], ["y"])]
    x = np.zeros((3, 4), np.float32)
    return tinycomp.compile(make_model(nodes, {"x": x}, {"w": np.ones((4, 3), np.float32)}, ["y"])).to_bytes()


def _loop() -> bytes:
    """Return a module of a loop."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["go"]), helper.make_node("Add", ["carried", "x"], ["sum"])],
        "body",
        [value("i", TensorProto.INT64, ()), value("on", TensorProto.BOOL, ()), value("carried", 1, (3, 4))],
        [value("go", TensorProto.BOOL, ()), value("sum", 1, (3, 4))],
    )
    nodes = [helper.make_node("Loop", ["trips", "", "zero"], ["y"], body=body)]
    feeds = {"x": np.ones((3, 4), np.float32), "trips": np.array(5)}
    return tinycomp.compile(make_model(nodes, feeds, {"zero": np.zeros((3, 4), np.float32)}, ["y"])).to_bytes()


MODULES: dict[str, Callable[[], bytes]] = {
    "symbolic": lambda: tinycomp.compile(digits_model()).to_bytes(),
    "static": lambda: tinycomp.compile(digits_model(), shapes={"image": (1, 1, 8, 8)}).to_bytes(),
    "int8": lambda: tinycomp.compile(tinycomp.quantize(digits_model(), [digits()[0][:20]])).to_bytes(),
    "loop": _loop,
    "host": _host,
}
"""The modules that are edited, by what is special about them."""


@functools.lru_cache(len(MODULES))
def saved(name: str) -> bytes:
    """Return one of the modules."""
    return MODULES[name]()


def base(rng: random.Random) -> bytes:
    """Return one of the modules."""
    return saved(rng.choice([*MODULES]))


def fields(manifest: Any) -> list[tuple[Any, ...]]:
    """Return the paths to all values of a description but its report and its checksums, containers included."""
    found: list[tuple[Any, ...]] = []
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), {k: v for k, v in manifest.items() if k not in _LEFT})]
    for path, value in waiting:
        if path:
            found.append(path)
        if isinstance(value, (dict, list)):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [((*path, key), item) for key, item in items]
    return found


_LEFT = ("sha256", "report")


def replaced(manifest: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy of a description with another value in one place."""
    manifest = copy.deepcopy(manifest)
    holder = manifest
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return manifest


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Return a module with another value in one place of its description."""
    manifest, members = _unpacked(data)
    paths = fields(manifest)
    path = rng.choice(paths)
    choice = rng.randrange(len(BOUNDARIES) + OTHERS)
    if choice < len(BOUNDARIES):
        value = BOUNDARIES[choice]
    else:
        value = json.loads(json.dumps(functools.reduce(lambda holder, key: holder[key], rng.choice(paths), manifest)))
    return _packed(replaced(manifest, path, value), members)


def run(data: bytes, rng: random.Random) -> Counter[str]:
    """Load a module, and run it twice."""
    try:
        with limited(memory=1 << 28):
            module = tinycomp.load(data, threads=1)
    except TinycompError:
        return Counter(refused=1)
    try:
        with np.errstate(all="ignore"), limited(memory=1 << 28):
            feeds = random_feeds(module.inputs, rng.getrandbits(32))
            first, again = (module.run(feeds, timeout=5.0) for _ in range(2))
    except TinycompError:
        return Counter(loaded=1)
    for spec in module.outputs:
        a, b = first[spec.name], again[spec.name]
        if not isinstance(a, np.ndarray) or a.dtype != spec.numpy_dtype or not spec.admits(a.shape):
            raise WrongError(f"{spec} is declared, and the result is {getattr(a, 'dtype', None)}{np.shape(a)}")
        if a.tobytes() != b.tobytes():
            return Counter(differing=1)
    return Counter(run=1)


DAMAGE = Damage("meaning", ".tcm", base, mutate, run)
HARNESS = DAMAGE.harness()
