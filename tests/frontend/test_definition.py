"""Definitions of tinycomp's own: what falls to no target without them, on the C target and against onnxruntime."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tinycomp
from tests.targets.c.harness import Case, Const, assert_close, compile_for, make_model
from tinycomp.errors import FeedError, TinycompError
from tinycomp.ops.contraction import contraction_order
from tinycomp.runtime.module import Module

RNG = np.random.default_rng(3)
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5, "of_largest": 1e-5}


def reals(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def conv(shape: tuple[int, ...], weight: tuple[int, ...], bias: bool = True, **attrs: Any) -> Case:
    biases = [reals(weight[0])] if bias else []
    return Case("Conv", [reals(*shape), reals(*weight), *biases], attrs, **CLOSE)


def transposed(shape: tuple[int, ...], weight: tuple[int, ...], known: bool = True, **attrs: Any) -> Case:
    own = Const if known else np.asarray
    channels = weight[1] * int(attrs.get("group", 1))
    return Case("ConvTranspose", [reals(*shape), own(reals(*weight)), own(reals(channels))], attrs, **CLOSE)


CASES = [
    conv((2, 4, 9), (6, 4, 3), strides=[2], pads=[1, 2]),
    conv((2, 4, 9, 8), (6, 2, 3, 2), group=2, dilations=[2, 1], bias=False),
    conv((1, 6, 7, 8), (6, 1, 3, 3), group=6, auto_pad="SAME_UPPER"),
    conv((1, 2, 5, 6, 7), (3, 2, 2, 3, 1), pads=[1, 0, 0, 1, 1, 0], strides=[1, 2, 3]),
    transposed((1, 3, 4), (3, 2, 3), known=False, strides=[2]),
    transposed((1, 3, 4, 5), (3, 2, 3, 4), known=False, strides=[2, 3], pads=[1, 0, 2, 1]),
    transposed((1, 4, 4, 5), (4, 3, 3, 3), group=2, auto_pad="SAME_LOWER", strides=[2, 2]),
    transposed((1, 3, 4, 5), (3, 2, 2, 3), output_shape=[9, 12], strides=[2, 2]),
    transposed((2, 3, 3, 4, 5), (3, 2, 2, 2, 2), strides=[2, 2, 2]),
    transposed((1, 4, 3, 4, 5), (4, 3, 3, 3, 3), strides=[2, 1, 2], pads=[1, 1, 1, 1, 1, 1], output_padding=[1, 0, 1]),
    transposed((1, 4, 3, 4, 5), (4, 2, 3, 2, 1), group=2, dilations=[2, 3, 1], strides=[3, 1, 2]),
    transposed((1, 2, 4, 4, 4), (2, 1, 1, 1, 1), strides=[3, 3, 3]),
    Case("DFT", [reals(2, 10, 1), None, Const(np.array(1))], {"onesided": 1}, opset=20, **CLOSE),
    Case("DFT", [reals(2, 10, 3, 2), Const(np.array(7)), Const(np.array(1))], opset=20, **CLOSE),
    Case("DFT", [reals(2, 10, 2), Const(np.array(16))], {"inverse": 1}, opset=20, **CLOSE),
    Case("DFT", [reals(2, 400, 1)], {"axis": 1, "onesided": 1}, opset=19, **CLOSE),
    Case("DFT", [reals(3, 331, 2)], {"axis": 1}, opset=19, **CLOSE),
    Case("STFT", [reals(2, 100, 1), Const(np.array(8)), Const(reals(16))], {"onesided": 1}, opset=17, **CLOSE),
    Case("STFT", [reals(1, 100, 2), Const(np.array(8)), None, Const(np.array(20))], {"onesided": 0}, opset=17, **CLOSE),
    Case("STFT", [reals(2, 100), Const(np.array(8)), Const(reals(16))], {"onesided": 1}, opset=17, **CLOSE),
    Case("Gemm", [reals(4, 3), reals(5, 4), reals(3, 1)], {"transA": 1, "transB": 1}, **CLOSE),
    Case("Gemm", [reals(4, 3).astype("f8"), Const(reals(5, 4).astype("f8")), Const(reals(3, 1).astype("f8"))],
         {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, **CLOSE),
    Case("Gemm", [reals(7, 300).astype("f8"), Const(reals(300, 40).astype("f8"))], opset=13, **CLOSE),
    Case("Gemm", [RNG.integers(-9, 9, (3, 4)), RNG.integers(-9, 9, (4, 5)), RNG.integers(-9, 9, 5)], {"beta": 0.0},
         onnxruntime=False, **CLOSE),
    Case("MatMul", [reals(2, 103, 300).astype("f8"), reals(300, 70).astype("f8")], **CLOSE),
    Case("MatMul", [reals(9, 270).astype("f8"), reals(33, 270).T.astype("f8")], **CLOSE),
    Case("MatMul", [RNG.integers(-9, 9, shape).astype("i4") for shape in ((2, 13, 20), (20, 150))], **CLOSE),
    Case("DFT", [reals(2, 6, 2), Const(np.array(9)), Const(np.array(1))], {"inverse": 1, "onesided": 1}, opset=20,
         **CLOSE),
    Case("DFT", [reals(2, 6, 1), np.array(8), Const(np.array(1))], opset=20, **CLOSE),
    Case("DFT", [reals(2, 10, 2)], {"inverse": 1, "axis": 1}, opset=19, **CLOSE),
    Case("DFT", [reals(2, 1, 10, 2), None, np.array(-2)], {"inverse": 1}, opset=20, **CLOSE),
    Case("LpNormalization", [reals(3, 5, 17) * (np.arange(5) != 2)[:, None].astype("f4")], opset=22, **CLOSE),
    Case("LpNormalization", [reals(3, 5, 17) * (np.arange(17) != 2).astype("f4")], {"axis": -2, "p": 1}, **CLOSE),
    Case("STFT", [reals(2, 50, 1), np.array(7), reals(16)], opset=17, **CLOSE),
    Case("STFT", [reals(1, 50, 2), np.array(5), None, np.array(12)], {"onesided": 0}, opset=17, **CLOSE),
    Case("MelWeightMatrix", [*(np.array(v, np.int32) for v in (6, 64, 8000)), np.array(20, "f4"), np.array(4e3, "f4")],
         opset=17, **CLOSE),
    Case("MatMul", [reals(2, 3, 5).astype("f8"), reals(5, 18).astype("f8")], **CLOSE),
    Case("MatMul", [RNG.integers(-9, 9, (3, 1, 5, 4)), RNG.integers(-9, 9, (2, 4, 17))], **CLOSE),
    Case("MatMul", [RNG.integers(0, 9, 4).astype(np.uint32), RNG.integers(0, 9, (4, 5)).astype(np.uint32)], **CLOSE),
    Case("Det", [reals(3, 5, 5)], **CLOSE),
    Case("Det", [np.array([[0, 2.0], [3, 1]])], **CLOSE),
    Case("Unique", [RNG.integers(0, 9, 40)], outputs=4, onnxruntime=False),
    Case("Unique", [RNG.integers(0, 9, (5, 6)).astype("f4")], {"sorted": 0}, outputs=4),
    Case("Unique", [RNG.integers(0, 2, (3, 9, 2)).astype("f4")], {"axis": 1}, outputs=4),
    Case("Unique", [RNG.integers(0, 2, (9, 2)).astype("f2")], {"axis": -2, "sorted": 0}, outputs=4),
    Case("MaxPool", [RNG.integers(-9, 9, (1, 2, 9)).astype("i1")], {"kernel_shape": [3], "dilations": [2]}, outputs=2),
    Case("MaxPool", [reals(1, 2, 4, 5, 6).astype("f8")], {"kernel_shape": [2, 3, 2], "storage_order": 1}, outputs=2),
    Case("MaxUnpool", [reals(1, 1, 2, 2), np.array([[[[5, 7], [13, 15]]]]), np.array([1, 1, 5, 6])],
         {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Case("Col2Im", [reals(2, 18, 16), np.array([5, 6]), np.array([2, 3])], **CLOSE),
    Case("Col2Im", [reals(1, 8, 12), Const(np.array([3, 4, 5])), Const(np.array([2, 2, 2]))],
         {"strides": [1, 2, 2], "pads": [0, 0, 0, 0, 1, 1]}, **CLOSE),
    Case("DeformConv", [reals(1, 4, 6, 7), reals(6, 2, 3, 3), reals(1, 36, 6, 7), reals(6), reals(1, 18, 6, 7)],
         {"group": 2, "offset_group": 2, "pads": [1, 1, 1, 1]}, **CLOSE),
    Case("DeformConv", [reals(2, 2, 7, 6), reals(3, 2, 2, 3), reals(2, 12, 3, 2)],
         {"strides": [2, 2], "dilations": [1, 1]}, **CLOSE),
    Case("RandomUniform", [], {"shape": [3, 40], "seed": 2.5, "low": -1.0}),
    Case("RandomNormalLike", [reals(30, 50)], {"seed": 1.0, "dtype": 11}),
    Case("Bernoulli", [np.abs(reals(30, 50)) % 1], {"seed": 3.0, "dtype": 6}),
    Case("Multinomial", [reals(4, 6)], {"seed": 3.0, "sample_size": 50, "dtype": 7}),
    Case("Dropout", [reals(30, 50), np.array(0.3, np.float32), np.array(True)], {"seed": 7}, outputs=2),
    Case("Dropout", [reals(3, 5).astype("f8"), Const(np.float32(0.3)), np.array(False)], outputs=2),
    Case("TfIdfVectorizer", [RNG.integers(0, 4, (3, 12)).astype(np.int32)],
         {"max_gram_length": 3, "min_gram_length": 1, "max_skip_count": 2, "mode": "TFIDF", "ngram_counts": [0, 3, 9],
          "ngram_indexes": [4, 0, 1, 2, 3, 5, 6, 6], "pool_int64s": [0, 1, 3, 0, 1, 1, 2, 0, 1, 1, 2, 3, 0, 0, 1],
          "weights": [0.5, 2.0, 1.0, 3.0, 1.0, 0.25, 2.0, 2.0]}),
]  # fmt: skip


def results(module: Module, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return list(module.run(feeds).values())


def assert_same(case: Case, module: Module) -> None:
    assert not module.report().hosts, str(module.report())
    wanted = results(compile_for(case.model(), "host"), case.feeds)
    for found, value in zip(results(module, case.feeds), wanted, strict=True):
        assert_close(found, value, case, case.op)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_on_the_c_target(case: Case):
    assert_same(case, compile_for(case.model()))


@pytest.mark.parametrize(("opset", "operands", "attrs"), [(19, 0, {"axis": 1}), (20, 2, {})])
def test_an_inverse_transform_is_that_in_double(opset: int, operands: int, attrs: dict[str, Any]):
    x = np.arange(100, dtype=np.float32).reshape(1, 10, 10, 1) * np.float32([1, 0])
    case = Case("DFT", [x, None, np.array(1)][: operands + 1], {"inverse": 1, **attrs}, opset=opset)
    found = results(compile_for(case.model()), case.feeds)[0].astype(np.float64)
    wanted = np.fft.ifft(x[..., 0].astype(np.float64), axis=1)
    np.testing.assert_allclose(found[..., 0], wanted.real, rtol=0, atol=3e-6)
    np.testing.assert_allclose(found[..., 1], wanted.imag, rtol=0, atol=3e-6)


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "symbolic"),
    [
        ("Conv", [(2, 4, 9, 8), (6, 2, 3, 3)], {"group": 2, "pads": [1, 1, 1, 1], "strides": [2, 1]}, {0, 2, 3}),
        ("ConvTranspose", [(2, 4, 3, 4, 5), (4, 3, 2, 3, 2)], {"strides": [2, 2, 1], "pads": [0, 1, 0, 1, 0, 1]},
         {0, 2, 3, 4}),
        ("Einsum", [(2, 4, 3, 5), (2, 6, 3, 5)], {"equation": "bqhd,bkhd->bhqk"}, {0, 1}),
    ],
)  # fmt: skip
def test_sizes_that_only_a_run_shows(op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], symbolic: set[int]):
    feeds = {f"x{i}": reals(*shape) for i, shape in enumerate(shapes)}
    node = helper.make_node(op, list(feeds), ["y0"], name="node", **attrs)
    names = {"x0": [f"n{i}" if i in symbolic else n for i, n in enumerate(shapes[0])]}
    if op == "Einsum":
        names["x1"] = ["n0", "k", *shapes[1][2:]]
    known = {"x1": feeds.pop("x1")} if op == "ConvTranspose" else {}
    module = tinycomp.compile(make_model([node], feeds, known, ["y0"], symbolic=names), "c")
    for more in (0, 3):
        grown = {
            name: reals(*(n + more if isinstance(dim, str) else n for n, dim in zip(x.shape, names[name], strict=True)))
            if name in names
            else x
            for name, x in feeds.items()
        }
        operands = [*grown.values(), *map(Const, known.values())]
        assert_same(Case(op, operands, attrs, **CLOSE), module)


@pytest.mark.parametrize("last", [[], [1], [2]])
def test_frames_of_a_signal_whose_length_a_run_shows(last: list[int]):
    known = {"step": np.array(8), "window": reals(16)}
    node = helper.make_node("STFT", ["x0", "step", "window"], ["y"], name="node")
    dims = {"x0": ["batch", "samples", *last]}
    module = tinycomp.compile(
        make_model([node], {"x0": reals(1, 16, *last)}, known, ["y"], opset=17, symbolic=dims), "c"
    )
    assert module.outputs[0].shape == ("batch", "max(0, samples - 16)//8 + 1", 9, 2)
    for batch, samples in ((2, 100), (1, 16), (3, 23)):
        x = reals(batch, samples, *last)
        assert_same(Case("STFT", [x, *map(Const, known.values())], opset=17, **CLOSE), module)
    with pytest.raises(FeedError, match="frames are longer than the signal"):
        module(reals(1, 15, *last))


def test_several_operands_are_contracted_in_the_cheapest_order():
    sizes = dict.fromkeys("abc", 500)
    assert contraction_order([["a", "b"], ["b", "c"], ["c"]], ["a"], sizes) == [(1, 2), (0, 3)]
    many = [[chr(97 + i), chr(98 + i)] for i in range(10)]
    order = contraction_order(many, ["a", "k"], {chr(97 + i): 2 + i for i in range(11)})
    assert len(order) == 9
    assert order[0] == (0, 1)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("DFT", {"x": (TensorProto.FLOAT, [3, 2**63 - 1, 1])}, {"axis": 1}),
        ("DFT", {"x": (TensorProto.FLOAT, [3, 2**62 - 57, 2])}, {"axis": 1, "inverse": 1}),
        (
            "MatMulInteger",
            {
                "a": (TensorProto.UINT8, [2, 2**31]), "b": (TensorProto.UINT8, [2**31, 1]),
                "i": (TensorProto.UINT8, [2]), "j": (TensorProto.UINT8, [1]),
            },
            {},
        ),
    ],
)  # fmt: skip
def test_no_definition_counts_to_a_size_of_the_model(op: str, inputs: dict[str, Any], attrs: dict[str, Any]) -> None:
    """It would take minutes, or for ever."""
    values = [helper.make_tensor_value_info(name, *type_) for name, type_ in inputs.items()]
    node = helper.make_node(op, list(inputs), ["y"], **attrs)
    graph = helper.make_graph([node], "g", values, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    with contextlib.suppress(TinycompError):
        tinycomp.compile(model, "c")
