"""Classes 51 to 65: feeds that do not fit, and values that break arithmetic, indices, memory or patience."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.arrays import read_only, unaligned
from tests.bad_input.case import Case, doing, failing, rejected, right
from tests.bad_input.models import floats, ints, one, relu, scalar, text
from tinycomp import compile as compile_model
from tinycomp.errors import FeedError, MemoryLimitError, OptionError, TinycompError

F = np.float32
X = np.arange(6, dtype=F).reshape(2, 3) - 2
Y = np.maximum(X, 0)
NAN, INF, DENORMAL = np.nan, np.inf, F(1e-40)
TWO = one("Add", "f[2]", "f[2]")
HUGE = (1 << 40, 1 << 62, (1 << 63) - 1)


def feed(id_: str, feeds: dict[str, Any], *texts: str) -> Case:
    return failing(id_, relu(), feeds, *texts, error=FeedError)


def aliased_inputs(folder: Path) -> None:
    x = np.array([1, 2], F)
    module = compile_model(TWO)
    assert module(x, x).tolist() == [2, 4]
    assert x.tolist() == [1, 2]


def result_is_no_feed(model: Any, *feeds: np.ndarray) -> Any:
    """Writing into a result must change neither feeds, nor other results, nor the next run."""

    def check(folder: Path) -> None:
        for target in ("c", "host"):
            module = compile_model(model, target)
            before = [f.copy() for f in feeds]
            first = module.run(dict(zip((s.name for s in module.inputs), feeds, strict=True)))
            kept = {name: value.copy() for name, value in first.items()}
            for name in first:
                first[name][...] = 99
                for other in first:
                    if other != name:
                        assert np.array_equal(first[other], kept[other]) or first[other].flat[0] == 99
            assert all(np.array_equal(a, b) for a, b in zip(feeds, before, strict=True))
            again = module.run(dict(zip((s.name for s in module.inputs), feeds, strict=True)))
            assert all(np.array_equal(again[name], kept[name]) for name in kept)

    return check


def unary(id_: str, op: str, value: Any, wanted: Any, **attrs: Any) -> Case:
    x = np.asarray(value)
    dtype = {"f": "f", "i": f"int{8 * x.itemsize}", "u": f"uint{8 * x.itemsize}"}[x.dtype.kind]
    return right(id_, one(op, f"{dtype}[{x.size}]", **attrs), {"a": x}, np.asarray(wanted))


def binary(id_: str, op: str, a: np.ndarray, b: np.ndarray, wanted: Any, **attrs: Any) -> Case:
    name = a.dtype.name
    model = one(op, f"{name}[{a.size}]", f"{b.dtype.name}[{b.size}]", **attrs)
    return right(id_, model, {"a": a, "b": b}, np.asarray(wanted, a.dtype))


def too_large(id_: str, model: Any, feeds: dict[str, Any] | None, **options: Any) -> Case:
    """Refused by the budget: at compile time without feeds, else by the run; always before allocating."""
    texts = ("more memory would be needed", "expected at most", "bytes", "memory_limit=")
    if feeds is None:
        return rejected(id_, model, *texts, error=MemoryLimitError, **options)
    return failing(id_, model, feeds, *texts, error=MemoryLimitError, options=options)


def loop(scan: bool = False, body: str = "w = Neg(v)") -> Any:
    outputs, more = ("y, s", ", float[4] t") if scan else ("y", "")
    extra = " t = Identity(w)" if scan else ""
    results = "float[4] y, float[T,4] s" if scan else "float[4] y"
    return text(f"""g (int64 n, float[4] x) => ({results}) {{ c = Constant<value: tensor = bool {{1}}>()
        {outputs} = Loop (n, c, x) <body = b (int64 i, bool go, float[4] v) => (bool g, float[4] w{more})
        {{ g = Identity(go) {body}{extra} }}> }}""")


def usable_after_an_error(folder: Path) -> None:
    model = text("g (int64[1] r, float[4] x) => (float[N] y) { t = Tile(x, r) y = Relu(t) }")
    module = compile_model(model, memory_limit=1 << 20)
    x = np.arange(4, dtype=F)
    for _ in range(3):
        with pytest.raises(MemoryLimitError):
            module(ints(1 << 40), x)
        assert module(ints(2), x).tolist() == [0, 1, 2, 3] * 2


def one_symbol_two_sizes() -> Any:
    return text("g (float[N] a, float[N] b) => (float[N] y) { y = Add(a, b) }")


def budget_of_specialised_plans(folder: Path) -> None:
    module = compile_model(text("g (float[N,N] x) => (float[N,N] y) { y = MatMul(x, x) }"), memory_limit=1 << 20)
    assert module(floats(8, 8))[0, 0] == 8
    with pytest.raises(MemoryLimitError, match="expected at most 1048576 bytes"):
        module(floats(1024, 1024))
    assert module(floats(8, 8))[0, 0] == 8


CASES = [
    # 51 feeds
    feed("51-missing", {}, 'input "x": input missing', "expected a value for x: float32[2, 3]"),
    feed("51-extra", {"x": X, "z": X}, 'the model has no input "z"; expected one of x'),
    feed("51-misspelt", {"X": X}, 'the model has no input "X"', 'Did you mean "x"?'),
    feed("51-dtype", {"x": X.astype(np.float64)}, 'input "x": wrong dtype', "found float64", 'astype("float32")'),
    feed("51-int", {"x": X.astype(np.int32)}, "wrong dtype", "found int32"),
    feed("51-complex", {"x": X.astype(np.complex64)}, "wrong dtype", "found complex64"),
    feed("51-bool", {"x": X > 0}, "wrong dtype", "found bool"),
    feed("51-shape", {"x": X.T}, 'input "x": wrong shape', "expected x: float32[2, 3]; found shape (3, 2)"),
    feed("51-rank", {"x": X[0]}, "wrong shape", "A batch dimension may be missing: try array[None]."),
    feed("51-scalar", {"x": F(1)}, "found shape ()"),
    feed("51-none", {"x": None}, "cannot be read as an array", "found NoneType"),
    feed("51-text", {"x": "hello"}, 'input "x": cannot be read as an array', "Pass a numpy array."),
    feed("51-ragged", {"x": [[1, 2, 3], [4]]}, "cannot be read as an array", "found list"),
    feed("51-object", {"x": np.array([[1, 2, 3], [4, 5, 6]], object)}, "wrong dtype", "found object"),
    feed("51-dict", {"x": {"a": 1}}, 'input "x"'),
    feed("51-structured", {"x": np.zeros((2, 3), [("a", F)])}, "wrong dtype"),
    feed("51-dates", {"x": np.zeros((2, 3), "M8[s]")}, "wrong dtype"),
    failing("51-symbols-disagree", one_symbol_two_sizes(), [floats(2), floats(3)], 'the sizes of "N" differ',
        'inputs "a" and "b"', "expected N = 2 as in a; found N = 3", error=FeedError),
    failing("51-string-tensor", one("Identity", "string[1]"), [np.zeros(1, F)], "wrong dtype", error=FeedError),
    right("51-list", relu(), [X.tolist()], Y),
    # 52 layout of feeds
    right("52-transposed", relu(), [np.asfortranarray(X)], Y),
    right("52-strided", relu(), [np.repeat(X, 2, 1)[:, ::2]], Y),
    right("52-reversed", relu(), [X[::-1, ::-1]], Y[::-1, ::-1]),
    right("52-broadcast", relu(), [np.broadcast_to(F(-3), (2, 3))], np.zeros((2, 3), F)),
    right("52-read-only", relu(), [read_only(X)], Y),
    right("52-big-endian", relu(), [X.astype(">f4")], Y),
    right("52-misaligned", relu(), [unaligned(X)], Y),
    right("52-misaligned-big-endian", relu(), [unaligned(X.astype(">f4"))], Y),
    right("52-matrix", relu(), [X.view(np.ndarray)], Y),
    right("52-masked", relu(), [np.ma.array(X)], Y),
    # 53 aliasing
    doing("53-one-array-twice", aliased_inputs),
    doing("53-input-is-output", result_is_no_feed(text("g (float[2] x) => (float[2] x) { }"), floats(2))),
    doing("53-identity", result_is_no_feed(one("Identity", "f[2]"), floats(2))),
    doing("53-reshape", result_is_no_feed(one("Reshape", "f[4]", ints(2, 2)), floats(4))),
    doing(
        "53-constant",
        result_is_no_feed(
            text("g (float[1] x) => (float[2] w, float[1] y) <float[2] w = {1, 2}> { y = Relu(x) }"), floats(1)
        ),
    ),
    doing("53-split", result_is_no_feed(one("Split", "f[4]", num_outputs=2, outputs=2), floats(4))),
    doing("53-transposed", result_is_no_feed(one("Transpose", "f[2,3]"), X)),
    # 54 zero sizes
    right("54-relu", one("Relu", "f[0,3]"), [np.zeros((0, 3), F)], np.zeros((0, 3), F)),
    right("54-symbolic", one("Relu", "f[N,3]"), [np.zeros((0, 3), F)], np.zeros((0, 3), F)),
    right("54-matmul-inner", one("MatMul", "f[2,0]", "f[0,3]"), [np.zeros((2, 0), F), np.zeros((0, 3), F)],
        np.zeros((2, 3), F)),
    right("54-gemm-rows", one("Gemm", "f[0,2]", floats(2, 3)), [np.zeros((0, 2), F)], np.zeros((0, 3), F)),
    right("54-conv-batch", one("Conv", "f[0,1,4,4]", floats(1, 1, 3, 3)), [np.zeros((0, 1, 4, 4), F)],
        np.zeros((0, 1, 2, 2), F)),
    right("54-concat", one("Concat", "f[0,2]", "f[1,2]", axis=0), [np.zeros((0, 2), F), floats(1, 2)], floats(1, 2)),
    right("54-reduce-sum", one("ReduceSum", "f[0,2]", ints(0), keepdims=0), [np.zeros((0, 2), F)], np.zeros(2, F)),
    right("54-softmax", one("Softmax", "f[0,2]"), [np.zeros((0, 2), F)], np.zeros((0, 2), F)),
    right("54-transpose", one("Transpose", "f[0,2]"), [np.zeros((0, 2), F)], np.zeros((2, 0), F)),
    # 55 indices
    *(
        failing(f"55-gather-{i}", one("Gather", "f[3]", "i[1]"), [floats(3), ints(i)], "n (", "index", " out of ")
        for i in (3, -4, (1 << 63) - 1, -(1 << 63))
    ),
    failing("55-gather-constant", one("Gather", "f[3]", ints(3)), [floats(3)], "n (", "index", " out of "),
    failing("55-gather-empty", one("Gather", "f[0]", "i[1]"), [np.zeros(0, F), ints(0)], "n (", "index", " out of "),
    failing("55-gather-elements", one("GatherElements", "f[3]", "i[1]"), [floats(3), ints(5)], "n (", "index",
        " out of "),
    failing("55-gather-nd", one("GatherND", "f[3]", "i[1,1]"), [floats(3), ints(9).reshape(1, 1)], "n (", "index",
        " out of "),
    failing("55-scatter-elements", one("ScatterElements", "f[3]", "i[1]", "f[1]"), [floats(3), ints(3), floats(1)],
        "n (", "index", " out of "),
    failing("55-scatter-nd", one("ScatterND", "f[3]", "i[1,1]", "f[1]"), [floats(3), ints(-4).reshape(1, 1), floats(1)],
        "n (", "index", " out of "),
    failing("55-max-unpool", one("MaxUnpool", "f[1,1,1,1]", "i[1,1,1,1]", kernel_shape=[2, 2]),
        [floats(1, 1, 1, 1), ints(99).reshape(1, 1, 1, 1)], "n (", "out of "),
    failing("55-sequence-at",
        text("g (float[2] x, int64 i) => (float[2] y) { s = SequenceConstruct(x) y = SequenceAt(s, i) }"),
        [floats(2), scalar(7, np.int64)], "SequenceAt", "7"),
    failing("55-reverse-sequence", one("ReverseSequence", "f[2,1]", "i[1]"), [floats(2, 1), ints(3)], "n (",
        "sequence"),
    # 56 integer division
    *(binary(f"56-div-zero-{d}", "Div", np.array([7, -7], d), np.array([0, 0], d), [0, 0]) for d in ("int32", "int64")),
    *(
        binary(f"56-div-min-{d}", "Div", np.array([np.iinfo(d).min], d), np.array([-1], d), [np.iinfo(d).min])
        for d in ("int8", "int32", "int64")
    ),
    binary("56-mod-zero", "Mod", np.array([7], "int32"), np.array([0], "int32"), [0]),
    binary("56-fmod-zero", "Mod", np.array([7], "int64"), np.array([0], "int64"), [0], fmod=1),
    binary("56-mod-min", "Mod", np.array([np.iinfo("int64").min]), np.array([-1]), [0]),
    binary("56-uint-div-zero", "Div", np.array([7], "uint8"), np.array([0], "uint8"), [0]),
    unary("56-abs-min", "Abs", np.array([np.iinfo("int32").min], "int32"), np.array([np.iinfo("int32").min], "int32")),
    unary("56-neg-min", "Neg", np.array([-128], "int8"), np.array([-128], "int8")),
    # 57 float to integer: defined, and the same on every tier
    *(
        right(f"57-nan-{d}", one("Cast", "f[1]", to=n), [np.array([NAN], F)], np.array([0], d))
        for d, n in (("int8", 3), ("int64", 7))
    ),
    unary("57-inf-int32", "Cast", np.array([1.9, -1.9], F), np.array([1, -1], "int32"), to=6),
    right("57-huge-int32", one("Cast", "f[2]", to=6), [np.array([1e30, -1e30], F)],
        np.array([(1 << 31) - 1, -(1 << 31)], "int32")),
    right("57-huge-uint8", one("Cast", "f[2]", to=2), [np.array([300, -5], F)], np.array([44, 251], np.uint8)),
    right("57-quantize-nan", one("QuantizeLinear", "f[3]", scalar(1), scalar(0, np.uint8)),
        [np.array([INF, -INF, 1e30], F)], np.array([255, 0, 255], np.uint8)),
    # 58 shifts
    binary("58-left-width", "BitShift", np.array([1], "uint32"), np.array([32], "uint32"), [0], direction="LEFT"),
    binary("58-right-width", "BitShift", np.array([255], "uint8"), np.array([8], "uint8"), [0], direction="RIGHT"),
    binary("58-left-huge", "BitShift", np.array([1], "uint64"), np.array([(1 << 64) - 1], "uint64"), [0],
        direction="LEFT"),
    # 59 Slice
    rejected("59-step-zero", one("Slice", "f[3]", ints(0), ints(3), ints(0), ints(0)), "n (Slice", "step",
        error=TinycompError),
    failing("59-step-zero-fed", one("Slice", "f[3]", ints(0), ints(3), ints(0), "i[1]"), [floats(3), ints(0)],
        "n (Slice)", "a step is 0"),
    *(
        right(
            f"59-{label}",
            one("Slice", "f[3]", "i[1]", "i[1]", ints(0), "i[1]"),
            [np.array([1, 2, 3], F), ints(start), ints(end), ints(step)],
            np.array(wanted, F),
        )
        for label, start, end, step, wanted in (
            ("all", -(1 << 63), (1 << 63) - 1, 1, [1, 2, 3]),
            ("backwards", (1 << 63) - 1, -(1 << 63), -1, [3, 2, 1]),
            ("none", (1 << 63) - 1, -(1 << 63), 1, []),
            ("step", 0, 3, (1 << 63) - 1, [1]),
            ("step-min", 2, -9, -(1 << 63), [3]),
        )
    ),
    failing("59-axis-twice", one("Slice", "f[3,3]", ints(0, 0), ints(1, 1), "i[2]"), [floats(3, 3), ints(0, 0)],
        "n (Slice)", "names an axis twice"),
    # 60 memory
    *(too_large(f"60-tile-{n}", one("Tile", "f[4]", "i[1]"), [floats(4), ints(n)]) for n in HUGE),
    *(too_large(f"60-expand-{n}", one("Expand", "f[1]", "i[1]"), [floats(1), ints(n)]) for n in HUGE),
    *(too_large(f"60-constant-of-shape-{n}", one("ConstantOfShape", "i[1]"), [ints(n)]) for n in HUGE),
    failing("60-constant-of-shape-wrap", one("ConstantOfShape", "i[2]"), [ints(1 << 32, 1 << 32)], "memory",
        error=TinycompError),
    too_large("60-range", one("Range", "i[]", "i[]", "i[]"),
        [scalar(0, np.int64), scalar(1 << 39, np.int64), scalar(1, np.int64)]),
    too_large("60-range-float", one("Range", "f[]", "f[]", "f[]"), [scalar(0), scalar(1e11), scalar(1)]),
    too_large("60-pad", one("Pad", "f[1]", "i[2]"), [floats(1), ints(1 << 50, 0)]),
    too_large("60-pad-edge", one("Pad", "f[1]", "i[2]", mode="edge"), [floats(1), ints(1 << 50, 0)]),
    too_large("60-one-hot", one("OneHot", "i[4]", "i[]", floats(2)), [ints(0, 1, 2, 3), scalar(1 << 50, np.int64)]),
    too_large("60-resize", one("Resize", "f[1,1,2,2]", None, None, "i[4]"),
        [floats(1, 1, 2, 2), ints(1, 1, 1 << 30, 1 << 30)]),
    too_large("60-resize-scales", one("Resize", "f[1,1,2,2]", None, "f[4]"),
        [floats(1, 1, 2, 2), np.array([1, 1, 1e9, 1e9], F)]),
    too_large(
        "60-broadcast",
        text(
            "g (int64 n) => (float[A,B] y) { z = Constant<value: tensor = int64 {0}>() o = "
            "Constant<value: tensor = int64 {1}>() r = Range(z, n, o) f = Cast<to=1>(r) a = Constant<value: tensor = "
            "int64[2] {-1,1}>() c = Reshape(f, a) y = Add(c, f) }"
        ),
        [scalar(1 << 17, np.int64)],
        memory_limit=1 << 26,
    ),
    too_large("60-affine-grid", one("AffineGrid", "f[1,2,3]", "i[4]"), [floats(1, 2, 3), ints(1, 1, 1 << 30, 1 << 30)]),
    too_large("60-max-unpool", one("MaxUnpool", "f[1,1,1,1]", "i[1,1,1,1]", "i[4]", kernel_shape=[2, 2]),
        [floats(1, 1, 1, 1), ints(0).reshape(1, 1, 1, 1), ints(1, 1, 1 << 30, 1 << 30)]),
    too_large("60-tile-constant", one("Tile", "f[4]", ints(1 << 50)), None),
    too_large("60-expand-constant", one("Expand", floats(1), ints(1 << 50)), None),
    too_large("60-constant-of-shape-constant", one("ConstantOfShape", ints(1 << 30, 1 << 30)), None),
    too_large("60-input", one("Relu", "f[1073741824,1073741824]"), None),
    too_large("60-random", one("RandomNormal", shape=[1 << 30, 1 << 30]), None),
    too_large("60-conv-pads", one("Conv", "f[1,1,4,4]", floats(1, 1, 3, 3), pads=[1 << 30] * 4), None),
    too_large("60-limit", one("MatMul", "f[64,1]", "f[1,64]"), None, memory_limit=1000),
    too_large(
        "60-limit-of-a-region",
        text(
            "g (float[64,64] x) => (float[64,1] y) <int64[1] s = {1}> { a = MatMul(x, x) "
            "b = Relu(a) c = MatMul(b, a) y = ReduceSum(c, s) }"
        ),
        None,
        memory_limit=20000,
    ),
    too_large("60-loop", loop(scan=True), [scalar((1 << 63) - 1, np.int64), floats(4)], memory_limit=100000),
    doing("60-specialised-plan", budget_of_specialised_plans),
    rejected("60-limit-zero", relu(), "memory_limit: not a limit", "a number above 0", error=OptionError,
        memory_limit=0),
    rejected("60-limit-text", relu(), "memory_limit", "found '1G'", error=OptionError, memory_limit="1G"),
    right("60-limit-enough", relu(), [X], Y, memory_limit=1000),
    # 61 counts
    rejected("61-range-step", one("Range", scalar(0), scalar(1), scalar(0)), "n (Range", "step", error=TinycompError),
    failing("61-range-step-fed", one("Range", "i[]", "i[]", "i[]"),
        [scalar(0, np.int64), scalar(9, np.int64), scalar(0, np.int64)], "n (Range)", "the step is 0"),
    right("61-range-backwards", one("Range", "i[]", "i[]", "i[]"),
        [scalar(9, np.int64), scalar(0, np.int64), scalar(1, np.int64)], np.zeros(0, np.int64)),
    rejected("61-topk-large", one("TopK", "f[3]", ints(4), outputs=2), "n (TopK", error=TinycompError),
    rejected("61-topk-negative", one("TopK", "f[3]", ints(-1), outputs=2), "n (TopK", error=TinycompError),
    *(
        failing(f"61-topk-fed-{k}", one("TopK", "f[3]", "i[1]", outputs=2), [floats(3), ints(k)], "n (")
        for k in (4, -1, 1 << 62)
    ),
    rejected("61-onehot-negative", one("OneHot", "i[2]", scalar(-1, np.int64), floats(2)), "n (OneHot",
        error=TinycompError),
    failing("61-onehot-fed", one("OneHot", "i[2]", "i[]", floats(2)), [ints(0, 1), scalar(-3, np.int64)],
        "n (OneHot): ", "negative", "-3"),
    right("61-onehot-outside", one("OneHot", "i[2]", scalar(2, np.int64), np.array([0, 1], F)), [ints(5, -9)],
        np.zeros((2, 2), F)),
    failing("61-split-fed", one("Split", "f[6]", "i[2]", outputs=2), [floats(6), ints(2, 3)], "n (Split)", "6"),
    failing("61-reshape-fed", one("Reshape", "f[6]", "i[2]"), [floats(6), ints(4, 2)], "n (Reshape)"),
    failing("61-tile-fed", one("Tile", "f[6]", "i[1]"), [floats(6), ints(-1)], "n (Tile)"),
    # 62 reflection
    right("62-reflect-wide", one("Pad", "f[3]", ints(4, 4), mode="reflect"), [np.array([1, 2, 3], F)],
        np.array([1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3], F)),
    right("62-reflect-one", one("Pad", "f[1]", ints(2, 2), mode="reflect"), [np.array([7], F)], np.full(5, 7, F)),
    failing("62-reflect-empty", one("Pad", "f[N]", ints(1, 1), mode="reflect"), [np.zeros(0, F)], "nothing to pad from",
        error=TinycompError),
    failing("62-edge-empty", one("Pad", "f[N]", ints(1, 1), mode="edge"), [np.zeros(0, F)], "nothing to pad from",
        error=TinycompError),
    # 63 loops
    *(
        failing(
            f"63-loop-{n}",
            loop(),
            [scalar(n, np.int64), floats(4)],
            "the time is up; expected an end within 0.2 s",
            "timeout=",
            timeout=0.2,
        )
        for n in HUGE[1:]
    ),
    failing("63-short-body", loop(body="w = Neg(v)"), [scalar((1 << 63) - 1, np.int64), floats(4)], "the time is up",
        timeout=0.2),
    failing(
        "63-no-limit",
        text(
            "g (float x) => (float y) { c = Constant<value: tensor = bool {1}>() y = Loop (, c, x) <body"
            " = b (int64 i, bool go, float v) => (bool g, float w) { g = Identity(go) w = Neg(v) }> }"
        ),
        [scalar(1)],
        "the time is up",
        timeout=0.2,
    ),
    failing(
        "63-scan-of-nothing",
        text(
            "g (float s, float[N,0] x) => (float r, float[N,0] y) { r, y = Scan (s, x) <num_scan_inputs = 1, body"
            " = b (float a, float[0] v) => (float c, float[0] w) { c = Neg(a) w = Neg(v) }> }"
        ),
        [scalar(1), np.zeros((1 << 40, 0), F)],
        "the time is up",
        timeout=0.2,
    ),
    failing("63-already-over", relu(), [X], "the time is up", timeout=1e-9),
    failing("63-timeout-zero", relu(), [X], "timeout: not a limit", "found 0", error=OptionError, timeout=0),
    right("63-negative-trips", loop(), [scalar(-5, np.int64), floats(4)], floats(4)),
    # 64 special values propagate
    unary("64-relu", "Relu", np.array([NAN, INF, -INF, DENORMAL], F), np.array([NAN, INF, 0, DENORMAL], F)),
    binary("64-max", "Max", np.array([NAN, 1], F), np.array([1, NAN], F), [NAN, NAN]),
    binary("64-min", "Min", np.array([NAN, 1], F), np.array([1, NAN], F), [NAN, NAN]),
    binary("64-div-zero", "Div", np.array([1, -1, 0], F), np.array([0, 0, 0], F), [INF, -INF, NAN]),
    binary("64-inf-minus-inf", "Sub", np.array([INF], F), np.array([INF], F), [NAN]),
    binary("64-overflow", "Mul", np.array([3e38], F), np.array([10], F), [INF]),
    binary("64-denormals", "Add", np.array([DENORMAL], F), np.array([DENORMAL], F), [DENORMAL + DENORMAL]),
    unary("64-sqrt", "Sqrt", np.array([-1, NAN], F), np.array([NAN, NAN], F)),
    unary("64-log", "Log", np.array([0, -1], F), np.array([-INF, NAN], F)),
    unary("64-exp", "Exp", np.array([INF, -INF, NAN, 1000], F), np.array([INF, 0, NAN, INF], F)),
    unary("64-sigmoid", "Sigmoid", np.array([INF, -INF, NAN], F), np.array([1, 0, NAN], F)),
    unary("64-tanh", "Tanh", np.array([INF, -INF, NAN], F), np.array([1, -1, NAN], F)),
    unary("64-softmax-nan", "Softmax", np.array([NAN, 1], F), np.array([NAN, NAN], F)),
    unary("64-softmax-large", "Softmax", np.array([1e38, -1e38], F), np.array([1, 0], F)),
    right("64-matmul", one("MatMul", "f[1,2]", "f[2,1]"), [np.array([[INF, 0]], F), np.array([[0], [1]], F)],
        np.array([[NAN]], F)),
    # ONNX Runtime's result depends on where in the window the NaN stands.
    right("64-maxpool", one("MaxPool", "f[1,1,2,2]", kernel_shape=[2, 2]), [np.array([[[[NAN, 1], [2, 3]]]], F)],
        np.full((1, 1, 1, 1), NAN, F)),
    right("64-clip", one("Clip", "f[3]", scalar(0), scalar(1)), [np.array([NAN, INF, -INF], F)],
        np.array([NAN, 1, 0], F)),
    right("64-where", one("Where", "b[2]", "f[2]", "f[2]"),
        [np.array([True, False]), np.array([1, NAN], F), np.array([NAN, 2], F)], np.array([1, 2], F)),
    # 65 memory and errors leave the module usable
    doing("65-usable-after-a-memory-error", usable_after_an_error),
]  # fmt: skip
