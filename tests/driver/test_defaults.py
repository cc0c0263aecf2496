"""Inputs that are also initialisers: constants of a module, until somebody gives other values."""

from __future__ import annotations

import pickle

import numpy as np
import onnx
import onnx.parser
import pytest

import tinycomp
from tinycomp.errors import FeedError
from tinycomp.export_c import to_c
from tinycomp.export_c.trial import missing_tools, run_trial

TEXT = """<ir_version: 8, opset_import: ["": 18]>
g (float[n,3,6,6] x, float[4,3,3,3] k, int64[s] to) => (float[a,b] y)
{ c = Conv<pads=[1,1,1,1]>(x, k) r = Relu(c) y = Reshape(r, to) }"""
RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 3, 6, 6)).astype(np.float32)
K, OTHER = (RNG.standard_normal((4, 3, 3, 3)).astype(np.float32) for _ in range(2))
TO = np.array([-1, 36])


def model(order: tuple[int, ...] = (0, 1, 2)) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(TEXT)
    inputs = [proto.graph.input[i] for i in order]
    copies = [type(value).FromString(value.SerializeToString()) for value in inputs]
    del proto.graph.input[:]
    proto.graph.input.extend(copies)
    proto.graph.initializer.extend([onnx.numpy_helper.from_array(K, "k"), onnx.numpy_helper.from_array(TO, "to")])
    return proto


def expected(k: np.ndarray = K, to: np.ndarray = TO) -> np.ndarray:
    text = TEXT.replace("float[4,3,3,3] k, int64[s] to", "float[4,3,3,3] k, int64[2] to")
    return tinycomp.compile(onnx.parser.parse_model(text), "host")(X, k, to)


TARGETS = ["c", "host", "npu_sim"]


@pytest.fixture(scope="module", params=[(t, s) for t in TARGETS for s in ("made", "loaded", "file")], ids="-".join)
def module(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tinycomp.Module:
    target, how = request.param
    made = tinycomp.compile(model(), target)
    if how == "file":
        made.save(path := tmp_path_factory.mktemp("defaults") / "module.tcm")
        return tinycomp.load(path)
    return made if how == "made" else tinycomp.load(made.to_bytes())


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_defaults_are_constants_of_the_plan(module: tinycomp.Module) -> None:
    assert [spec.name for spec in module.plan.inputs] == ["x"]
    assert [spec.name for spec in module.inputs] == ["x", "k", "to"]
    assert [spec.shape for spec in module.outputs] == [("4*n", 36)]
    np.testing.assert_array_equal(module.defaults["to"], TO)
    close(module(X), expected())
    close(module.run({"x": X})["y"], expected())
    close(module.bind(X)(), expected())


def test_other_values_may_be_given(module: tinycomp.Module) -> None:
    to = np.array([72, -1])
    close(module(X, OTHER), expected(OTHER))
    close(module(X, to=to), expected(K, to))
    close(module(X, OTHER, to), expected(OTHER, to))
    close(module.run({"to": to, "x": X})["y"], expected(K, to))
    close(module.run_async({"x": X, "k": OTHER}).result()["y"], expected(OTHER))
    close(module.bind({"x": X, "k": OTHER})(), expected(OTHER))
    assert module.profile({"x": X, "k": OTHER}, runs=1).by_position()
    close(module(X), expected())
    close(module(X, module.defaults["k"]), expected())


def test_errors_are_those_of_the_model(module: tinycomp.Module) -> None:
    with pytest.raises(FeedError, match='input "x": input missing'):
        module(k=OTHER)
    with pytest.raises(FeedError, match=r'the model has no input "kernel"; expected one of x, k, to'):
        module(X, kernel=OTHER)
    with pytest.raises(FeedError, match='input "k": given by position and by name'):
        module(X, OTHER, k=OTHER)
    with pytest.raises(FeedError, match='input "k": wrong shape'):
        module(X, OTHER[:2])


def test_inputs_keep_their_order() -> None:
    module = tinycomp.compile(model((1, 0, 2)))
    assert [spec.name for spec in module.inputs] == ["k", "x", "to"]
    close(module(OTHER, X), expected(OTHER))
    close(module(x=X), expected())
    with pytest.raises(FeedError, match='input "x": input missing'):
        module(X[:, :, :3, :3])


def test_a_module_made_of_a_module_keeps_both() -> None:
    module = pickle.loads(pickle.dumps(tinycomp.load(tinycomp.compile(model()).to_bytes())))
    close(module(X), expected())
    close(module(X, OTHER), expected(OTHER))


def test_the_general_module_is_made_once_and_only_if_it_is_needed() -> None:
    module = tinycomp.compile(model())
    module(X)
    assert module._made is None
    module(X, OTHER)
    general = module.general
    module(X, K)
    assert module.general is general


def test_a_project_in_c_has_the_defaults_as_constants() -> None:
    project = to_c(tinycomp.compile(model(), "c", shapes={"x": (2, 3, 6, 6)}, threads=1))
    if missing := missing_tools(project.processor):
        pytest.skip(f"{', '.join(missing)} is not installed")
    trial = run_trial(project, "-Og")
    assert trial.passed, trial.output
