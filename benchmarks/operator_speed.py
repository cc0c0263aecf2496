"""Single operators beside onnxruntime: one model of one node each, which shows what no whole model does.

``python -m benchmarks operator-speed [OPERATOR …]`` times both engines by turns, in one process and one thread, in
processor time, so that it can be run on a machine that has other work to do. Ratios are onnxruntime's time over ours.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks import output, page
from benchmarks.machine import describe
from benchmarks.peers import relative_error

Array = NDArray[Any]
_RNG = np.random.default_rng(0)
_SQUARE = (1024, 1024)
_RANDOM = frozenset({"Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike"})
"""Operators whose results cannot be compared."""


@dataclass(frozen=True)
class Const:
    """An operand that the model holds."""

    array: Array


@dataclass(frozen=True)
class Case:
    """A node.

    Attributes:
        op: Its operator.
        operands: Arrays that are given to every run, and constants.
        attrs: Its attributes.
        label: What distinguishes it from other cases of the operator.
        outputs: How many results it has.
        opset: The version of ONNX.
        domain: Of the operator.
    """

    op: str
    operands: tuple[Array | Const, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    outputs: int = 1
    opset: int = 20
    domain: str = ""

    @property
    def name(self) -> str:
        """The operator and the label."""
        return f"{self.op} {self.label}".strip()

    @property
    def feeds(self) -> dict[str, Array]:
        """What is given to every run."""
        return {f"x{i}": each for i, each in enumerate(self.operands) if not isinstance(each, Const)}

    def model(self) -> bytes:
        """The model."""
        names = [f"x{i}" for i in range(len(self.operands))]
        node = helper.make_node(
            self.op, names, [f"y{i}" for i in range(self.outputs)], domain=self.domain, **self.attrs
        )
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self.feeds.items()
        ]
        constants = [
            numpy_helper.from_array(np.asarray(each.array), name)
            for name, each in zip(names, self.operands, strict=True)
            if isinstance(each, Const)
        ]
        results = [onnx.ValueInfoProto(name=name) for name in node.output]
        graph = helper.make_graph([node], self.op, inputs, results, constants)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def _case(op: str, *operands: Array | Const, label: str = "", outputs: int = 1, opset: int = 20, domain: str = "",
          **attrs: Any) -> Case:  # fmt: skip
    return Case(op, operands, attrs, label, outputs, opset, domain)


def _real(*shape: int, dtype: Any = np.float32) -> Array:
    return _RNG.standard_normal(shape).astype(dtype)


def _unit(*shape: int, dtype: Any = np.float32) -> Array:
    """Numbers between 0.1 and 0.9, for which every function is defined."""
    return _RNG.uniform(0.1, 0.9, shape).astype(dtype)


def _whole(most: int, *shape: int, dtype: Any = np.int64) -> Array:
    return _RNG.integers(0, most, shape).astype(dtype)


def _truth(*shape: int) -> Array:
    return _RNG.random(shape) > 0.5


def _ints(*numbers: int) -> Const:
    return Const(np.array(numbers, np.int64))


def _number(number: float, dtype: Any = np.float32) -> Const:
    return Const(np.array(number, dtype))


_UNARY = (
    "Abs Acos Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish IsInf"
    " IsNaN LeakyRelu Log LogSoftmax Mish Neg Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softmax"
    " Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Hardmax"
)  # fmt: skip


def elementwise() -> Iterator[Case]:
    """Functions of one or two tensors, comparisons, conversions."""
    for op in _UNARY.split():
        yield _case(op, _unit(*_SQUARE))
    for op in ["Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Max", "Min"]:
        yield _case(op, _unit(*_SQUARE), _unit(*_SQUARE))
    yield _case("Add", _real(64, 128, 56), _real(128, 1), label="channels")
    yield _case("Mul", _real(8, 64, 32, 32), _real(8, 64, 1, 1), label="squeeze and excite")
    for op in ["Add", "Mul", "Equal"]:
        yield _case(op, _whole(9, *_SQUARE), _whole(9, *_SQUARE), label="int64")
    for op in ["Div", "Mod"]:
        yield _case(op, _whole(1000, *_SQUARE), _whole(99, *_SQUARE) + 1, label="int64")
    yield _case("Mod", _real(*_SQUARE), _unit(*_SQUARE), fmod=1)
    for op in ["Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"]:
        yield _case(op, _real(*_SQUARE), _real(*_SQUARE))
    for op in ["And", "Or", "Xor"]:
        yield _case(op, _truth(*_SQUARE), _truth(*_SQUARE))
    yield _case("Not", _truth(*_SQUARE))
    yield _case("Where", _truth(*_SQUARE), _real(*_SQUARE), _real(*_SQUARE))
    yield _case("Where", _truth(1, 1, 512, 512), _real(4, 8, 512, 512), _number(-1e9), label="mask")
    yield _case("BitwiseAnd", _whole(9, *_SQUARE), _whole(9, *_SQUARE))
    yield _case("EyeLike", _real(*_SQUARE))
    for to in ["INT64", "INT32", "FLOAT16", "UINT8", "BOOL", "DOUBLE"]:
        yield _case("Cast", _real(*_SQUARE), to=TensorProto.DataType.Value(to), label=f"to {to.lower()}")
    yield _case("Cast", _whole(9, *_SQUARE), to=TensorProto.FLOAT, label="int64 to float")
    yield _case("Cast", _real(*_SQUARE, dtype=np.float64), to=TensorProto.INT32, label="double to int32")
    yield _case("Cast", _whole(9, *_SQUARE, dtype=np.uint8), to=TensorProto.INT32, label="uint8 to int32")
    yield _case("Cast", _truth(*_SQUARE), to=TensorProto.UINT8, label="bool to uint8")
    yield _case("Cast", _real(*_SQUARE, dtype=np.float16), to=TensorProto.FLOAT, label="float16 to float")
    yield _case("Clip", _real(*_SQUARE), _number(0), _number(1))
    for op in ["Exp", "Tanh", "Softmax"]:
        yield _case(op, _real(*_SQUARE, dtype=np.float64), label="double")
    for op in ["Sigmoid", "Softmax", "IsNaN"]:
        yield _case(op, _real(*_SQUARE, dtype=np.float16), label="float16")
    for op in ["Bernoulli", "RandomNormalLike", "RandomUniformLike"]:
        yield _case(op, _unit(*_SQUARE))
    yield _case("Multinomial", _real(16, 1000), sample_size=10)
    yield _case("QuantizeLinear", _real(*_SQUARE), _number(0.1), _number(128, np.uint8))
    yield _case("DequantizeLinear", _whole(255, *_SQUARE, dtype=np.uint8), _number(0.1), _number(128, np.uint8))
    yield _case("DynamicQuantizeLinear", _real(*_SQUARE), outputs=3)
    yield _case("Softmax", _real(64, 256, 32), axis=1, label="axis 1")
    yield _case("Softmax", _real(1024, 17), label="rows of 17")


def reductions() -> Iterator[Case]:
    """Sums and the like, normalisations, the largest elements, order."""
    for op in ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSumExp", "SumSquare", "LogSum"]:
        yield _case(f"Reduce{op}", _unit(*_SQUARE), _ints(-1), keepdims=0)
        yield _case(f"Reduce{op}", _unit(*_SQUARE), _ints(0), keepdims=0, label="axis 0")
    yield _case("ReduceMean", _unit(8, 64, 32, 32), _ints(2, 3), label="image")
    yield _case("ReduceSum", _unit(64, 64, 64), _ints(0, 2), label="axes 0 and 2")
    yield _case("ReduceSum", _whole(9, *_SQUARE), _ints(1), label="int64")
    yield _case("ReduceSum", _real(*_SQUARE, dtype=np.float64), _ints(1), label="double")
    for op in ["ArgMax", "ArgMin"]:
        yield _case(op, _real(*_SQUARE), axis=-1)
        yield _case(op, _real(*_SQUARE), axis=0, label="axis 0")
    yield _case("ArgMax", _real(1, 21, 256, 256), axis=1, label="classes of pixels")
    for rows, size, count in ((64, 10_000, 10), (64, 10_000, 1000), (64, 1000, 1000), (1, 100_000, 300)):
        yield _case("TopK", _real(rows, size), _ints(count), outputs=2, label=f"{count} of {size}")
    yield _case("CumSum", _real(*_SQUARE), _number(1, np.int64))
    yield _case("CumSum", _real(*_SQUARE), _number(0, np.int64), label="axis 0")
    yield _case("CumSum", _whole(2, 8, 4096), _number(1, np.int64), label="int64")
    yield _case("NonZero", _truth(*_SQUARE))
    yield _case("Unique", _whole(1000, 100_000), outputs=4)
    yield _case("Unique", _real(100_000), outputs=4, label="float")
    yield _case("LayerNormalization", _real(512, 768), Const(_unit(768)), Const(_real(768)))
    yield _case("InstanceNormalization", _real(4, 64, 56, 56), Const(_unit(64)), Const(_real(64)))
    yield _case("GroupNormalization", _real(2, 64, 56, 56), Const(_unit(64)), Const(_real(64)), num_groups=32, opset=21)
    statistics = [_unit(64), _real(64), _real(64), _unit(64)]
    yield _case("BatchNormalization", _real(8, 64, 32, 32), *map(Const, statistics))
    yield _case("BatchNormalization", _real(8, 64, 32, 32), *statistics, label="of parameters that a run brings")
    yield _case("LRN", _real(1, 64, 56, 56), size=5)
    yield _case("LpNormalization", _real(512, 768), axis=-1)


def movement() -> Iterator[Case]:
    """Operators that put elements elsewhere."""
    for shape, perm, label in (
        ((64, 128, 64), (0, 2, 1), "of matrices"),
        ((8, 3, 224, 224), (0, 2, 3, 1), "to channels last"),
        ((8, 224, 224, 3), (0, 3, 1, 2), "to channels first"),
        ((8, 128, 12, 64), (0, 2, 1, 3), "of heads"),
        ((1024, 1024), (1, 0), "of a matrix"),
        ((16, 16, 16, 16, 16), (4, 3, 2, 1, 0), "of five axes"),
    ):
        yield _case("Transpose", _real(*shape), perm=perm, label=label)
    yield _case("Concat", _real(64, 128, 32), _real(64, 64, 32), axis=1)
    yield _case("Concat", *(_real(1024, 8) for _ in range(50)), axis=1, label="of 50")
    yield _case("Split", _real(*_SQUARE), outputs=4, axis=1, num_outputs=4)
    yield _case("Slice", _real(*_SQUARE), _ints(10, 10), _ints(900, 900), _ints(0, 1), _ints(1, 1))
    yield _case("Slice", _real(*_SQUARE), _ints(0), _ints(1024), _ints(1), _ints(2), label="every second")
    yield _case("Slice", _real(*_SQUARE), _ints(-1), _ints(-2000), _ints(1), _ints(-1), label="backwards")
    for mode in ("constant", "reflect", "edge"):
        yield _case("Pad", _real(8, 64, 56, 56), _ints(0, 0, 1, 1, 0, 0, 1, 1), mode=mode, label=mode)
    yield _case("Tile", _real(64, 128), _ints(8, 8))
    yield _case("Expand", _real(64, 1, 128), _ints(64, 64, 128))
    yield _case("Gather", _real(30_000, 256), _whole(30_000, 8, 128))
    yield _case("Gather", _real(*_SQUARE), _whole(1024, 300), axis=1, label="axis 1")
    yield _case("GatherElements", _real(*_SQUARE), _whole(1024, *_SQUARE), axis=1)
    yield _case("GatherElements", _real(*_SQUARE), _whole(1024, *_SQUARE), axis=0, label="axis 0")
    yield _case("GatherND", _real(64, 64, 64), _whole(64, 10_000, 2))
    yield _case("ScatterElements", _real(*_SQUARE), _whole(1024, *_SQUARE), _real(*_SQUARE), axis=1)
    for reduction in ("add", "max"):
        operands = _real(100_000), _whole(100_000, 200_000), _real(200_000)
        yield _case("ScatterElements", *operands, axis=0, reduction=reduction, label=f"of a vector, {reduction}")
    yield _case("ScatterND", _real(4096, 64), _whole(4096, 5000, 1), _real(5000, 64))
    yield _case("OneHot", _whole(100, 8192), _number(100, np.int64), Const(np.array([0, 1], np.float32)))
    yield _case("Compress", _real(*_SQUARE), _truth(1024), axis=0)
    yield _case("Trilu", _real(*_SQUARE))
    yield _case("DepthToSpace", _real(1, 64, 128, 128), blocksize=2)
    yield _case("SpaceToDepth", _real(1, 16, 256, 256), blocksize=2)


def windows() -> Iterator[Case]:
    """Convolutions, pools, resizes."""
    for label, image, filters, attrs in (
        ("3x3", (1, 64, 56, 56), (64, 64, 3, 3), {"pads": [1] * 4}),
        ("depthwise", (1, 64, 56, 56), (64, 1, 3, 3), {"pads": [1] * 4, "group": 64}),
        ("depthwise 7x7", (1, 64, 56, 56), (64, 1, 7, 7), {"pads": [3] * 4, "group": 64}),
        ("dilated", (1, 64, 56, 56), (64, 64, 3, 3), {"pads": [2] * 4, "dilations": [2, 2]}),
        ("patches", (1, 3, 224, 224), (768, 3, 16, 16), {"strides": [16, 16]}),
        ("of spectra", (1, 80, 3000), (384, 80, 3), {"pads": [1, 1]}),
        ("of a waveform", (1, 1, 16_000), (512, 1, 10), {"strides": [5]}),
        ("of lines, depthwise", (1, 512, 1000), (512, 1, 31), {"pads": [15, 15], "group": 512}),
        ("of volumes", (1, 16, 16, 28, 28), (32, 16, 3, 3, 3), {"pads": [1] * 6}),
    ):
        yield _case("Conv", _real(*image), Const(_real(*filters)), label=label, **attrs)
    for label, image, filters, attrs in (
        ("2x2", (1, 64, 28, 28), (64, 32, 2, 2), {"strides": [2, 2]}),
        ("4x4", (1, 64, 28, 28), (64, 32, 4, 4), {"strides": [2, 2], "pads": [1] * 4}),
        ("depthwise", (1, 64, 28, 28), (64, 1, 4, 4), {"strides": [2, 2], "pads": [1] * 4, "group": 64}),
        ("of lines", (1, 256, 100), (256, 128, 16), {"strides": [8], "pads": [4, 4]}),
    ):
        yield _case("ConvTranspose", _real(*image), Const(_real(*filters)), label=label, **attrs)
    for op in ["MaxPool", "AveragePool", "LpPool"]:
        yield _case(op, _real(1, 64, 112, 112), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    yield _case("MaxPool", _real(1, 64, 112, 112), kernel_shape=[2, 2], strides=[2, 2], outputs=2, label="with indices")
    yield _case("MaxPool", _real(1, 32, 16, 56, 56), kernel_shape=[2] * 3, strides=[2] * 3, label="of volumes")
    yield _case("MaxPool", _real(1, 256, 13, 13), kernel_shape=[13, 13], pads=[6] * 4, label="13x13")
    for op in ["GlobalMaxPool", "GlobalAveragePool"]:
        yield _case(op, _real(8, 256, 14, 14))
    nothing, twice = Const(np.array([], np.float32)), Const(np.array([1, 1, 2, 2], np.float32))
    for mode in ("nearest", "linear", "cubic"):
        yield _case("Resize", _real(1, 64, 56, 56), nothing, twice, mode=mode, label=mode)
    image, size = (1, 3, 480, 640), _ints(1, 3, 224, 224)
    yield _case("Resize", _real(*image), nothing, nothing, size, mode="linear", label="of an image")
    yield _case("Resize", _real(*image), nothing, nothing, size, mode="linear", antialias=1, label="antialiased")
    yield _case("GridSample", _real(1, 32, 64, 64), 2 * _unit(1, 64, 64, 2) - 1)
    yield _case("AffineGrid", _real(1, 2, 3), _ints(1, 3, 224, 224))


def products() -> Iterator[Case]:
    """Products of matrices, recurrent layers, transforms."""
    yield _case("MatMul", _real(256, 512), Const(_real(512, 512)))
    yield _case("MatMul", _real(12, 128, 64), _real(12, 64, 128), label="of a batch")
    yield _case("MatMul", _real(1, 512), Const(_real(512, 2048)), label="of a row")
    yield _case("MatMul", _real(256, 512, dtype=np.float64), Const(_real(512, 512, dtype=np.float64)), label="double")
    yield _case(
        "MatMul", _whole(9, 128, 256, dtype=np.int32), Const(_whole(9, 256, 256, dtype=np.int32)), label="int32"
    )
    yield _case("Gemm", _real(256, 512), Const(_real(512, 512)), Const(_real(512)), transB=1)
    yield _case("MatMulInteger", _whole(255, 256, 512, dtype=np.uint8), Const(_whole(127, 512, 512, dtype=np.int8)))
    yield _case("Einsum", _real(2, 64, 8, 32), _real(2, 64, 8, 32), equation="bqhd,bkhd->bhqk")
    yield _case("Einsum", _real(64, 64), _real(64, 64), _real(64, 64), equation="ij,jk,kl->il", label="of three")
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        weights = (Const(_real(1, 128 * gates, columns) / 16) for columns in (64, 128))
        yield _case(op, _real(50, 4, 64), *weights, outputs=3 if op == "LSTM" else 2, hidden_size=128)
    yield _case("DFT", _real(16, 1024, 1), _number(1024, np.int64), _number(1, np.int64))
    window = Const(np.hanning(400).astype(np.float32))
    yield _case("STFT", _real(1, 16_000, 1), _number(160, np.int64), window, _number(400, np.int64), opset=17)
    yield _case("FastGelu", _real(4, 128, 768), domain="com.microsoft")


FAMILIES = (elementwise, reductions, movement, windows, products)


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """Compare the engines on one node; what onnxruntime does not run has no ratio."""
    import onnxruntime as ort

    import tinycomp

    model, feeds = case.model(), case.feeds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = tinycomp.compile(model, threads=1)
    settings = ort.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = 1, 4
    row: dict[str, Any] = {"case": case.name, "host": len(module.report().hosts)}
    try:
        session = ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has several classes for what it does not know
        return {**row, "refused": str(error).partition("\n")[0]}
    calls: dict[str, Callable[[], Any]] = {
        "tinycomp": lambda: module.run(feeds), "onnxruntime": lambda: session.run(None, feeds),
    }  # fmt: skip
    ours, theirs = list(calls["tinycomp"]().values()), calls["onnxruntime"]()
    if case.op not in _RANDOM:
        row["error"] = max(map(relative_error, ours, theirs))
    once = max(_times(calls["tinycomp"], 1)[0], 1e-6)
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            samples[name] += _times(call, int(max(3, min(60, 0.15 / once))))
    return {**row, **{name: statistics.median(found) for name, found in samples.items()}}


def _times(call: Callable[[], Any], count: int) -> list[float]:
    """Seconds of processor time of each of so many calls."""
    found = []
    for _ in range(count):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return found


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """The rows as Markdown."""
    names = ["operator", "tinycomp, ms", "onnxruntime, ms", "onnxruntime / ours", "nodes on the host", "error"]
    return page.table(names, map(_cells, rows))


def _cells(row: Mapping[str, Any]) -> list[str]:
    if "refused" in row:
        return [row["case"], "", "", row["refused"], str(row["host"]), ""]
    times = [f"{row[name] * 1e3:.3f}" for name in ("tinycomp", "onnxruntime")]
    error = f"{row['error']:.1e}" if "error" in row else ""
    return [row["case"], *times, f"{row['onnxruntime'] / row['tinycomp']:.2f}", str(row["host"]), error]


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure and print a Markdown table."""
    given = None if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(prog="python -m benchmarks operator-speed", description=__doc__)
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help="only these (default: all)")
    parser.add_argument("--rounds", type=int, default=3, help="blocks per engine (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="one block")
    output.add_option(parser)
    options = parser.parse_args(given)
    rounds = 1 if options.quick else options.rounds
    cases = [case for family in FAMILIES for case in family() if not options.operators or case.op in options.operators]
    rows = [measure(case, rounds) for case in cases]
    found = output.record("operator-speed", output.command_line("operator-speed", given), {"rounds": rounds}, rows)
    print(f"{describe(found['machine'])}\n\n{table(rows)}")
    output.save(options.output, found, table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
