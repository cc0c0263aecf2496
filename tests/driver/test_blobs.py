"""Blobs: saved and loaded without the code generator, refused or rebuilt by version, kept in the cache, damaged."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinycomp
from tinycomp.errors import ArtifactError, TargetError, TinycompWarning
from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types
from tinycomp.runtime.archive import Archive
from tinycomp.runtime.blob import Blob
from tinycomp.runtime.cache import BlobCache

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@dataclass(frozen=True)
class ScalerOptions:
    """How the device scales.

    Attributes:
        bias: What is added to every element.
        log: Where to write; nothing that can be saved.
    """

    bias: float = 0.0
    log: Any = None


def model(*factors: float, shape: str = "3, 4") -> Graph:
    """Return a model that multiplies by each factor, with a host node behind each."""
    lines, last = [f'graph @m opset {{"" = 17}} (%x: float32[{shape}]) -> (%y) {{'], "%x"
    for number, factor in enumerate(factors):
        lines.append(f"%f{number}: float32[4] = const [{', '.join([str(factor)] * 4)}]")
        lines.append(f"%p{number} = Mul({last}, %f{number})")
        result = "%y" if number == len(factors) - 1 else f"%n{number}"
        lines.append(f"{result} = Neg(%p{number})")
        last = result
    return parse_graph("\n".join([*lines, "}"]), infer=infer_node_types)


def runs(factor: np.ndarray, bias: float) -> Callable[..., np.ndarray]:
    return lambda x: (x * factor + np.float32(bias)).astype(np.float32)


class Device:
    """A target that multiplies, and what was asked of it."""

    def __init__(self, *, arrays: bool = False, load: bool = False, **about: Any) -> None:
        self.built: list[str] = []
        self.loaded: list[Blob] = []
        self.target = tinycomp.Target("scaler", options=ScalerOptions, **about)
        self.target.accept("Mul")

        @self.target.codegen
        def build(region: Node, options: ScalerOptions) -> Blob:
            self.built.append(region.op)
            (node,) = region.body.nodes
            factor = next(v.const for v in node.inputs if v is not None and v.const is not None)
            own = (lambda: runs(factor, options.bias)) if load else None
            if arrays:
                return Blob(b"by array", load=own, arrays={"factor": factor})
            return Blob(factor.tobytes(), load=own)

        @self.target.loader
        def read(blob: Blob, options: ScalerOptions) -> Callable[..., np.ndarray]:
            self.loaded.append(blob)
            assert blob.target == "scaler"
            assert blob.options == {"bias": options.bias} | ({} if options.log else {"log": None})
            factor = blob.arrays["factor"] if blob.arrays else np.frombuffer(blob.data, np.float32)
            return runs(factor, options.bias)


def packed(module: tinycomp.Module) -> bytes:
    return module.__reduce__()[1][0]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BlobCache:
    """An empty cache that is in use."""
    monkeypatch.setenv("TINYCOMP_CACHE", str(tmp_path / "kept"))
    return BlobCache()


# Saving and loading --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrays", [False, True])
def test_loading_asks_no_code_generator(arrays: bool, tmp_path: Path) -> None:
    device, other = Device(arrays=arrays), Device(arrays=arrays)
    module = tinycomp.compile(model(2.0, 3.0), device.target, options={"scaler": {"bias": 1.0}})
    module.save(tmp_path / "m.tcm")
    again = tinycomp.load(tmp_path / "m.tcm", targets=[other.target])
    np.testing.assert_array_equal(again(X), module(X))
    assert other.built == []
    assert [b.options["bias"] for b in other.loaded] == [1.0, 1.0]
    assert packed(again) == packed(module)


def test_a_target_that_only_loads_is_enough() -> None:
    device = Device()
    module = tinycomp.compile(model(2.0), device.target)
    reader = tinycomp.Target("scaler", options=ScalerOptions)
    reader.loader(lambda blob: runs(np.frombuffer(blob.data, np.float32), 0.0))
    np.testing.assert_array_equal(tinycomp.load(packed(module), targets=[reader])(X), module(X))


def test_what_has_just_been_made_runs_by_its_own_function() -> None:
    device = Device(load=True)
    module = tinycomp.compile(model(2.0), device.target)
    np.testing.assert_array_equal(module(X), -2 * X)
    assert device.loaded == []
    np.testing.assert_array_equal(tinycomp.load(packed(module), targets=[device.target])(X), module(X))
    assert len(device.loaded) == 1


def test_weights_that_several_blobs_name_are_saved_once() -> None:
    weight = np.arange(1 << 14, dtype=np.float32)
    target = tinycomp.Target("scaler")
    target.accept("Mul")
    target.codegen(lambda region: Blob(region.op.encode(), arrays={"table": weight.copy()}))
    target.loader(lambda blob: lambda x: x * blob.arrays["table"][2] + int(blob.data[-1:]))
    module = tinycomp.compile(model(1.0, 1.0, 1.0), target)
    assert len(packed(module)) < 2 * weight.nbytes
    loaded = tinycomp.load(packed(module), targets=[target])
    np.testing.assert_array_equal(loaded(X), module(X))


def test_sets_of_sizes_that_came_are_saved() -> None:
    device = Device(static_shapes=True)
    module = tinycomp.compile(model(2.0, shape="N, 4"), device.target)
    np.testing.assert_array_equal(module(X), -2 * X)
    module(X[:1])
    assert len(device.built) == 2
    other = Device(static_shapes=True)
    loaded = tinycomp.load(packed(module), targets=[other.target])
    for rows in (3, 1, 2):
        np.testing.assert_array_equal(loaded(X[:rows]), -2 * X[:rows])
    assert len(other.loaded) == 3
    assert other.built == ["scaler_0"]  # for two rows


def test_without_the_target_its_name_is_told() -> None:
    module = tinycomp.compile(model(2.0), Device().target)
    with pytest.raises(TargetError, match=r'there is no target "scaler"; expected one of c, ethos_u, npu_sim, tosa'):
        tinycomp.load(packed(module))
    with pytest.raises(TargetError, match='the region scaler_0 needs the target "scaler"'):
        tinycomp.load(packed(module), trusted=True)


# Versions ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "answer", "built"),
    [("2", "use", 0), ("2", "rebuild", 1), ("1", None, 0), ("2", None, 1), (None, None, 0)],
)
def test_the_target_decides_about_versions(
    version: str | None, answer: str | None, built: int, cache: BlobCache
) -> None:
    module = tinycomp.compile(model(2.0), Device(version="1").target)
    cache.prune()
    device = Device(version=version)
    if answer is not None:
        device.target.compatibility(lambda found: answer)
    np.testing.assert_array_equal(tinycomp.load(packed(module), targets=[device.target])(X), module(X))
    assert len(device.built) == built
    assert [blob.version for blob in device.loaded] == ["2" if built else "1"]


def test_a_version_may_be_refused() -> None:
    module = tinycomp.compile(model(2.0), Device(version="1").target)
    device = Device(version="9")
    device.target.compatibility(lambda found: "refuse" if found < "5" else "use")
    message = (
        r"scaler, region scaler_0: the target refuses the blob in the saved module; expected a version that it can"
        r" load, such as 9; found version 1\. Compile the model again, or install"
    )
    with pytest.raises(ArtifactError, match=message):
        tinycomp.load(packed(module), targets=[device.target])
    assert device.loaded == device.built == []


def test_an_answer_about_versions_is_one_of_three() -> None:
    target = Device().target
    target.compatibility(lambda found: "perhaps")
    with pytest.raises(TargetError, match=r"version 3: the compatibility function gives no answer; expected use"):
        target.compatible("3")
    target.compatibility(lambda found: found.nothing)
    with pytest.raises(TargetError, match=r"the compatibility function failed: AttributeError"):
        target.compatible("3")


def test_without_a_loader_blobs_are_made_anew() -> None:
    module = tinycomp.compile(model(2.0), Device(load=True).target)
    device = Device(load=True)
    device.target._loader = None
    np.testing.assert_array_equal(tinycomp.load(packed(module), targets=[device.target])(X), module(X))
    assert device.built == ["scaler_0"]


# The cache -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrays", [False, True])
def test_nothing_is_compiled_twice(arrays: bool, cache: BlobCache) -> None:
    for number in range(3):
        device = Device(arrays=arrays, version="1")
        module = tinycomp.compile(model(2.0, 3.0), device.target, verify=True)
        np.testing.assert_array_equal(module(X), 6 * X)
        assert device.built == ([] if number else ["scaler_0", "scaler_1"])
    assert [(e.target, e.region) for e in sorted(cache.entries(), key=lambda e: e.region)] == [
        ("scaler", "scaler_0"),
        ("scaler", "scaler_1"),
    ]


def test_constants_of_the_region_are_not_kept_with_its_blob(cache: BlobCache) -> None:
    graph = Graph("m", opsets={"": 17})
    weight = np.arange(1 << 14, dtype=np.float32)
    x = graph.add_input("x", parse_graph("graph @m (%x: float32[16384]) -> (%x) {\n}").inputs[0].type)
    graph.set_outputs([graph.add("Mul", [x, graph.add_const(weight)]).output], ["y"])
    for _ in range(2):
        device = Device(arrays=True, version="1")
        module = tinycomp.compile(graph, device.target)
        np.testing.assert_array_equal(module(weight), weight * weight)
    assert device.built == []
    (entry,) = cache.entries()
    assert entry.bytes < weight.nbytes / 4


def changed_option(device: Device) -> tuple[Graph, Any]:
    return model(2.0), device.target.with_options(bias=0.5)


def changed_constant(device: Device) -> tuple[Graph, Any]:
    return model(2.5), device.target


def changed_shape(device: Device) -> tuple[Graph, Any]:
    return model(2.0, shape="5, 4"), device.target


@pytest.mark.parametrize("change", [changed_option, changed_constant, changed_shape])
def test_twins_are_told_apart(change: Callable[[Device], tuple[Graph, Any]], cache: BlobCache) -> None:
    tinycomp.compile(model(2.0), Device(version="1").target)
    device = Device(version="1")
    graph, target = change(device)
    tinycomp.compile(graph, target)
    assert device.built == ["scaler_0"]
    assert len(cache.entries()) == 2


def test_another_version_is_made_anew() -> None:
    tinycomp.compile(model(2.0), Device(version="1").target)
    device = Device(version="2")
    tinycomp.compile(model(2.0), device.target)
    assert device.built == ["scaler_0"]


@pytest.mark.parametrize("about", [{}, {"version": "1"}])
def test_what_cannot_be_told_apart_is_not_kept(about: dict[str, Any], cache: BlobCache) -> None:
    """Without a version, or with an option that is no number or text."""
    for _ in range(2):
        device = Device(**about)
        target = device.target.with_options(log=["list"]) if about else device.target
        tinycomp.compile(model(2.0), target)
        assert device.built == ["scaler_0"]
    assert cache.entries() == []


def test_a_damaged_entry_is_made_anew(cache: BlobCache) -> None:
    tinycomp.compile(model(2.0), Device(version="1").target)
    (entry,) = cache.entries()
    (cache.folder / entry.file).write_bytes(b"nothing")
    device = Device(version="1")
    np.testing.assert_array_equal(tinycomp.compile(model(2.0), device.target)(X), -2 * X)
    assert device.built == ["scaler_0"]
    assert cache.find(entry.key) is not None


def test_an_entry_that_is_no_blob_is_made_anew(cache: BlobCache) -> None:
    tinycomp.compile(model(2.0), Device(version="1").target)
    (entry,) = cache.entries()
    for other in (b"nothing", Archive({"data": "x"}).to_bytes()):
        cache.store(entry.key, other, "scaler", "scaler_0")
        device = Device(version="1")
        tinycomp.compile(model(2.0), device.target)
        assert device.built == ["scaler_0"]


def test_a_folder_that_others_may_write_to_is_left_alone(cache: BlobCache) -> None:
    cache.prepare()
    cache.folder.chmod(0o777)
    with pytest.warns(TinycompWarning, match="a blob is not kept: others may write to"):
        module = tinycomp.compile(model(2.0), Device(version="1").target)
    np.testing.assert_array_equal(module(X), -2 * X)
    assert [*cache.folder.iterdir()] == []


# Damage --------------------------------------------------------------------------------------------------------------


def altered(module: tinycomp.Module, change: Callable[[dict[str, Any]], object]) -> bytes:
    archive = Archive.from_bytes(packed(module))
    change(archive.manifest["programs"][0]["blob"])
    return archive.to_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda blob: blob.update(data="missing"), 'the array "missing" is missing'),
        (lambda blob: blob.pop("version"),
            r"programs\[0\].blob.version: the description is damaged; expected a text; found nothing"),
        (lambda blob: blob.update(version=3), r"blob.version: the description is damaged; expected a text; found 3"),
        (lambda blob: blob.update(arrays=3),
            r"programs\[0\].blob.arrays: the description is damaged; expected an object; found 3"),
        (lambda blob: blob.update(target="other"),
            "region scaler_0: the blob is of another target than its region; expected a blob of scaler; found one of"),
    ],
)  # fmt: skip
def test_damaged_descriptions(change: Callable[[dict[str, Any]], object], message: str) -> None:
    module = tinycomp.compile(model(2.0), Device().target)
    with pytest.raises(ArtifactError, match=message):
        tinycomp.load(altered(module, change), targets=[Device().target])


def test_flipped_bytes_are_found_by_the_checksum() -> None:
    data = bytearray(packed(tinycomp.compile(model(2.0), Device().target)))
    at = data.index(np.float32([2.0] * 4).tobytes())
    data[at] ^= 1
    with pytest.raises(ArtifactError, match=r"is not a saved module, or it is damaged|checksum"):
        tinycomp.load(bytes(data), targets=[Device().target])


def fails(blob: Blob) -> Any:
    raise ValueError("no magic number")


def refuses(blob: Blob) -> Any:
    raise TargetError("the driver is too old", where="/dev/scaler", hint="Update it.")


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (fails, "^scaler, region scaler_0: the blob does not load: ValueError: no magic number$"),
        (refuses, r"^scaler, region scaler_0, /dev/scaler: the driver is too old\. Update it\.$"),
        (lambda blob: 3, "^scaler, region scaler_0: a loaded blob cannot be called; expected .*; found int$"),
    ],
)
def test_blobs_that_do_not_load(loader: Callable[[Blob], Any], message: str) -> None:
    module = tinycomp.compile(model(2.0), Device().target)
    device = Device()
    device.target.loader(loader)
    with pytest.raises(TargetError, match=message):
        tinycomp.load(packed(module), targets=[device.target])


def test_functions_of_blobs_that_fail() -> None:
    target = tinycomp.Target("scaler")
    target.accept("Mul")
    target.codegen(lambda region: Blob(b"", load=lambda: {}["handle"]))
    with pytest.raises(TargetError, match=r"^scaler, region scaler_0: the blob does not load: KeyError: 'handle'$"):
        tinycomp.compile(model(2.0), target)
    target.codegen(lambda region: Blob(b""))
    with pytest.raises(TargetError, match=r"^scaler, region scaler_0: the target cannot load blobs\. Add a @"):
        tinycomp.compile(model(2.0), target)


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"data": "text"}, "Blob: the data are not bytes; found str"),
        ({"data": b"", "version": 1}, "Blob: the version is not a text; found 1"),
        ({"data": b"", "load": 1}, "Blob: load cannot be called; found 1"),
        ({"data": b"", "arrays": [1]}, "Blob: not arrays; expected numpy arrays by name"),
        ({"data": b"", "arrays": {"x": 1}}, "Blob: not arrays; expected numpy arrays by name"),
    ],
)
def test_parts_of_the_wrong_kind(about: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        Blob(**about)


def test_results_are_checked() -> None:
    device = Device()
    device.target.loader(lambda blob: lambda x: x.astype(np.float64))
    with pytest.raises(TargetError, match=r"region scaler_0: the region\'s code returned a wrong array for"):
        tinycomp.compile(model(2.0), device.target)(X)


def test_a_blob_as_text() -> None:
    blob = Blob(b"1234", version="2", arrays={"w": X})
    assert dataclasses.replace(blob, target="npu").to_text() == "blob for npu of version 2, 4 bytes\n  w: float32[3, 4]"
    assert blob.nbytes == 52
    assert json.loads(json.dumps(dict(blob.options))) == {}
