"""What ONNX leaves open (docs/semantics.md): the host and the C target do the same, bit by bit or error by error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tinycomp
from tests.cases.case import make_model
from tinycomp.errors import TinycompError

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@dataclass
class Case:
    """One node and what it reads.

    Attributes:
        op: The operator.
        feeds: Its operands, None for absent ones.
        attrs: Its attributes.
        constants: Which operands are constants; the others come in a run.
        outputs: The number of its results.
        opset: The opset.
        declared: The declared shape of the first result, if there is one.
        opened: Whether no size of an operand is declared.
        wanted: The first result, or a part of the error; None where only agreement is asked for.
    """

    op: str
    feeds: Sequence[np.ndarray | None]
    attrs: dict[str, Any] = field(default_factory=dict)
    constants: Sequence[int] = ()
    outputs: int = 1
    opset: int = 21
    declared: Sequence[int] | None = None
    opened: bool = False
    wanted: Any = None

    def model(self) -> onnx.ModelProto:
        names = ["" if x is None else f"x{i}" for i, x in enumerate(self.feeds)]
        constants = {f"x{i}": np.asarray(x) for i, x in enumerate(self.feeds) if x is not None and i in self.constants}
        opened = {n: [f"{n}_{axis}" for axis in range(x.ndim)] for n, x in self.fed.items()} if self.opened else None
        results = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(self.op, names, results, name="node", **self.attrs)
        model = make_model([node], self.fed, constants, results, self.opset, opened)
        if self.declared is not None:
            model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y0", TensorProto.INT64, self.declared))
        return model

    @property
    def fed(self) -> dict[str, np.ndarray]:
        return {f"x{i}": np.asarray(x) for i, x in enumerate(self.feeds) if x is not None and i not in self.constants}

    def run(self, target: Any) -> list[np.ndarray] | str:
        """Return the results, or the text of the error."""
        try:
            return [np.asarray(y) for y in tinycomp.compile(self.model(), target).run(self.fed).values()]
        except TinycompError as error:
            return str(error)

    def __str__(self) -> str:
        parts = ["absent" if x is None else "x".join(map(str, x.shape)) or x.tolist() for x in self.feeds]
        values = [x.reshape(-1)[:3].tolist() for x in self.feeds[1:] if x is not None and x.size]
        return (
            f"{self.op} {self.feeds[0].dtype if self.feeds[0] is not None else ''} {parts} {values} {self.attrs or ''}"
        )


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def scalar(value: float | bool, dtype: str = "float32") -> np.ndarray:
    return np.array(value, dtype)


def texts(*values: str) -> np.ndarray:
    return np.array(values, object)


def integers() -> Iterator[Case]:
    for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint32"):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        a = np.array([5, low, low, 0, high, 7], dtype)
        b = np.array([0, -1 if low < 0 else high, 0, 0, high, 2], dtype)
        yield Case("Div", [a, b])
        yield Case("Mod", [a, b])
        yield Case("Mod", [a, b], {"fmod": 1})
        yield Case("Abs", [a])
        if low < 0:
            yield Case("Neg", [a])
    yield Case("Div", [np.array([5, INT64_MIN]), np.array([0, -1])], wanted=[0, INT64_MIN])
    yield Case("Mod", [np.array([5, INT64_MIN]), np.array([0, -1])], wanted=[0, 0])
    yield Case("Mod", [f32(1, -1, 0, np.inf, 5), f32(0, 0, 0, 2, np.inf)], {"fmod": 1})
    yield Case("Pow", [np.array([2, 0, -2, 3, 2], "i4"), np.array([-1, -1, 3, 40, 31], "i4")])
    yield Case("Pow", [np.array([2, 0, -2], "i4"), f32(-1, -1, 0.5)])
    yield Case("BitShift", [np.array([1, 2, 3], "u4"), np.array([31, 32, 255], "u4")], {"direction": "LEFT"})
    yield Case("BitShift", [np.array([255, 2, 3], "u1"), np.array([7, 8, 255], "u1")], {"direction": "RIGHT"})


def conversions() -> Iterator[Case]:
    numbers = f32(np.nan, np.inf, -np.inf, 1e30, -1e30, 300.7, -1.5)
    for kind in ("INT8", "INT32", "INT64", "UINT8", "UINT32", "UINT64", "BOOL"):
        yield Case("Cast", [numbers], {"to": getattr(TensorProto, kind)})
    yield Case("Cast", [f32(1e6, -1e6)], {"to": TensorProto.FLOAT16}, wanted=[np.inf, -np.inf])
    yield Case("Cast", [texts("99999999999999999999")], {"to": TensorProto.INT64})
    yield Case("Cast", [texts("300")], {"to": TensorProto.UINT8})
    for text in ("abc", "", "nan", "0x10"):
        yield Case("Cast", [texts(text)], {"to": TensorProto.INT64}, wanted="cannot cast text to int64")
    for scale in (0.0, -1.0, np.nan, np.inf):
        yield Case("QuantizeLinear", [f32(1, -1, 0), scalar(scale), scalar(3, "uint8")])
        stored = [np.array([1, -1, 0], "i1"), scalar(scale)]
        yield Case("DequantizeLinear", stored)
        wanted = [scale, -scale, 0] if np.isfinite(scale) else "a quantisation scale is not finite"
        yield Case("DequantizeLinear", stored, constants=(1,), wanted=wanted)
        given = [f32(1, 2), scalar(scale), scalar(3, "uint8")]
        yield Case("QuantizeLinear", given, constants=(1, 2), wanted="a quantisation scale is not positive")
    numbers = [f32(np.nan, np.inf, -np.inf, 1e30), scalar(1), scalar(3, "uint8")]
    yield Case("QuantizeLinear", numbers, constants=(1, 2), wanted=[0, 255, 0, 255])
    for x in (f32(0, 0, 0), f32(np.nan, 1), f32(), f32(-3, 5), f32(np.inf, 1)):
        yield Case("DynamicQuantizeLinear", [x], outputs=3)


def shapes() -> Iterator[Case]:
    x = np.ones((2, 3), np.float32)
    for wanted in ((-5, 2), (-1, -1), (0, 0), (3, -1), (-2, -3), (0, -1), (2, 2)):
        yield Case("Reshape", [x, i64(*wanted)], constants=(1,))
        yield Case("Reshape", [x, i64(*wanted)])
    for wanted in ((0, -1), (3, 0), (0, -1, 1), (-1, 3), (1, -1)):
        yield Case("Reshape", [x[:0], i64(*wanted)])
        yield Case("Reshape", [x[:0], i64(*wanted)], constants=(1,))
    yield Case("Reshape", [x, i64(0, -1)], {"allowzero": 1})
    for pads in ((7, 8), (-1, 9), (0, -3)):
        for mode in ("reflect", "edge", "wrap", "constant"):
            yield Case("Pad", [f32(1, 2, 3), i64(*pads)], {"mode": mode})
    yield Case("Pad", [f32(1, 2, 3), i64(4, 0)], {"mode": "reflect"}, wanted=[1, 2, 3, 2, 1, 2, 3])
    yield Case("Pad", [f32(1), i64(2, 2)], {"mode": "reflect"}, constants=(1,), wanted=[1, 1, 1, 1, 1])
    yield Case("Pad", [f32(), i64(1, 1)], {"mode": "edge"}, constants=(1,), wanted="nothing to pad from")
    image = np.ones((1, 1, 2, 2), np.float32)
    for scale in (np.nan, np.inf, 0.0, -1.0):
        for constants in ((), (2,)):
            yield Case(
                "Resize", [image, None, f32(1, 1, scale, 1)], constants=constants, wanted="scale is not positive"
            )
    yield Case("Resize", [image, None, None, i64(1, 1, -1, 2)], wanted="negative")
    yield Case("Resize", [image, None, None, i64(1, 1, 0, 2)])
    yield Case("Resize", [image[:, :, :0], None, None, i64(1, 1, 2, 2)])
    yield Case("Resize", [np.full((1, 1, 2, 2), np.nan, "f4"), None, f32(1, 1, 2, 2)], {"mode": "linear"}, (2,))
    for start, limit, delta in ((0, np.nan, 1), (0, np.inf, 1), (np.nan, 1, 1), (0, 1, np.nan), (1, 0, -np.inf)):
        yield Case("Range", [scalar(start), scalar(limit), scalar(delta)], wanted=[])
    yield Case("Range", [scalar(0), scalar(1), scalar(0)])
    yield Case("Range", [i64(0)[0], i64(5)[0], i64(0)[0]], wanted="the step is 0")
    yield Case("Range", [scalar(0), scalar(1), scalar(0.3)])
    for depth in (i64(-1)[0], scalar(np.nan), scalar(np.inf), scalar(-2)):
        yield Case("OneHot", [i64(1, 2), depth, f32(0, 1)], wanted="negative")
    yield Case("OneHot", [i64(1, 2), scalar(3.7), f32(0, 1)])
    yield Case("OneHot", [i64(1, 2), i64(0)[0], f32(0, 1)])
    yield Case("Slice", [f32(1, 2), i64(0), i64(2), i64(0), i64(0)], wanted="a step is 0")
    yield Case("Slice", [f32(1, 2, 3), i64(INT64_MIN), i64(INT64_MAX), i64(0), i64(1)], wanted=[1, 2, 3])
    yield Case("Slice", [f32(1, 2, 3), i64(INT64_MAX), i64(INT64_MIN), i64(0), i64(-1)], wanted=[3, 2, 1])
    yield Case("Tile", [f32(1, 2), i64(-1)])
    yield Case("Expand", [f32(1, 2), i64(3)])
    yield Case("ConstantOfShape", [i64(-1)])
    yield Case("Split", [f32(1, 2, 3), i64(1, 1)], outputs=2)
    yield Case("Split", [f32(1, 2, 3), i64(-1, 4)], outputs=2)
    yield Case("Trilu", [np.ones((3, 3), np.float32), scalar(2**40, "int64")])
    yield Case("Unsqueeze", [f32(1, 2), i64(0, 0)])
    yield Case("CumSum", [f32(1, 2), i64(3)[0]])
    for k in (5, -1):
        yield Case("TopK", [f32(1, 2, 3), i64(k)], outputs=2)
    for size in (0, 1, 2):
        for op, attrs in (("Conv", {}), ("MaxPool", {"kernel_shape": [3]}), ("ConvTranspose", {"pads": [2, 2]})):
            feeds = [np.ones((1, 1, size), np.float32)] + [np.ones((1, 1, 3), np.float32)] * (op != "MaxPool")
            yield Case(op, feeds, attrs, (1,), opened=True, wanted="the output would be empty")
    columns = np.ones((1, 4, 4), np.float32)
    for image in ((3, 3), (1, 3), (-3, -3), (2, 5), (0, 0)):
        good = [[[[1, 2, 1], [2, 4, 2], [1, 2, 1]]]] if image == (3, 3) else None
        yield Case("Col2Im", [columns, i64(*image), i64(2, 2)], wanted=good)
        yield Case("Col2Im", [columns, i64(*image), i64(2, 2)], opened=True, constants=(2,), wanted=good)
    for block in ((2, 3), (0, 2), (-2, -2)):
        yield Case("Col2Im", [columns, i64(3, 3), i64(*block)])
    for axes in ((5,), (-3,), (0, 0), (1, -1), (2**62,)):
        for op in ("ReduceSum", "CumSum")[: 3 - len(axes)]:
            given = i64(*axes) if op == "ReduceSum" else i64(*axes)[0]
            yield Case(op, [np.ones((2, 3), np.float32), given], opened=op == "ReduceSum", wanted="axis")
    yield Case("ArgMax", [np.ones((2, 0), np.float32)], {"axis": 1}, opened=True, wanted="the reduced axis is empty")
    theta = np.ones((1, 2, 3), np.float32)
    for size in ((1, 1, -2, 3), (2, 1, 2, 2), (1, 1, 0, 2), (1, 1, 2), (1, 1, 2, 2)):
        yield Case("AffineGrid", [theta, i64(*size)])
        yield Case("AffineGrid", [theta, i64(*size)], constants=(1,))
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 1], [5, 5, 6, 6]]], np.float32)
    for count in (2, 3):
        given = [boxes, f32(0.9, 0.8, 0.7).reshape(1, 1, 3), i64(5), f32(0.5), f32(0.1)]
        yield Case("NonMaxSuppression", given, declared=(count, 3))
        yield Case("NonZero", [f32(1, 0, 1)], declared=(1, count), wanted=[[0, 2]])


def indices() -> Iterator[Case]:
    yield Case("Gather", [f32(1, 2, 3), i64(-4)])
    yield Case("Gather", [f32(1, 2, 3), i64(3)])
    yield Case("GatherND", [f32(1, 2, 3), i64(5)[:, None]])
    yield Case("ScatterElements", [f32(1, 2, 3), i64(1, 1), f32(7, 8)], wanted=[1, 8, 3])
    yield Case("ScatterElements", [f32(1, 2, 3), i64(1, 9), f32(7, 8)])
    yield Case("Compress", [f32(1, 2), np.array([True, False, True])])
    yield Case("Compress", [f32(1, 2, 3), np.array([True])], wanted=[1])
    yield Case("ReverseSequence", [np.ones((3, 2), np.float32), i64(9, 1)])
    yield Case("ReverseSequence", [np.ones((3, 2), np.float32), i64(-1, 1)])
    yield Case("TensorScatter", [np.zeros((1, 4, 2), "f4"), np.ones((1, 3, 2), "f4"), i64(3)], opset=24)
    image = np.ones((1, 1, 2, 2), np.float32)
    yield Case("RoiAlign", [image, np.full((1, 4), np.nan, np.float32), i64(0)])
    yield Case("RoiAlign", [image, np.ones((1, 4), np.float32), i64(3)])
    yield Case("GridSample", [image, np.full((1, 1, 1, 2), np.nan, np.float32)])
    weights = [np.ones((1, 6, 3), np.float32), np.ones((1, 6, 2), np.float32)]
    for length in (9, -1):
        given = [np.ones((2, 1, 3), np.float32), *weights, None, np.array([length], "i4")]
        yield Case("GRU", given, {"hidden_size": 2}, (1, 2), 2)
    tokens = np.ones((1, 1, 2, 4), np.float32)
    for length in (9, -3):
        yield Case("Attention", [tokens, tokens, tokens, None, None, None, i64(length)], opset=24)


def floats() -> Iterator[Case]:
    nan = np.nan
    yield Case("TopK", [f32(1, nan, 3, nan), i64(3)], outputs=2)
    yield Case("ArgMax", [f32(1, nan, 3, nan)], wanted=[1])
    yield Case("ArgMax", [np.ones((0, 2), np.float32)], wanted="empty")
    yield Case("Max", [f32(1, nan), f32(nan, 2)], wanted=[nan, nan])
    yield Case("Min", [f32(0.0, -0.0), f32(-0.0, 0.0)])
    yield Case("Clip", [f32(nan, 5), scalar(1), scalar(2)], wanted=[nan, 2])
    yield Case("Clip", [f32(0, 1.5, 5), scalar(2), scalar(1)], wanted=[1, 1, 1])
    for dtype in ("float32", "int32"):
        for op in ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd", "ReduceMean"):
            yield Case(op, [np.ones((0, 2), dtype), i64(0)], constants=(1,))
    yield Case("Softmax", [f32(np.inf, 1, 2)])
    yield Case("Softmax", [f32(-np.inf, -np.inf)])
    yield Case("Softmax", [np.ones((2, 0), np.float32)])
    yield Case("Round", [f32(0.5, 1.5, -0.5, 2.5, nan)], wanted=[0, 2, -0.0, 2, nan])
    yield Case("Sign", [f32(nan, -0.0, 0.0)])
    yield Case("Relu", [f32(nan, -0.0, -1)])
    yield Case("Sqrt", [f32(-1, 0, -0.0)])
    yield Case("Log", [f32(0, -1, np.inf)])
    yield Case("Where", [np.array([True, False]), f32(nan, 1), f32(1, nan)], wanted=[nan, nan])
    for ratio in (2.0, nan):
        yield Case("Dropout", [f32(1, 2, 3), scalar(ratio)])
    yield Case("Dropout", [f32(1, 2, 3), scalar(2.0)], constants=(1,))
    yield Case("MatMul", [np.ones((2, 0), np.float32), np.ones((0, 3), np.float32)])
    window = {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}
    yield Case("MaxPool", [np.full((1, 1, 2, 2), nan, np.float32)], window)
    yield Case("AveragePool", [np.ones((1, 1, 2, 2), np.float32)], window)
    given = [np.full((1, 2, 4), nan, "f4"), np.full((1, 1, 2), nan, "f4"), i64(5), f32(0.5), f32(0.1)]
    yield Case("NonMaxSuppression", given)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [*integers(), *conversions(), *shapes(), *indices(), *floats()], ids=str)
def test_host_and_target_agree(case: Case):
    found, host = case.run("c"), case.run([])
    if isinstance(found, str) or isinstance(host, str):
        assert isinstance(found, str), host
        assert isinstance(host, str), found
        assert not isinstance(case.wanted, (list, np.ndarray)), found
        assert case.wanted is None or case.wanted in found, found
        assert case.wanted is None or case.wanted in host, host
        return
    assert not isinstance(case.wanted, str), found
    for a, b in zip(found, host, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    if case.wanted is not None:
        np.testing.assert_array_equal(found[0], np.array(case.wanted, found[0].dtype))


SEQUENCE = "m (seq(float[2]) s) => (float[2] y) { i = Constant<value = int64 {0}>() y = SequenceAt(s, i) }"
OPTIONAL = "m (optional(float[2]) s) => (float[2] y) { y = OptionalGetElement(s) }"
HELD: dict[str, tuple[str, list[Any], str]] = {
    "a sequence of another type": (SEQUENCE, [[np.zeros(2)]], r'input "s\[0\]": wrong dtype; .* found float64'),
    "a sequence of another rank": (SEQUENCE, [[np.zeros((2, 2), np.float32)]], r'input "s\[0\]": wrong shape'),
    "a sequence of another size": (SEQUENCE, [[f32(1, 2), f32(1, 2, 3)]], r'input "s\[1\]": wrong shape'),
    "an array for a sequence": (SEQUENCE, [f32(1, 2)], 'input "s": not a sequence'),
    "an optional of another type": (OPTIONAL, [np.zeros(2)], 'input "s": wrong dtype'),
    "an optional of another rank": (OPTIONAL, [np.zeros((2, 1), np.float32)], 'input "s": wrong shape'),
    "an optional of another size": (OPTIONAL, [f32(1, 2, 3)], 'input "s": wrong shape'),
    "an empty optional": (OPTIONAL, [None], "the optional is empty"),
    "a position beyond a sequence": (
        "m (float[2] x, int64 i) => (float[2] y) { s = SequenceConstruct(x) y = SequenceAt(s, i) }",
        [f32(1, 2), np.int64(1)], "position out of bounds",
    ),
    "an element of another type inserted": (
        "m (float[2] x, double[2] z) => (seq(float[2]) y) { s = SequenceConstruct(x) y = SequenceInsert(s, z) }",
        [f32(1, 2), np.zeros(2)], "SequenceInsert",
    ),
    "elements that cannot be joined": (
        """m (float[2] x, float[2,2] z) => (float[k] y) {
            s = SequenceConstruct(x, z) y = ConcatFromSequence<axis=0>(s) }""",
        [f32(1, 2), np.zeros((2, 2), np.float32)], "has the wrong rank",
    ),
    "nothing to be joined": (
        "m (float[2] x) => (float[k] y) { s = SequenceEmpty() y = ConcatFromSequence<axis=0>(s) }",
        [f32(1, 2)], "the sequence is empty",
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", ["host", "c"])
@pytest.mark.parametrize("name", HELD)
def test_what_sequences_and_optionals_hold_is_as_declared(name: str, target: str) -> None:
    text, feeds, message = HELD[name]
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}')
    with pytest.raises(TinycompError, match=message):
        tinycomp.compile(model, target)(*feeds)


RESULTS = {
    "a sequence of another size": (
        "m (float[N] x) => (seq(float[2]) y) { y = SequenceConstruct(x) }", [f32(1, 2, 3)], [(3,)],
    ),
    "a sequence of another rank": (
        "m (float[2] x, float[2,1] z) => (seq(float[2]) y) { s = SequenceConstruct(x) y = SequenceInsert(s, z) }",
        [f32(1, 2), np.zeros((2, 1), np.float32)], [(2,), (2, 1)],
    ),
    "an optional of another size": (
        "m (float[N] x) => (optional(float[2]) y) { y = Optional(x) }", [f32(1, 2, 3)], [(3,)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", ["host", "c"])
@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.filterwarnings("ignore:.*the declaration is ignored")
def test_what_results_hold_is_true_whatever_is_declared(name: str, target: str) -> None:
    text, feeds, shapes = RESULTS[name]
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}')
    result = tinycomp.compile(model, target)(*feeds)
    assert [each.shape for each in (result if isinstance(result, list) else [result])] == shapes


@pytest.mark.parametrize("target", ["host", "c"])
def test_elements_declared_without_dimensions_may_have_any(target: str) -> None:
    """A sequence of scalars, by its declaration: ONNX's own models hold vectors in such a one."""
    text = """m (seq(float[]) s, float[2] x) => (seq(float[]) t, float[n] y) {
        i = Constant<value = int64 {0}>() t = SequenceInsert(s, x, i) y = SequenceAt(t, i) }"""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}')
    for value in (
        model.graph.input[0],
        model.graph.output[0],
    ):  # the parser writes no shape, not one without dimensions
        value.type.sequence_type.elem_type.tensor_type.shape.SetInParent()
    module = tinycomp.compile(model, target)
    inserted, first = module([f32(3), np.float32(4)], f32(1, 2))
    assert [each.tolist() for each in inserted] == [[1, 2], [3], 4]
    assert first.tolist() == [1, 2]
    with pytest.raises(TinycompError, match=r'input "s\[0\]": wrong dtype'):
        module([np.zeros(1)], f32(1, 2))


def test_an_element_erased_from_nothing() -> None:
    text = "m (float[2] x) => (seq(float[2]) y) { s = SequenceEmpty() y = SequenceErase(s) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}')
    assert [tinycomp.compile(model, target)(f32(1, 2)) for target in ("host", "c")] == [[], []]
