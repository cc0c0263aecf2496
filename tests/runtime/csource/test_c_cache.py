"""The cache of compiled C source: what is found again, what must not be, and what happens when the folder is bad."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinycomp
from tests.runtime.csource.c_sources import X, builds, cache, doubling, files, graph_of, loop_over, target_of, times
from tinycomp.ir.graph import Graph, Node
from tinycomp.runtime.cache import CCache
from tinycomp.runtime.csource import region
from tinycomp.runtime.csource.compiler import find_compiler
from tinycomp.runtime.csource.region import Origin, cache_key
from tinycomp.runtime.csource.source import CSource

__all__ = ["builds", "cache"]

ROOT = Path(__file__).resolve().parents[3]
SOURCE = CSource("int f;", "f", (np.float32([1, 2]),), flags=("-O1",))
ORIGIN = Origin("gen", "gen_0", "graph")


# Hits and misses -----------------------------------------------------------------------------------------------------


def test_what_was_compiled_is_found_again(cache: CCache, builds: list[str]) -> None:
    for _ in range(3):
        np.testing.assert_array_equal(tinycomp.compile(doubling(), times(), verify=True)(X), 2 * X)
    assert builds == ["gen, region gen_0"]
    (entry,) = cache.entries()
    assert (entry.target, entry.region) == ("gen", "gen_0")
    assert entry.bytes == (cache.folder / entry.file).stat().st_size
    assert [p.name for p in files(cache)] == sorted([entry.file, f"{entry.key}.json"])


def scale_in_a_constant(node: Node) -> CSource:
    """C source whose text does not show the attribute that it depends on."""
    made = loop_over(node, "x[i] < 0 ? c[0] * x[i] : x[i]")
    return CSource(made.text, made.function, [np.float32([node.attrs["alpha"]])])


MUL = "%c: float32[3] = const [{}]\n%y = Mul(%x, %c)"
LEAKY = "%y = LeakyRelu(%x) {{alpha = {}}}"
NEGATE = "%y = Neg(%x)"
TWINS: dict[str, tuple[str, Any, tuple[Graph, Graph]]] = {
    "constants": ("Mul", times, (graph_of(MUL.format("1.0, 2.0, 3.0")), graph_of(MUL.format("1.0, 2.0, 4.0")))),
    "attributes": (
        "LeakyRelu",
        lambda: target_of("LeakyRelu", scale_in_a_constant),
        (graph_of(LEAKY.format("0.5")), graph_of(LEAKY.format("0.25"))),
    ),
    "shapes": (
        "Neg",
        lambda: target_of("Neg", lambda node: loop_over(node, "-x[i]")),
        (graph_of(NEGATE, "%x: float32[2, 3]"), graph_of(NEGATE, "%x: float32[3, 2]")),
    ),
    "types": (
        "Neg",
        lambda: target_of("Neg", lambda node: loop_over(node, "-x[i]")),
        (graph_of(NEGATE, "%x: float32[2, 3]"), graph_of(NEGATE, "%x: int32[2, 3]")),
    ),
}


@pytest.mark.parametrize("differ", TWINS)
def test_twins_are_told_apart(differ: str, cache: CCache, builds: list[str]) -> None:
    _, make_target, graphs = TWINS[differ]
    for _ in range(2):
        for graph in graphs:
            module = tinycomp.compile(graph, make_target())
            (spec,) = module.inputs
            x = (np.arange(6) - 3).reshape(spec.shape).astype(spec.dtype)
            np.testing.assert_array_equal(module(x), tinycomp.compile(graph, "host")(x))
    assert len(builds) == len(cache.entries()) == 2


def replaced(**changes: Any) -> tuple[CSource, Origin]:
    source = {k: v for k, v in changes.items() if k in {f.name for f in dataclasses.fields(CSource)}}
    origin = {k: v for k, v in changes.items() if k in {f.name for f in dataclasses.fields(Origin)}}
    assert source.keys() | origin.keys() == changes.keys()
    return dataclasses.replace(SOURCE, **source), dataclasses.replace(ORIGIN, **origin)


@pytest.mark.parametrize(
    "changes",
    [
        {"text": "int  f;"},
        {"function": "g"},
        {"constants": (np.float32([1, 3]),)},
        {"constants": (np.float32([1, 2]).view(np.int32),)},
        {"constants": (np.float32([[1, 2]]),)},
        {"constants": (np.float32([1]), np.float32([2]))},
        {"constants": ()},
        {"scratch_bytes": 8},
        {"flags": ("-O2",)},
        {"flags": (), "libraries": ("-O1",)},
        {"libraries": ("m",)},
        {"library_dirs": ("/usr/lib",)},
        {"graph": "another"},
        {"target": "other"},
    ],
    ids=str,
)
def test_everything_is_part_of_the_key(changes: dict[str, Any]) -> None:
    compiler = find_compiler()
    assert cache_key(*replaced(**changes), compiler) != cache_key(SOURCE, ORIGIN, compiler)


def test_the_compiler_and_its_surroundings_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = find_compiler()
    others = [
        dataclasses.replace(compiler, version="other"),
        dataclasses.replace(compiler, stamp=(1, 1)),
        dataclasses.replace(compiler, command=("/other/cc",)),
    ]
    key = cache_key(SOURCE, ORIGIN, compiler)
    assert len({cache_key(SOURCE, ORIGIN, c) for c in [compiler, *others]}) == 4
    assert cache_key(SOURCE, ORIGIN, find_compiler()) == key
    monkeypatch.setenv("CPATH", "/elsewhere")
    assert cache_key(SOURCE, ORIGIN, compiler) != key
    monkeypatch.delenv("CPATH")
    monkeypatch.setattr(region, "installed_version", lambda: "another version")
    assert cache_key(SOURCE, ORIGIN, compiler) != key


def test_a_compiler_that_was_replaced_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mycc"
    monkeypatch.setenv("CC", str(program))
    versions = []
    for version in ("one", "two, longer"):
        program.write_text(f"#!/bin/sh\necho {version}\n")
        program.chmod(0o755)
        versions.append(find_compiler().version)
    assert versions == ["one", "two, longer"]


# Races and damage ----------------------------------------------------------------------------------------------------

RACER = """
import sys, time, warnings
warnings.simplefilter("error")
import numpy as np, tinycomp
from tests.runtime.csource.c_sources import X, doubling, times
graph = doubling()
print("ready", flush=True)
sys.stdin.readline()
for _ in range(3):
    assert (tinycomp.compile(graph, times())(X) == 2 * X).all()
"""


@pytest.mark.long
def test_processes_that_race_all_get_it_right(cache: CCache) -> None:
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", RACER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    racers = [subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, **pipes) for _ in range(3)]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        _, err = racer.communicate(timeout=120)
        assert racer.returncode == 0, err
    (entry,) = cache.entries()
    assert cache.find(entry.key) is not None
    assert not [p for p in files(cache) if p.suffix == ".tmp"]


def test_an_entry_is_never_half_another(cache: CCache) -> None:
    """Writers that make the same entry with different bytes, as two versions of a linker might."""
    cache.prepare()
    libraries = [bytes([number]) * 100_000 for number in range(4)]
    cache.store("key", libraries[0], "gen", "gen_0")
    done = threading.Event()

    def write(library: bytes) -> None:
        while not done.is_set():
            cache.store("key", library, "gen", "gen_0")

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write, library) for library in libraries]
        seen = [cache.find("key") for _ in range(300)]
        done.set()
        for writer in writers:
            writer.result()
    assert set(seen) <= set(libraries)
    assert len(set(seen)) > 1


def flip_a_byte(library: Path, description: Path) -> None:
    data = bytearray(library.read_bytes())
    data[len(data) // 2] ^= 1
    library.write_bytes(data)


def cut(library: Path, description: Path) -> None:
    library.write_bytes(library.read_bytes()[:1000])


def empty(library: Path, description: Path) -> None:
    description.write_text("")


def lead_out(library: Path, description: Path) -> None:
    description.write_text(json.dumps({**json.loads(description.read_text()), "file": f"../{library.name}"}))


def change_format(library: Path, description: Path) -> None:
    description.write_text(json.dumps({**json.loads(description.read_text()), "format": 2}))


def remove(library: Path, description: Path) -> None:
    library.unlink()


@pytest.mark.parametrize("damage", [flip_a_byte, cut, empty, lead_out, change_format, remove])
def test_damaged_entries_are_made_anew(damage: Any, cache: CCache, builds: list[str]) -> None:
    tinycomp.compile(doubling(), times())
    (entry,) = cache.entries()
    before = (cache.folder / entry.file).stat()
    damage(cache.folder / entry.file, cache.folder / f"{entry.key}.json")
    np.testing.assert_array_equal(tinycomp.compile(doubling(), times())(X), 2 * X)
    assert len(builds) == 2
    assert cache.find(entry.key) is not None
    assert before.st_size == cache.entries()[0].bytes
    tinycomp.compile(doubling(), times())
    assert len(builds) == 2


def test_a_module_outlives_its_entry(cache: CCache) -> None:
    module = tinycomp.compile(doubling(), times())
    cache.prune()
    assert files(cache) == []
    np.testing.assert_array_equal(module(X), 2 * X)
