"""The cache of compiled modules: what is found again, what is not, and what happens when its folder is damaged."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinycomp
from tinycomp.driver import module_cache
from tinycomp.driver.options import CompileOptions, options_by_name
from tinycomp.errors import MemoryLimitError, ModelError, OptionError, TinycompWarning, TuningError, WriteError
from tinycomp.passes.fold_constants import FoldConstants
from tinycomp.runtime import cache as runtime_cache
from tinycomp.runtime.cache import LIMIT, LIMIT_VARIABLE, ModuleCache, size_limit
from tinycomp.runtime.device.interface import FaultPolicy
from tinycomp.target import Policy, Target, lookup
from tinycomp.targets.c.tuning.log import TuningLog
from tinycomp.targets.device_sim import SimulatedDevice
from tinycomp.version import Stamp, own_stamp

X = np.arange(8, dtype=np.float32).reshape(2, 4) - 3


def model_of(factor: float = 1.0, *, external: str | None = None) -> onnx.ModelProto:
    """A product and a Relu, with a weight of 64 bytes, perhaps in a file."""
    weight = numpy_helper.from_array(factor * np.eye(4, dtype=np.float32)[::-1], "w")
    if external is not None:
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=external)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], "product"), helper.make_node("Relu", ["p"], ["y"], "relu")]
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "small", tensors[:1], tensors[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache of modules, which is not there yet, on a disk that is fast enough for tests."""
    monkeypatch.setenv("TINYCOMP_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    return tmp_path / "kept" / "modules"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a model."""
    onnx.save(model_of(), tmp_path / "small.onnx")
    return tmp_path / "small.onnx"


def compiled(model: Any, **options: Any) -> tinycomp.Module:
    """Compile with the user's cache and one thread, unless ``options`` say something else."""
    return tinycomp.compile(model, **{"threads": 1, "cache": True, **options})


def was_found(module: tinycomp.Module) -> bool:
    """Tell whether a module comes from the cache, after a look at its results."""
    np.testing.assert_array_equal(module(X), np.maximum(X[:, ::-1], 0))
    return module.cache_file is not None


# Found again ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["path", "text", "bytes", "proto"])
def test_the_second_time_it_is_loaded(form: str, path: Path, folder: Path) -> None:
    given = {"path": path, "text": str(path), "bytes": path.read_bytes(), "proto": onnx.load(path)}[form]
    assert not was_found(compiled(given))
    module = compiled(given)
    assert was_found(module)
    assert module.cache_file is not None
    assert module.cache_file.parent == folder
    assert not was_found(tinycomp.compile(given, threads=1))


def test_a_folder_of_ones_own(path: Path, tmp_path: Path, folder: Path) -> None:
    assert not was_found(compiled(path, cache=tmp_path / "own"))
    assert was_found(compiled(path, cache=str(tmp_path / "own")))
    assert not folder.exists()
    assert not was_found(compiled(path))


def test_the_same_contents_elsewhere(path: Path, tmp_path: Path, folder: Path) -> None:
    compiled(path)
    (tmp_path / "other").mkdir()
    shutil.copy(path, tmp_path / "other" / "moved.onnx")
    assert was_found(compiled(tmp_path / "other" / "moved.onnx"))


def test_what_is_found_computes_the_same_bits(path: Path, folder: Path) -> None:
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    first, second = compiled(path), compiled(path)
    np.testing.assert_array_equal(first(x), second(x))
    assert first.report().to_dict() == second.report().to_dict()
    assert first.to_bytes() == second.to_bytes()
    assert (first.inputs, first.outputs, first.bounds, first.threads) == (
        second.inputs, second.outputs, second.bounds, second.threads,
    )  # fmt: skip


def test_other_contents_are_another_model(path: Path, folder: Path) -> None:
    compiled(path)
    onnx.save(model_of(2.0), path)
    module = compiled(path)
    assert module.cache_file is None
    np.testing.assert_array_equal(module(X), 2 * np.maximum(X[:, ::-1], 0))


# What decides --------------------------------------------------------------------------------------------------------

CHANGES: list[dict[str, Any]] = [
    {"target": "host"},
    {"target": ("npu_sim", "c")},
    {"target": "c:winograd=never"},
    {"shapes": {"x": (2, 4)}},
    {"shapes": {"x": ((1, 8), 4)}},
    {"threads": 2},
    {"threads": None},
    {"strict": True},
    {"passes": "simplify,fold-constants"},
    {"memory_limit": 1 << 20},
    {"policy": Policy(min_nodes=2)},
    {"policy": {"c": Policy(exclude=("Softmax",))}},
    {"place": {"relu": "host"}},
    {"place": {"relu": "c"}},
    {"options": {"c": {"memory": "least"}}},
    {"options": {"c": {"requantize": "fixed_point"}}},
    {"options": {"c": {"precision": "bf16"}}},
    {"options": {"c": {"tuning": TuningLog()}}},
    {"specialize": True},
    {"optimize": False},
    {"precision": "f16"},
    {"precision": "f32"},
    {"faults": FaultPolicy(retries=1)},
    {"target": "npu_sim", "devices": {}},
]
"""Arguments of which each decides what is made, or may."""


def test_every_option_that_decides_is_in_the_key(path: Path) -> None:
    deciding = {name for name, about in options_by_name().items() if about.in_key} | {"target", "options"}
    assert deciding == {name for change in CHANGES for name in change}
    keys = {}
    for change in ({}, *CHANGES):
        given = CompileOptions.read({"threads": 1, **change})
        keys[str(change)] = module_cache._Wanted.of(path, given).key
        assert keys[str(change)] == module_cache._Wanted.of(path, given).key
    assert len(set(keys.values())) == len(CHANGES) + 1


@pytest.mark.parametrize("change", CHANGES[::5], ids=str)
def test_what_is_asked_for_otherwise_is_found_as_that(change: dict[str, Any], path: Path, folder: Path) -> None:
    compiled(path)
    assert not was_found(compiled(path, **change))
    assert len(ModuleCache().entries()) == 2
    assert was_found(compiled(path, **change))
    assert was_found(compiled(path))


def test_the_time_that_compiling_may_take_decides_nothing(path: Path, folder: Path) -> None:
    compiled(path)
    assert was_found(compiled(path, timeout=60.0))


def test_the_contents_of_a_tuning_log_decide(path: Path, tmp_path: Path, folder: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("")
    options = {"c": {"tuning": str(log)}}
    assert not was_found(compiled(path, options=options))
    assert was_found(compiled(path, options=options))
    log.write_text("\n\n")
    assert not was_found(compiled(path, options=options))
    log.unlink()
    with pytest.raises(TuningError, match="there is no such file; expected a log"):
        compiled(path, options=options)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("own_stamp", lambda: Stamp("another", 0.0)),
        ("FORMAT", 0),
        ("_package", lambda name: "another"),
        ("cpu_features", lambda: ("another",)),
        ("cache_bytes", lambda level: 7),
        ("default_threads", lambda: 77),
    ],
)
def test_code_and_machine_decide(
    name: str, value: object, path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(path, threads=None)
    monkeypatch.setattr(module_cache, name, value)
    assert not was_found(compiled(path, threads=None))


def test_the_instruction_set_decides(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(path)
    monkeypatch.setenv("TINYCOMP_ISA", "scalar")
    assert not was_found(compiled(path))


def test_code_that_may_not_be_what_runs_is_not_trusted(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(path)
    monkeypatch.setattr(module_cache, "own_stamp", lambda: Stamp(own_stamp().digest, time.time()))
    with pytest.warns(TinycompWarning, match="files have changed since this process began") as warned:
        assert not was_found(compiled(path))
    assert warned[0].filename == __file__


# What has no name ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"dump": "folder"}, "dump cannot be kept: the graph is written"),
        ({"verify": True}, "verify cannot be kept: what is verified"),
        ({"passes": [FoldConstants()]}, "passes cannot be kept: passes are no text"),
        ({"place": {(lambda node: True): "host"}}, "place cannot be kept: it has no value"),
        ({"target": Target("mine")}, "target cannot be kept: it is not what its name stands for"),
        ({"target": [lookup.find("c").with_options(winograd=False)]}, "target cannot be kept: it is not what"),
        ({"target": "tosa"}, "target cannot be kept: it has no version"),
        ({"devices": [SimulatedDevice("d")]}, "devices cannot be kept: it has no value"),
        ({"options": {"c": {"tuning": object()}}}, "options, c, tuning cannot be kept: it has no value"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_what_cannot_be_named_is_an_error(options: dict[str, Any], what: str, path: Path, folder: Path) -> None:
    with pytest.raises(OptionError, match=f"a compilation with this {what}"):
        compiled(path, **options)
    assert not folder.exists()


def test_a_graph_cannot_be_named(path: Path, folder: Path) -> None:
    with pytest.raises(OptionError, match="this model cannot be kept: it is no file, bytes or ModelProto; found Graph"):
        compiled(tinycomp.from_onnx(path))


@pytest.mark.parametrize("cache", ["", 1, 0, b"folder", []])
def test_what_is_no_cache(cache: object, path: Path) -> None:
    with pytest.raises(OptionError, match=r"cache: (the option does not take this value|not a cache)"):
        compiled(path, cache=cache)


@pytest.mark.parametrize("cache", [None, False])
def test_no_cache(cache: bool | None, path: Path, folder: Path) -> None:
    assert not was_found(compiled(path, cache=cache, target=Target("mine")))
    assert not folder.exists()


def test_a_target_of_a_package_has_to_have_a_version(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_installed", lambda: {"own": f"{__name__}:OWN"})
    with pytest.raises(OptionError, match="it has no version"):
        compiled(path, target="own")
    monkeypatch.setattr(OWN, "version", "1")
    assert not was_found(compiled(path, target="own"))
    assert was_found(compiled(path, target="own"))
    assert was_found(compiled(path, target=OWN))
    monkeypatch.setattr(OWN, "version", "2")
    assert not was_found(compiled(path, target="own"))
    monkeypatch.setattr(module_cache, "stamp_of", lambda place: Stamp("another", 0.0))
    assert not was_found(compiled(path, target="own"))


OWN = Target("own", static_shapes=True)
OWN.accept("Relu")
OWN.codegen(lambda region: lambda x: np.maximum(x, 0))


# External data -------------------------------------------------------------------------------------------------------


def weights(factor: float) -> bytes:
    return (factor * np.eye(4, dtype=np.float32)[::-1]).tobytes()


def test_each_set_of_external_weights_has_an_entry(tmp_path: Path, folder: Path) -> None:
    path, data = tmp_path / "small.onnx", tmp_path / "w.bin"
    onnx.save(model_of(external="w.bin"), path)
    for factor in (1, 2, 3):
        data.write_bytes(weights(factor))
        module = compiled(path)
        assert module.cache_file is None
        np.testing.assert_array_equal(module(X), factor * np.maximum(X[:, ::-1], 0))
    for factor in (3, 1, 2):
        data.write_bytes(weights(factor))
        module = compiled(path)
        assert module.cache_file is not None
        np.testing.assert_array_equal(module(X), factor * np.maximum(X[:, ::-1], 0))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda data: data.unlink(), "cannot be opened"),
        (lambda data: os.link(data, data.with_name("second")), "is a hard link"),
        (lambda data: data.symlink_to(data.rename(data.with_name("moved"))), "a symbolic link"),
    ],
)
def test_external_data_that_compiling_refuses(
    spoil: Callable[[Path], object], message: str, tmp_path: Path, folder: Path
) -> None:
    path, data = tmp_path / "small.onnx", tmp_path / "w.bin"
    onnx.save(model_of(external="w.bin"), path)
    data.write_bytes(weights(1))
    compiled(path)
    spoil(data)
    with pytest.raises(ModelError, match=message):
        compiled(path)


def test_a_model_that_changes_while_it_is_compiled_is_not_kept(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dependencies = module_cache._Wanted.dependencies

    def replaced(*arguments: Any) -> Any:
        onnx.save(model_of(2.0), path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)
        return dependencies(*arguments)

    monkeypatch.setattr(module_cache._Wanted, "dependencies", replaced)
    assert not was_found(compiled(path))
    assert ModuleCache().entries() == []


@pytest.mark.parametrize("threads", [1, 3])
def test_every_piece_of_a_file_counts(threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_cache, "_PIECE", 32)
    path, contents = tmp_path / "file", bytes(range(100))
    path.write_bytes(contents)
    digest = module_cache._read(path, threads).digest
    pieces = [hashlib.sha256(contents[start : start + 32]).digest() for start in range(0, 100, 32)]
    assert digest == hashlib.sha256(b"".join(pieces)).hexdigest()
    others = [contents[:place] + b"?" + contents[place + 1 :] for place in range(0, 100, 32)]
    for other in (*others, contents[:64], contents[64:], b"".join(pieces), b""):
        path.write_bytes(other)
        assert module_cache._read(path, threads).digest != digest


def test_a_model_that_is_written_to_while_it_is_hashed(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    digest = module_cache._digest

    def changing(data: Any, threads: int) -> str:
        with path.open("ab") as file:
            file.write(b"\0")
        path.write_bytes(path.read_bytes()[:-1])
        return digest(data, threads)

    monkeypatch.setattr(module_cache, "_digest", changing)
    with caplog.at_level(logging.INFO, "tinycomp.cache"):
        assert not was_found(compiled(path))
    assert "written to while it was read" in caplog.text
    assert ModuleCache().entries() == []


def test_a_model_that_is_not_there(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ModelError, match="there is no such file"):
        compiled(tmp_path / "none.onnx")


# Damage --------------------------------------------------------------------------------------------------------------


def edit(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def described(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    (path,) = folder.glob("*.json")
    about = json.loads(path.read_text())
    change(about)
    path.write_text(json.dumps(about))


def data_of(folder: Path) -> Path:
    (path,) = folder.glob("*.tcm")
    return path


def flip(data: bytes) -> bytes:
    """Change a bit of the weights, which lie in the middle of the archive."""
    at = data.index(np.float32(1).tobytes() + bytes(4))
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def exchange(folder: Path) -> None:
    """Put another whole module in the place of the one that is there."""
    other = tinycomp.compile(model_of(5.0), threads=1)
    data_of(folder).write_bytes(other.to_bytes())


def rename(folder: Path) -> None:
    """Give another model's entry the key of the one that is there."""
    (mine,) = folder.glob("*.json")
    compiled(model_of(5.0))
    (other,) = set(folder.glob("*.json")) - {mine}
    other.replace(mine)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut off": lambda folder: edit(data_of(folder), lambda data: data[: len(data) // 2]),
    "empty": lambda folder: edit(data_of(folder), lambda data: b""),
    "a bit": lambda folder: edit(data_of(folder), flip),
    "longer": lambda folder: edit(data_of(folder), lambda data: data + b"more"),
    "no archive": lambda folder: edit(data_of(folder), lambda data: bytes(len(data))),
    "another module": exchange,
    "another entry": rename,
    "no file": lambda folder: data_of(folder).unlink(),
    "no description": lambda folder: [path.unlink() for path in folder.glob("*.json")],
    "no JSON": lambda folder: [edit(path, lambda data: data[:-2]) for path in folder.glob("*.json")],
    "another format": lambda folder: described(folder, lambda about: about.update(format=99)),
    "a path": lambda folder: described(folder, lambda about: about.update(file="../" + about["file"])),
    "no dict": lambda folder: described(folder, lambda about: about.update(depends_on=[1])),
    "others may write": lambda folder: data_of(folder).chmod(0o622),
    "a link": lambda folder: data_of(folder).symlink_to(data_of(folder).rename(folder.parent / "moved.tcm")),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_makes_it_compile_again_and_is_mended_by_that(kind: str, path: Path, folder: Path) -> None:
    compiled(path)
    DAMAGE[kind](folder)
    assert not was_found(compiled(path))
    assert was_found(compiled(path))


def test_a_file_of_another_version_is_compiled_again(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The version is in the key; but should it come to that all the same, the file says it, too."""
    compiled(path)
    monkeypatch.setattr("tinycomp.runtime.archive.FORMAT", 99)
    with caplog.at_level(logging.INFO, "tinycomp.cache"):
        assert not was_found(compiled(path))
    assert "is not used: " in caplog.text
    assert "another format version" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_entry_of_someone_else(path: Path, folder: Path) -> None:
    compiled(path)
    os.chown(data_of(folder), 12345, -1)
    assert not was_found(compiled(path))


def test_a_folder_that_others_may_write_to(path: Path, folder: Path) -> None:
    compiled(path)
    folder.chmod(0o777)
    with pytest.warns(TinycompWarning, match="^a compiled module is not kept: others may write to"):
        assert not was_found(compiled(path))


def test_a_folder_that_cannot_be_made(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(TinycompWarning, match="^a compiled module is not kept: "):
        assert not was_found(compiled(path, cache=tmp_path / "file" / "inside"))


def test_a_full_disk(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise WriteError("the file cannot be written: no space left on device")

    monkeypatch.setattr(runtime_cache, "write_file", full)
    with pytest.warns(TinycompWarning, match="^a compiled module is not kept: .*no space left"):
        assert not was_found(compiled(path))


def test_who_was_killed_while_writing(path: Path, folder: Path) -> None:
    """The file is there and its description is not, and beside it the beginning of another."""
    compiled(path)
    next(folder.glob("*.json")).unlink()
    beginning = folder / ".tinycomp-0123456789abcdef.tmp"
    beginning.write_bytes(b"PK")
    os.utime(beginning, (0, 0))
    assert not was_found(compiled(path))
    assert was_found(compiled(path))
    assert not beginning.exists()


def test_a_module_that_runs_outlives_its_file(path: Path, folder: Path) -> None:
    compiled(path)
    module = compiled(path)
    ModuleCache().prune()
    assert list(folder.iterdir()) == []
    assert was_found(module)


# Size ----------------------------------------------------------------------------------------------------------------


def test_what_was_used_longest_ago_goes_first(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = [model_of(factor).SerializeToString() for factor in (1.0, 2.0, 3.0)]
    for age, model in ((20, models[0]), (10, models[1])):
        compiled(model)
        newest = max(folder.glob("*.json"), key=lambda file: file.stat().st_mtime)
        os.utime(newest, (time.time() - age,) * 2)
    compiled(models[0])  # which is used again
    sizes = [entry.bytes for entry in ModuleCache().entries()]
    monkeypatch.setenv(LIMIT_VARIABLE, str(sum(sizes) + 100))
    compiled(models[2])
    assert len(ModuleCache().entries()) == 2
    assert [compiled(model).cache_file is not None for model in (models[0], models[2])] == [True, True]
    assert compiled(models[1]).cache_file is None


def test_a_module_that_is_larger_than_the_limit(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "100")
    with pytest.warns(TinycompWarning, match=f"it takes .* bytes, and all may take 100; {LIMIT_VARIABLE}"):
        assert not was_found(compiled(path))


def test_the_limit(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert size_limit() == LIMIT
    monkeypatch.setenv(LIMIT_VARIABLE, "10 GB")
    with pytest.raises(OptionError, match="not a number of bytes"):
        compiled(path)


# What a saved module does not hold -----------------------------------------------------------------------------------


def test_the_budget_of_runs_is_set_again(path: Path, folder: Path) -> None:
    shapes, limit = {"x": ((1, 100_000), 4)}, 1 << 16
    for found in (False, True):
        module = compiled(path, shapes=shapes, memory_limit=limit, target="host")
        assert (module.cache_file is not None) == found
        with pytest.raises(MemoryLimitError):
            module(np.zeros((50_000, 4), np.float32))


def test_targets_have_all_of_their_options_again(path: Path, tmp_path: Path, folder: Path) -> None:
    """Also those that saved modules do not remember: the plans for new sizes follow the log."""
    (tmp_path / "log.jsonl").write_text("")
    options = {"c": {"tuning": str(tmp_path / "log.jsonl")}}
    for _ in range(2):
        assert compiled(path, options=options, specialize=True)(X).shape == (2, 4)
    (tmp_path / "log.jsonl").write_text("")
    assert was_found(compiled(path, options=options, specialize=True))


def test_a_module_that_cannot_be_packed(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(module: tinycomp.Module) -> bytes:
        raise ModelError("the file has changed")

    monkeypatch.setattr(tinycomp.Module, "to_bytes", refuse)
    with pytest.warns(TinycompWarning, match="^a compiled module is not kept: the file has changed") as warned:
        assert not was_found(compiled(path))
    assert warned[0].filename == __file__


# Processes -----------------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
import tinycomp
module = tinycomp.compile(sys.argv[1], threads=1, cache=sys.argv[2])
print(module.cache_file is not None, *(name in sys.modules for name in ("onnx", "tinycomp.ir", "tinycomp.ops")))
"""


@pytest.mark.long
def test_processes_share_it(path: Path, tmp_path: Path) -> None:
    """Two compile at once; the third finds what they have made, and needs neither the compiler nor onnx."""

    def begin() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROGRAM, str(path), str(tmp_path / "own")]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    first, second = begin(), begin()
    assert {first.communicate()[0], second.communicate()[0]} <= {"False False True True\n", "True False False False\n"}
    third = begin()
    assert third.communicate()[0] == "True False False False\n"
    assert len(ModuleCache(tmp_path / "own").entries()) == 1


def test_options_that_are_nested_without_end_are_refused(path: Path, folder: Path) -> None:
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(OptionError, match="this devices cannot be kept: objects lie in objects, too deep"):
        tinycomp.compile(path, cache=folder, devices=deep)  # type: ignore[arg-type]


def test_a_limit_of_many_digits_is_a_limit(path: Path, folder: Path) -> None:
    for most in (10**5000, 10**5000, 10**5000 + 1):
        tinycomp.compile(path, cache=folder, memory_limit=most)
    assert len(ModuleCache(folder).entries()) == 2
    with pytest.raises(OptionError, match="timeout: not a limit; expected seconds"):
        tinycomp.compile(path, cache=folder, memory_limit=10**5000, timeout=-1)
