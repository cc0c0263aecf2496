"""Saved modules whose description says something else in one place, with checksums that are right.

Each case sets one field, drawn by its seed, to a boundary value or to the value of another field. Nothing may crash,
hang, or fail with an error that is not tinycomp's own, while loading or running. Results must have the dtypes and
shapes that the module declares, and be the same for the same arrays: else they show what nobody has written.

``python -m tests.fuzz.meaning`` runs hundreds of cases a second in forked children: descriptions are edited as they
are in memory, behind the container and its checksums.
"""

from __future__ import annotations

import argparse
import copy
import functools
import mmap
import os
import random
import signal
import struct
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import tinycomp
from tests import records
from tests.fuzz.artifact import _packed, _unpacked
from tests.fuzz.harness import Harness, WrongError, generators, limit_memory
from tests.host_only import host_only
from tests.targets.c.harness import make_model
from tinycomp.checking import random_feeds
from tinycomp.data import digits, digits_model
from tinycomp.driver.restore import restore
from tinycomp.errors import TinycompError
from tinycomp.memory.budget import limited
from tinycomp.runtime.archive import Archive
from tinycomp.runtime.artifact import load_native
from tinycomp.runtime.blob import Blob
from tinycomp.runtime.forms import check_form
from tinycomp.runtime.manifest import MODULE
from tinycomp.runtime.spec import TensorSpec

BOUNDARIES = (
    0, 1, -1, 2, 7, 127, 255, 2**31 - 1, 2**31, -(2**31), 2**48, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64, 0.5,
    float("inf"), float("nan"), None, True, "", "N", "N - 1", "1000000000000*N", "-N", "\x00", [], {}, [0], ["N"],
)  # fmt: skip
"""What fields are set to."""
OTHERS = 16
"""Weight of the values of other fields beside them."""


def _host() -> bytes:
    """Return a module of a region and a node on the host."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), host_only("p", "y")]
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


def _found() -> bytes:
    """Return a module that finds out how large its result is."""
    nodes = [helper.make_node("Greater", ["x", "zero"], ["m"]), helper.make_node("NonZero", ["m"], ["y"])]
    x = np.ones((3, 4), np.float32)
    model = make_model(nodes, {"x": x}, {"zero": np.zeros((), np.float32)}, ["y"], symbolic={"x": ("n", 4)})
    return tinycomp.compile(model).to_bytes()


def _choice() -> bytes:
    """Return a module that runs one of two bodies."""
    value = helper.make_tensor_value_info
    bodies = {
        f"{name}_branch": helper.make_graph([helper.make_node(op, ["x"], ["r"])], name, [], [value("r", 1, ("n", 4))])
        for name, op in (("then", "Exp"), ("else", "Tanh"))
    }
    nodes = [helper.make_node("If", ["c"], ["y"], **bodies)]
    feeds = {"x": np.ones((3, 4), np.float32), "c": np.array(True)}
    return tinycomp.compile(make_model(nodes, feeds, {}, ["y"], symbolic={"x": ("n", 4)})).to_bytes()


def _trees() -> bytes:
    """Return a module of two trees."""
    nodes = {
        "treeids": [0, 0, 0, 1], "nodeids": [0, 1, 2, 0], "featureids": [1, 0, 0, 0], "values": [0.5, 0.0, 0.0, 0.0],
        "modes": ["BRANCH_LEQ", "LEAF", "LEAF", "LEAF"], "truenodeids": [1, 0, 0, 0], "falsenodeids": [2, 0, 0, 0],
    }  # fmt: skip
    targets = {"treeids": [0, 0, 1], "nodeids": [1, 2, 0], "ids": [0, 1, 0], "weights": [1.0, 2.0, 3.0]}
    attributes: dict[str, Any] = {f"nodes_{key}": value for key, value in nodes.items()}
    attributes |= {f"target_{key}": value for key, value in targets.items()}
    trees = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=2, **attributes)
    x = {"x": np.ones((1, 3), np.float32)}
    return tinycomp.compile(make_model([trees], x, {}, ["y"], 17, {"x": ("n", 3)}, {"ai.onnx.ml": 3})).to_bytes()


def _int4() -> bytes:
    """Return a module of a product with weights of 4 bits."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.integers(0, 256, (8, 2, 16), np.uint8), "s": np.ones((8, 2), np.float32)}
    about = {"K": 64, "N": 8, "bits": 4, "block_size": 32, "accuracy_level": 4}
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **about)
    x = {"x": np.ones((3, 64), np.float32)}
    model = make_model([node], x, weights, ["y"], symbolic={"x": ("n", 64)}, domains={"com.microsoft": 1})
    return tinycomp.compile(model).to_bytes()


def _joined() -> bytes:
    """Return a module whose calls write parts of a buffer side by side, and read some of them."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["p"]), helper.make_node("Conv", ["p", "v"], ["q"]),
        helper.make_node("Concat", ["p", "q"], ["j"], axis=1), helper.make_node("Softmax", ["j"], ["y"], axis=1),
    ]  # fmt: skip
    x, ones = np.ones((1, 3, 5, 5), np.float32), functools.partial(np.ones, dtype=np.float32)
    weights = {"w": ones((8, 3, 1, 1)), "v": ones((8, 8, 1, 1))}
    return tinycomp.compile(make_model(nodes, {"x": x}, weights, ["y"], symbolic={"x": ("n", 3, 5, 5)})).to_bytes()


def _two() -> bytes:
    """Return a module of two regions and a node on the host between them."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]), host_only("p", "d"),
        helper.make_node("Mul", ["d", "p"], ["y"]),
    ]  # fmt: skip
    x = np.zeros((3, 4), np.float32)
    return tinycomp.compile(make_model(nodes, {"x": x}, {"w": np.ones((4, 3), np.float32)}, ["y"])).to_bytes()


def _scaler() -> tinycomp.Target:
    """Return a target whose regions are blobs."""
    target = tinycomp.Target("scaler")
    target.accept("Mul")

    @target.codegen
    def build(region: Any) -> Blob:
        (node,) = region.body.nodes
        return Blob(next(v.const for v in node.inputs if v is not None and v.const is not None).tobytes())

    @target.loader
    def read(blob: Blob) -> Callable[..., Any]:
        factor = np.frombuffer(blob.data, np.float32).reshape(4)
        return lambda x: (x * factor).astype(np.float32)

    return target


def _blob() -> bytes:
    """Return a module of a blob and a region."""
    nodes = [helper.make_node("Mul", ["x", "f"], ["p"]), helper.make_node("Exp", ["p"], ["y"])]
    model = make_model(nodes, {"x": np.ones((3, 4), np.float32)}, {"f": np.ones(4, np.float32)}, ["y"])
    return tinycomp.compile(model, [_scaler(), "c"]).to_bytes()


MODULES: dict[str, Callable[[], bytes]] = {
    "symbolic": lambda: tinycomp.compile(digits_model()).to_bytes(),
    "static": lambda: tinycomp.compile(digits_model(), shapes={"image": (1, 1, 8, 8)}).to_bytes(),
    "int8": lambda: tinycomp.compile(tinycomp.quantize(digits_model(), [digits()[0][:20]])).to_bytes(),
    "int4": _int4,
    "trees": _trees,
    "loop": _loop,
    "if": _choice,
    "found": _found,
    "joined": _joined,
    "host": _host,
    "two": _two,
    "blob": _blob,
}
"""The modules that are edited, by what is special about them."""


BOUND = 1 << 28
"""Bytes that loading and running may take."""
SECONDS = 5.0
"""What a run may take."""


@functools.lru_cache(len(MODULES))
def saved(name: str) -> bytes:
    """Return one of the modules."""
    return MODULES[name]()


@functools.lru_cache(len(MODULES))
def _opened(name: str) -> tuple[Archive, list[tuple[Any, ...]]]:
    """Return what one of the modules holds, and the paths to its fields."""
    archive = Archive.from_bytes(saved(name))
    archive.manifest["records"] = records.read(archive._read)
    return archive, fields(archive.manifest)


@functools.lru_cache(1)
def _target() -> tinycomp.Target:
    return _scaler()


def fields(manifest: Any) -> list[tuple[Any, ...]]:
    """Return the paths to all values of a description but its report, containers included."""
    found: list[tuple[Any, ...]] = []
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), {k: v for k, v in manifest.items() if k not in _LEFT})]
    for path, value in waiting:
        if path:
            found.append(path)
        if isinstance(value, (dict, list)):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [((*path, key), item) for key, item in items]
    return found


_LEFT = ("report",)


def _at(manifest: Any, path: tuple[Any, ...]) -> Any:
    return functools.reduce(lambda holder, key: holder[key], path, manifest)


def drawn(rng: random.Random) -> tuple[str, tuple[Any, ...], Any]:
    """Return which field of which module is set, and to what."""
    name = rng.choice([*MODULES])
    archive, paths = _opened(name)
    path = rng.choice(paths)
    choice = rng.randrange(len(BOUNDARIES) + OTHERS)
    value = BOUNDARIES[choice] if choice < len(BOUNDARIES) else _at(archive.manifest, rng.choice(paths))
    return name, path, copy.deepcopy(value)


def check(seed: int) -> Counter[str]:
    """Edit a module as the seed says, load it, and run it three times.

    Raises:
        WrongError: If results are not what the module declares, or differ.
    """
    name, path, value = drawn(generators("meaning", seed)[0])
    archive, _ = _opened(name)
    holder, key = _at(archive.manifest, path[:-1]), path[-1]
    before, holder[key] = holder[key], value
    try:
        return _run(name, archive)
    except WrongError as error:
        raise WrongError(f"{name}, {path} = {value!r}: {error}") from None
    finally:
        holder[key] = before


def _run(name: str, archive: Archive) -> Counter[str]:
    data = np.frombuffer(saved(name), np.uint8)
    archive._read = records.write(archive.manifest["records"])
    try:
        with limited(memory=BOUND):
            check_form(archive.manifest, MODULE, name)
            module = load_native(archive, data, 1, str, lambda *_: None, tinycomp.load)
            if module is None:
                module = restore(archive, data, [_target()], 1, tinycomp.load)
    except TinycompError:
        return Counter(refused=1)
    try:
        with np.errstate(all="ignore"), limited(memory=BOUND):
            feeds = _feeds(module.inputs)
            # With a time to end in, calls are cut otherwise; where edited operands overlap, that makes a difference.
            module.run(feeds, timeout=SECONDS)
            first = module.run(feeds)
            # Memory that others have used and given back, with what they left there.
            waste = [np.full(count, 0xA5, np.uint8) for count in (64, 256, 640, 1280, 5120)]
            del waste
            again = module.run(feeds)
    except TinycompError:
        return Counter(loaded=1)
    for spec in module.outputs:
        a, b = first[spec.name], again[spec.name]
        if not isinstance(a, np.ndarray) or a.dtype != spec.numpy_dtype or not spec.admits(a.shape):
            raise WrongError(f"{spec} is declared, and the result is {getattr(a, 'dtype', None)}{np.shape(a)}")
        if a.tobytes() != b.tobytes():
            raise WrongError(f"two runs differ: {a.reshape(-1)[:8]} and {b.reshape(-1)[:8]}")
    return Counter(run=1)


@functools.lru_cache(1024)
def _feeds_for(inputs: tuple[TensorSpec, ...]) -> dict[str, np.ndarray]:
    return random_feeds(inputs, 7)


def _feeds(inputs: Sequence[TensorSpec]) -> dict[str, np.ndarray]:
    return _feeds_for(tuple(inputs))


def save(seed: int, folder: Path, stem: str) -> None:
    """Write the file of a seed."""
    name, path, value = drawn(generators("meaning", seed)[0])
    manifest, members = _unpacked(saved(name))
    holder = _at(manifest, path[:-1])
    holder[path[-1]] = value
    (folder / f"{stem}.tcm").write_bytes(_packed(manifest, members))


HARNESS = Harness("meaning", check, save)


# Many cases in one process ------------------------------------------------------------------------------------------

_FACTS = ("refused", "loaded", "run")
_STATE = struct.Struct("<4q")
"""Which case a child is at, and how many of each kind it has seen."""


def _child(first: int, behind: int, state: mmap.mmap) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if "LD_PRELOAD" not in os.environ:  # sanitizers take addresses without end
        limit_memory(HARNESS.memory)
    counts = dict.fromkeys(_FACTS, 0)
    for seed in range(first, behind):
        _STATE.pack_into(state, 0, seed, *counts.values())
        signal.alarm(60)
        try:
            for fact, number in check(seed).items():
                counts[fact] += number
        except Exception:
            print(f"seed {seed}: {drawn(generators('meaning', seed)[0])}\n{traceback.format_exc(limit=-6)}", flush=True)
            counts["run"] += 1 << 40  # a finding
    _STATE.pack_into(state, 0, behind, *counts.values())


def sweep(first: int, behind: int) -> tuple[Counter[str], int]:
    """Run the cases of seeds in forked children, where a crash or a hang is one finding. Return facts and findings."""
    facts, findings = Counter[str](), 0
    state = mmap.mmap(-1, _STATE.size)
    while first < behind:
        _STATE.pack_into(state, 0, first, 0, 0, 0)
        child = os.fork()
        if not child:
            try:
                _child(first, behind, state)
            finally:
                sys.stdout.flush()
                os._exit(0)
        _, status = os.waitpid(child, 0)
        at, *counts = _STATE.unpack_from(state)
        findings += counts[2] >> 40
        facts.update(dict(zip(_FACTS, (*counts[:2], counts[2] & ((1 << 40) - 1)), strict=True)))
        if at < behind:
            findings += 1
            print(f"seed {at}: the process ended with {status}: {drawn(generators('meaning', at)[0])}", flush=True)
        first = at + 1
    return facts, findings


def main() -> int:
    """Run the cases of many seeds; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.meaning", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first one (default: 0)")
    parser.add_argument("--count", type=int, default=10_000, help="how many (default: 10000)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in MODULES:
        _opened(name)
    started = time.monotonic()
    facts, findings = sweep(options.seed, options.seed + options.count)
    counted = ", ".join(f"{number} {fact}" for fact, number in facts.items())
    print(f"{options.count} edits in {time.monotonic() - started:.0f} s ({counted}); {findings} findings")
    return int(findings > 0)


if __name__ == "__main__":
    sys.exit(main())
