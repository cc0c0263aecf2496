"""OpenVINO as a target: whole models in one region each, options, places, policies, blobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import tinycomp
from tests.models import light_models, shipped_models
from tinycomp.errors import OptionError
from tinycomp.ir import Graph, TensorType
from tinycomp.target import Policy

openvino = pytest.importorskip("openvino", reason="the target needs OpenVINO")
example = pytest.importorskip("examples.openvino_target")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYCOMP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The options with which OpenVINO has compiled so far."""
    calls: list[Any] = []
    build = example.build
    monkeypatch.setattr(example, "build", lambda region, options: (calls.append(options), build(region, options))[1])
    return calls


def feeds(module: tinycomp.Module, **sizes: int) -> dict[str, np.ndarray]:
    """Random inputs: small integers, which are indices or masks."""
    rng, made = np.random.default_rng(0), {}
    for spec in module.inputs:
        shape = [dim if isinstance(dim, int) else sizes[str(dim)] for dim in spec.shape or ()]
        floats = spec.dtype.startswith("float")
        made[spec.name] = (rng.standard_normal(shape) if floats else rng.integers(0, 2, shape)).astype(spec.dtype)
    return made


def check(module: tinycomp.Module, path: Path, tolerance: float = 1e-4, **sizes: int) -> None:
    """Compare with onnxruntime."""
    inputs = feeds(module, **sizes)
    options = onnxruntime.SessionOptions()
    # As it stands: merged kernels of quantised layers saturate on x86 without VNNI.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    for actual, expected in zip(module.run(inputs).values(), session.run(None, inputs), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=tolerance * max(np.abs(expected).max(), 1e-30))


def targets_of(module: tinycomp.Module) -> list[str]:
    return [region.target for region in module.report().regions]


def chain(*ops: str, size: int = 64) -> Graph:
    """Operators of one operand, one after another, between two products."""
    graph = Graph("chain", opsets={"": 18})
    x = graph.add_input("x", TensorType("float32", ("rows", size)))
    weight = graph.add_const(np.eye(size, dtype=np.float32), "w")
    x = graph.add("MatMul", [x, weight], sources=["first"]).output
    for op in ops:
        x = graph.add(op, [x], sources=[op]).output
    graph.set_outputs([graph.add("MatMul", [x, weight], sources=["last"]).output], ["y"])
    return graph


RIGHT = [path for path in light_models() if path.stem != "light_squeezenet"]  # its scores OpenVINO itself gets wrong


@pytest.mark.parametrize("path", [*RIGHT, *shipped_models()], ids=lambda path: path.stem)
def test_small_models_are_one_region(path: Path) -> None:
    module = tinycomp.compile(path, [example.make_target(), "c"])
    assert targets_of(module) == ["openvino"]
    check(module, path, **dict.fromkeys(("N", "batch", "n"), 2))


@pytest.mark.parametrize("lengths", [(7, 3, 7, 16)])
def test_bert_of_any_length(lengths: tuple[int, ...]) -> None:
    pytest.importorskip("torch", reason="exporting the corpus needs PyTorch")
    changing = pytest.importorskip("benchmarks.changing")
    path = changing.path("bert")
    module = tinycomp.compile(path, [example.make_target(), "c"])
    assert targets_of(module) == ["openvino"]
    names = {str(dim) for spec in module.inputs for dim in spec.shape or () if isinstance(dim, str)}
    for length in lengths:
        check(module, path, **{name: 1 if "batch" in name else length for name in names})


def test_resnet18() -> None:
    pytest.importorskip("torch", reason="exporting the corpus needs PyTorch")
    corpus = pytest.importorskip("benchmarks.corpus")
    path = corpus.path("resnet18")
    module = tinycomp.compile(path, [example.make_target(), "c"])
    assert targets_of(module) == ["openvino"]
    check(module, path)


def test_what_the_frontend_does_not_know_goes_to_the_next_target() -> None:
    module = tinycomp.compile(chain("Relu", "Mish", "Tanh"), [example.make_target(), "c"])
    assert targets_of(module) == ["openvino"]
    module = tinycomp.compile(chain("Relu", "Hardmax"), [example.make_target(), "c"], place={"Hardmax": "c"})
    assert targets_of(module) == ["openvino", "c", "openvino"]
    assert not example.reads("Det", 11, 1)
    assert example.reads("Relu", 14, 1)


def test_places_and_policies() -> None:
    targets = [example.make_target(), "c"]
    placed = tinycomp.compile(chain("Relu", "Tanh", "Sigmoid"), targets, place={"last": "c", "Tanh": "host"})
    assert targets_of(placed) == ["openvino", "openvino", "c"]
    bulky = {"openvino": Policy(min_macs=10**6)}
    assert targets_of(tinycomp.compile(chain("Relu"), targets, policy=bulky)) == ["c"]
    assert targets_of(tinycomp.compile(chain("Relu", size=1024), targets, policy=bulky)) == ["openvino"]
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    expected = 1 / (1 + np.exp(-np.tanh(np.maximum(x, 0))))
    np.testing.assert_allclose(placed(x), expected, rtol=1e-5)


def test_options(compiled: list[Any]) -> None:
    module = tinycomp.compile(chain("Relu"), example.make_target(), options={"openvino": {"threads": 1}})
    assert [options.threads for options in compiled] == [1]
    assert module(np.ones((2, 64), np.float32)).shape == (2, 64)
    with pytest.raises(OptionError, match="precision"):
        example.make_target().with_options(precision="f8")


def test_a_saved_module_is_not_compiled_again(compiled: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    graph, x = chain("Relu"), np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    module = tinycomp.compile(graph, [example.make_target(), "c"], place={"last": "c"})
    assert len(compiled) == 1
    data = module.to_bytes()
    again = tinycomp.load(data, targets=[example.make_target()])
    np.testing.assert_array_equal(again(x), module(x))
    np.testing.assert_array_equal(again(x[:2]), module(x[:2]))
    assert len(compiled) == 1
    monkeypatch.setattr(openvino, "__version__", "another")
    newer = tinycomp.load(data, targets=[example.make_target()])
    assert len(compiled) == 2
    np.testing.assert_allclose(newer(x), module(x), rtol=1e-5)


def test_what_openvino_cannot_compile_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise RuntimeError("Check failed:\nthere is no such plugin")

    monkeypatch.setattr(openvino.Core, "compile_model", refuse)
    module = tinycomp.compile(chain("Relu"), [example.make_target(), "c"])
    assert targets_of(module) == ["c"]
    assert "there is no such plugin" in str(module.report().reasons)
