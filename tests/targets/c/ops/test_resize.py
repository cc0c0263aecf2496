"""Resize by scales, regions and sizes that come in at run time, on the C target and in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import tinycomp
from tests.cases.case import make_model
from tests.cases.values import floats
from tinycomp.errors import TinycompError, TinycompWarning
from tinycomp.ops.resize import NEAREST_MODES, TRANSFORM_MODES, resize
from tinycomp.runtime.module import Module

F32 = np.float32


def compiled(shape: tuple[int, ...], result: tuple[int, ...], operands: dict[str, np.ndarray], **attrs: Any) -> Module:
    """Return a Resize of such images, all of whose operands are inputs."""
    names = ["x", *(name if name in operands else "" for name in ("roi", "scales", "sizes"))]
    given = {"x": np.zeros(shape, F32), **operands}
    model = make_model([helper.make_node("Resize", names, ["y"], "node", **attrs)], given, {}, ["y"], 19)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, result))
    module = tinycomp.compile(model, "c")
    assert not module.report().hosts, str(module.report())
    return module


def assert_same(x: np.ndarray, operands: dict[str, np.ndarray], **attrs: Any) -> None:
    wanted = resize(x, *(operands.get(name) for name in ("roi", "scales", "sizes")), **attrs)
    found = compiled(x.shape, wanted.shape, operands, **attrs).run({"x": x, **operands})["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("transform", [t for t in TRANSFORM_MODES if t != "tf_crop_and_resize"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_scales(mode: str, transform: str) -> None:
    x = floats(1, 3, 7, 9)
    for factors in ((1, 1, 2.3, 0.6), (1, 1, 0.4, 1), (2, 1, 1.5, 3)):
        scales = {"scales": np.array(factors, F32)}
        assert_same(x, scales, mode=mode, coordinate_transformation_mode=transform)


def test_scales_of_every_other_form() -> None:
    x = floats(2, 5, 6, 4)
    for rounding in NEAREST_MODES[:4]:
        assert_same(x, {"scales": np.array([1.7, 0.5], F32)}, axes=[3, 2], nearest_mode=rounding)
    for flags in ({"antialias": 1}, {"exclude_outside": 1, "cubic_coeff_a": -0.6}):
        assert_same(x, {"scales": np.array([0.3, 0.9], F32)}, axes=[2, 3], mode="cubic", **flags)
    assert_same(floats(3, 4), {"scales": np.array([2, 1.5], F32)}, mode="linear")


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crops(mode: str) -> None:
    x, crop = floats(1, 2, 6, 7), {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.5}
    inside = {"roi": np.array([0, 0, 0.2, 0.1, 1, 1, 0.8, 0.9], F32), "sizes": np.array([1, 2, 4, 5])}
    assert_same(x, inside, mode=mode, **crop)
    beyond = {"roi": np.array([-0.3, 0.6, 1.2, 0.2], F32), "sizes": np.array([5, 3])}  # the second runs backwards
    assert_same(x, beyond, mode=mode, axes=[2, 3], **crop)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_ratios_that_are_kept(mode: str, policy: str) -> None:
    for sizes in ((3, 9), (11, 2), (6, 7)):
        asked = {"sizes": np.array(sizes)}
        assert_same(floats(1, 2, 6, 7), asked, axes=[2, 3], mode=mode, keep_aspect_ratio_policy=policy)


def test_a_scale_that_gives_another_size_than_declared_is_right_and_what_is_no_scale_an_error() -> None:
    module = compiled((1, 1, 4, 4), (1, 1, 8, 4), {"scales": np.ones(4, F32)})
    x, scales = floats(1, 1, 4, 4), np.array([1, 1, 2, 1], F32)
    assert module.run({"x": x, "scales": scales})["y"].shape == (1, 1, 8, 4)
    for wrong, text in ((-2.0, "not positive"), (np.inf, "not positive"), (np.nan, "not positive")):
        scales[2] = wrong
        with pytest.raises(TinycompError, match=text):
            module.run({"x": x, "scales": scales})
    scales[2] = 3.0
    with pytest.warns(TinycompWarning, match="another size"):
        assert module.run({"x": x, "scales": scales})["y"].shape == (1, 1, 12, 4)
