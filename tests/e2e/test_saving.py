"""Saved modules: what comes back is the same, what is damaged is refused, what is native needs no compiler."""

from __future__ import annotations

import io
import json
import pickle
import random
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from onnx import helper

import tinycomp
from tests.targets.c.harness import make_model
from tinycomp.data import digits, digits_model
from tinycomp.errors import ArtifactError, TargetError, TinycompError
from tinycomp.runtime.archive import FORMAT, Archive

IMAGES = digits()[0][:3]
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def packed(module) -> bytes:
    return module.__reduce__()[1][0]


@pytest.fixture(scope="module")
def native():
    """All on C, with fixed sizes."""
    return tinycomp.compile(digits_model(), shapes={"image": (3, 1, 8, 8)})


@pytest.fixture(scope="module")
def mixed():
    """One node on C, one on the host, a constant on either side."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Mod", ["p", "m"], ["q"], name="mod", fmod=1),
        helper.make_node("Concat", ["q", "p"], ["y"], name="concat", axis=0),
    ]
    weights = {"w": np.random.default_rng(0).standard_normal((4, 300)).astype(np.float32), "m": np.float32([0.7])}
    return tinycomp.compile(make_model(nodes, {"x": X}, weights, ["y"]))


@pytest.fixture(scope="module")
def symbolic():
    return tinycomp.compile(digits_model())


CASES = {"native": IMAGES, "mixed": X, "symbolic": IMAGES}


@pytest.mark.parametrize("name", CASES)
def test_what_comes_back_is_the_same(name, request, tmp_path):
    module, feed = request.getfixturevalue(name), CASES[name]
    module.save(tmp_path / "m.tcm")
    for loaded in (
        tinycomp.load(tmp_path / "m.tcm"),
        tinycomp.load(str(tmp_path / "m.tcm")),
        pickle.loads(pickle.dumps(module)),
    ):
        np.testing.assert_array_equal(loaded(feed), module(feed))
        assert loaded.inputs == module.inputs
        assert loaded.outputs == module.outputs
        assert str(loaded.graph) == str(module.graph)
        assert loaded.report().to_dict() == module.report().to_dict()
        assert packed(loaded) == packed(module)


def test_a_module_that_computes_no_elements_comes_back(tmp_path):
    node = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2])
    x = np.zeros((0, 3, 8, 8), np.float32)
    module = tinycomp.compile(make_model([node], {"x": x}, {}, ["y"]), "c")
    module.save(tmp_path / "none.tcm")
    assert tinycomp.load(tmp_path / "none.tcm").run({"x": x})["y"].shape == (0, 3, 7, 7)


@pytest.mark.parametrize("name", CASES)
def test_saving_is_deterministic(name, request):
    module = request.getfixturevalue(name)
    assert packed(module) == packed(module)


def test_symbolic_modules_still_take_every_size(symbolic):
    loaded = tinycomp.load(packed(symbolic))
    for n in (1, 5, 2):
        images = digits()[0][:n]
        np.testing.assert_array_equal(loaded(images), symbolic(images))


def test_threads_can_be_chosen_when_loading(native):
    assert tinycomp.load(packed(native), threads=1).threads == 1
    np.testing.assert_array_equal(tinycomp.load(packed(native), threads=1)(IMAGES), native(IMAGES))


NATIVE_ONLY = """
import sys
import numpy as np
import tinycomp
module = tinycomp.load(sys.argv[1])
np.save(sys.argv[2], module(np.load(sys.argv[3])))
heavy = sorted({"onnx", "networkx", "onnxruntime", "google.protobuf"} & sys.modules.keys())
assert not heavy, heavy
assert not [m for m in sys.modules if m.startswith(("tinycomp.ir", "tinycomp.ops", "tinycomp.driver.compiler"))]
"""


def test_a_native_module_loads_without_the_compiler(native, tmp_path):
    native.save(tmp_path / "m.tcm")
    np.save(tmp_path / "x.npy", IMAGES)
    files = [str(tmp_path / name) for name in ("m.tcm", "y.npy", "x.npy")]
    subprocess.run([sys.executable, "-c", NATIVE_ONLY, *files], check=True, timeout=120)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), native(IMAGES))


def test_a_target_that_is_nowhere_installed_must_be_passed():
    target = tinycomp.Target("only_here")
    target.accept("Relu")
    target.codegen(lambda region: lambda x: np.maximum(x, 0))
    module = tinycomp.compile(make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": X}, {}, ["y"]), target)
    assert module.report().regions[0].target == "only_here"
    with pytest.raises(TargetError, match='there is no target "only_here"'):
        tinycomp.load(packed(module))
    np.testing.assert_array_equal(tinycomp.load(packed(module), targets=[target])(X), np.maximum(X, 0))


# Damage --------------------------------------------------------------------------------------------------------------


def test_not_a_saved_module(tmp_path):
    for data in (b"", b"PK", b"onnx", digits_model().read_bytes(), b"PK\x05\x06" + bytes(18)):
        with pytest.raises(ArtifactError, match="this is not a saved module, or it is damaged"):
            tinycomp.load(data)
    with pytest.raises(ArtifactError, match=r"there is no such file; expected a saved module. Check the path"):
        tinycomp.load(tmp_path / "missing.tcm")
    with pytest.raises(ArtifactError, match="cannot be read: not a regular file, but a folder"):
        tinycomp.load(tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_truncated_files(name, request):
    data = packed(request.getfixturevalue(name))
    for length in [*range(0, len(data), max(1, len(data) // 40)), len(data) - 1]:
        with pytest.raises(ArtifactError):
            tinycomp.load(data[:length])


@pytest.mark.rows(1)
@pytest.mark.parametrize("name", CASES)
def test_flipped_bits(name, request):
    """A flip is found by a checksum, or lies where it changes nothing."""
    module, feed = request.getfixturevalue(name), CASES[name]
    data, wanted = packed(module), module(feed)
    rng = random.Random(0)
    places = [rng.randrange(len(data)) for _ in range(100)]
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        for info in file.infolist():  # the header of every member, and its first bytes
            places += range(info.header_offset, info.header_offset + 30 + len(info.filename) + 8, 3)
    places += range(len(data) - 60, len(data))
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1 << rng.randrange(8)
        try:
            loaded = tinycomp.load(bytes(damaged))
        except ArtifactError:
            continue
        np.testing.assert_array_equal(loaded(feed), wanted)


def rewritten(data: bytes, change, compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return the archive with its members changed by ``change``, which may edit the dictionary it gets."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    change(members)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


def with_manifest(data: bytes, change) -> bytes:
    def edit(members):
        manifest = json.loads(members["manifest.json"])
        members["manifest.json"] = json.dumps(change(manifest) or manifest).encode()

    return rewritten(data, edit)


@pytest.mark.parametrize("name", CASES)
def test_missing_unknown_and_edited_members(name, request):
    """Whoever edits a member has the checksums of the archive made right by what writes it, but not ours."""
    data = packed(request.getfixturevalue(name))
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        names = file.namelist()
    for member in names:
        with pytest.raises(ArtifactError):
            tinycomp.load(rewritten(data, lambda m, member=member: m.pop(member)))
        edited = rewritten(data, lambda m, member=member: m.update({member: m[member] + b" "}))
        found = f"; found {member}" if member != "checksums.json" else None
        if found is None:  # what JSON reads alike
            tinycomp.load(edited)
            continue
        with pytest.raises(ArtifactError, match=f"members are missing, unknown or edited; .*{found}"):
            tinycomp.load(edited)
    with pytest.raises(ArtifactError, match="members are missing, unknown or edited"):
        tinycomp.load(rewritten(data, lambda m: m.update({"../evil": b"x"})))


def test_another_format_version(native):
    with pytest.raises(ArtifactError, match=rf"has another format version; expected {FORMAT}; found 99. Compile the"):
        tinycomp.load(with_manifest(packed(native), lambda m: m.update(format=99)))


def test_members_are_never_unpacked_from_compression(native):
    """What a zip bomb needs is refused before a byte of it is unpacked."""
    bomb = rewritten(packed(native), lambda m: m.update({"graph.tir": bytes(1 << 26)}), zipfile.ZIP_DEFLATED)
    with pytest.raises(ArtifactError, match="compressed"):
        tinycomp.load(bomb)


def test_unknown_compression_methods(native):
    data = bytearray(packed(native))
    for at in [i for i in range(len(data) - 4) if data[i : i + 4] == b"PK\x01\x02"]:
        for method in (1, 8, 9, 12, 14, 93, 99):
            damaged = bytearray(data)
            struct.pack_into("<H", damaged, at + 10, method)
            with pytest.raises(ArtifactError):
                tinycomp.load(bytes(damaged))


JSON_VALUES = [None, True, -1, 0, 1, 10**12, 1e300, "", "x", [], {}, [[]], [None], {"a": 1}, "\ud800"]


def mutations(value, rng):
    """Yield an endless series of copies of a JSON value with one place replaced, removed or doubled."""
    while True:
        copy = json.loads(json.dumps(value))
        parent = copy
        while True:
            keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
            key = rng.choice(keys)
            child = parent[key]
            if isinstance(child, (dict, list)) and child and rng.random() < 0.85:
                parent = child
                continue
            break
        action = rng.random()
        if action < 0.7:
            parent[key] = rng.choice(JSON_VALUES)
        elif isinstance(parent, dict):
            del parent[key]
        elif action < 0.85:
            parent.append(child)
        else:
            parent.pop(key)
        yield copy


@pytest.mark.rows(1)
@pytest.mark.parametrize("name", CASES)
def test_a_manifest_that_lies(name, request):
    """Whoever can write the checksums can write anything: it still ends in an error of ours or in a result."""
    module, feed = request.getfixturevalue(name), CASES[name]
    archive = Archive.from_bytes(packed(module))
    manifest = {k: v for k, v in archive.manifest.items() if k not in ("sha256", "format", "arrays", "report")}
    for _, changed in zip(range(100), mutations(manifest, random.Random(1)), strict=False):
        data = Archive({**archive.manifest, **changed}, archive.texts, archive.arrays).to_bytes()
        try:
            tinycomp.load(data)(feed)
        except (TinycompError, MemoryError):
            continue


def test_a_module_remembers_the_threads_that_were_asked_for():
    module = tinycomp.compile(digits_model(), threads=1)
    assert pickle.loads(pickle.dumps(module)).threads == 1


def test_a_loaded_module_runs_what_the_passes_it_was_compiled_with_left(tmp_path):
    module = tinycomp.compile(digits_model(), passes="inline-functions,fold-constants")
    module.save(tmp_path / "m.tcm")
    loaded = tinycomp.load(tmp_path / "m.tcm")
    assert not loaded.report().regions
    np.testing.assert_array_equal(loaded(IMAGES), module(IMAGES))
    assert {step.tier for step in loaded._parts.plan.steps} == {"numpy"}
