"""The target within the compiler: beside another one, with symbolic sizes, verified, saved and loaded."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import onnx
import pytest

import tinycomp
from tests.examples.dnnl.harness import assert_close, floats, needs_dnnl
from tests.examples.dnnl.test_composites import CONSTANTS, X, conv, model, node
from tests.targets.c.harness import make_model

pytestmark = needs_dnnl


def normalised() -> onnx.ModelProto:
    """Convolutions around a normalisation, which oneDNN has, but the target does not take."""
    constants = {"w": CONSTANTS["w"], "scale": np.ones(6, "f4"), "shift": np.zeros(6, "f4"), "k": floats(4, 6, 3, 3)}
    nodes = [
        conv("x", "w", "c"),
        node("Relu", "c", "r"),
        node("InstanceNormalization", "r scale shift", "n"),
        conv("n", "k", "d"),
        node("Sigmoid", "d", "y"),
    ]
    return make_model(nodes, {"x": X}, constants, ["y"])


def test_two_targets_share_a_model() -> None:
    module = tinycomp.compile(normalised(), ["dnnl", "c"], strict=True)
    assert [r.target for r in module.report().regions] == ["dnnl", "c", "dnnl"]
    assert_close([module(X)], [tinycomp.compile(normalised(), "host")(X)])


def test_the_first_target_wins() -> None:
    module = tinycomp.compile(normalised(), ["c", "dnnl"], strict=True)
    assert {r.target for r in module.report().regions} == {"c"}


def test_what_stays_behind_is_explained() -> None:
    (row,) = tinycomp.compile(normalised(), "dnnl").report().hosts
    assert row.op == "InstanceNormalization"
    assert any("dnnl" in str(reason) for reason in row.reasons), row.reasons


def test_every_region_is_verified() -> None:
    tinycomp.compile(normalised(), "dnnl", verify=True)


def symbolic() -> onnx.ModelProto:
    nodes = [
        conv("x", "w", "c", "b"),
        node("Relu", "c", "y"),
        node("GlobalAveragePool", "y", "p"),
        node("Flatten", "p", "z"),
    ]
    constants = {name: CONSTANTS[name] for name in ("w", "b")}
    return make_model(nodes, {"x": X}, constants, ["z"], symbolic={"x": ("N", 17, "H", "W")})


@pytest.mark.parametrize("shape", [(1, 17, 9, 7), (3, 17, 16, 16)])
def test_sizes_may_be_symbolic(shape: tuple[int, ...]) -> None:
    module = tinycomp.compile(symbolic(), "dnnl", strict=True)
    x = floats(*shape)
    assert_close([module(x)], [tinycomp.compile(symbolic(), "host")(x)])


def test_a_module_is_saved_and_loaded(tmp_path: Path) -> None:
    module = tinycomp.compile(normalised(), "dnnl")
    module.save(tmp_path / "m.tcm")
    np.testing.assert_array_equal(tinycomp.load(tmp_path / "m.tcm")(X), module(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(module))(X), module(X))


def test_quantised_weights_are_folded() -> None:
    """No composite takes integers, so that the passes leave a float32 weight behind."""
    quantised = np.random.default_rng(0).integers(-9, 9, (6, 17, 3, 3)).astype(np.int8)
    constants = {"q": quantised, "s": np.float32(0.125)}
    nodes = [node("DequantizeLinear", "q s", "w"), conv("x", "w", "c"), node("Relu", "c", "y")]
    tested = make_model(nodes, {"x": X}, {k: np.asarray(v) for k, v in constants.items()}, ["y"])
    module = tinycomp.compile(tested, "dnnl", strict=True)
    assert_close([module(X)], [tinycomp.compile(tested, "host")(X)])


def test_a_chain_of_additions_takes_one_residual_each() -> None:
    feeds = {"x": X, "r": floats(2, 6, 9, 7), "s": floats(2, 6, 9, 7, seed=1)}
    nodes = [conv("x", "w", "c"), node("Add", "c r", "d"), node("Add", "d s", "e"), node("Relu", "e", "y")]
    tested = model(nodes, feeds)
    module = tinycomp.compile(tested, "dnnl", strict=True)
    assert_close(list(module.run(feeds).values()), list(tinycomp.compile(tested, "host").run(feeds).values()))
