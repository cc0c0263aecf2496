"""Every operator of the C target with symbolic sizes: one program, compiled once, that serves every set of sizes."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tinycomp
from tests.cases import (
    attention,
    cast,
    elementwise,
    indexing,
    matmul,
    movement,
    norm,
    pool,
    quantize,
    recurrent,
    reduction,
    resize,
)  # fmt: skip
from tests.cases import conv as convs
from tests.cases.subject import rows
from tests.cases.values import floats
from tests.targets.c.harness import Case, assert_close, compile_for, make_model, nodes_of, run_onnxruntime
from tests.targets.c.ops import test_attention, test_norm, test_rotary
from tests.targets.c.quantized import test_block_products, test_run_time_products
from tests.targets.c.quantized.test_layers import LAYERS, conv
from tests.targets.c.quantized.test_weights import Product
from tests.targets.quantized_layers import Layer
from tinycomp import targets
from tinycomp.errors import TinycompError
from tinycomp.targets.c import TABLE

CASES_EACH = 6
"""Cases of an operator out of its table, evenly spread."""

TABLES = (
    elementwise.unary, elementwise.binary, elementwise.dtypes, matmul.products, attention.attentions,
    quantize.integer_operators, recurrent.recurrents, convs.convolutions, pool.pools, norm.normalisations,
    reduction.reductions, movement.movement, indexing.indexing, indexing.gathers, quantize.quantisations, cast.casts,
    cast.bit_casts, resize.resizes, convs.transposed_convolutions,
)  # fmt: skip
BY_OP: dict[str, list[Case]] = collections.defaultdict(list)
for _case in itertools.chain.from_iterable(make() for make in TABLES):
    if any(x.ndim for x in _case.feeds.values()):
        BY_OP[_case.op].append(_case)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that the C target generates in a test."""
    made: list[str] = []
    generate = targets.c.generate

    def counted(region: Any, *args: Any) -> Any:
        made.append(region.op)
        return generate(region, *args)

    monkeypatch.setattr(targets.c, "generate", counted)
    return made


# Single operators -----------------------------------------------------------------------------------------------------

REFUSED: Mapping[str, Sequence[str]] = {
    "Attention": ["the number of heads or their size is not known", "several regions"],
    "Clip": ["not one number"],
    "ConvTranspose": ["the padding follows from the output shape"],
    "ConvInteger": ["several regions"],  # the widths of automatic padding are values of a run
    "DequantizeLinear": ["scales and zero points for"],
    "GatherND": ["the number of indices in a tuple is not known"],
    "Gemm": ["is neither a row nor full", "C is not a constant and has shape"],
    "LayerNormalization": ["not of the normalised shape"],
    "QuantizeLinear": ["scales and zero points for"],
    "Resize": ["batch or channels are resized", "does not follow from sizes"],
    "ScatterND": ["the number of indices in a tuple is not known"],
    "Squeeze": ["does not follow from sizes"],
}
"""Why a case of an operator stays on the host where one of its sizes is symbolic, by operator."""


FIXED = {"NonMaxSuppression": 4}
"""Sizes that an operator prescribes."""
NOT_WITHOUT_ELEMENTS = {
    "Attention", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Hardmax", "ReduceLogSum", "ReduceLogSumExp",
}  # fmt: skip
"""Operators that are not defined, or not alike everywhere, where there is nothing to reduce."""


def name_of(size: int) -> str:
    return f"d{size}"


def symbolic_model(case: Case, sizes: Sequence[int]) -> onnx.ModelProto:
    """Return the case's model with a name for every dimension of one of these sizes, the same name for equal ones."""
    model = case.model()
    for info in model.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            if dim.HasField("dim_value") and dim.dim_value in sizes:
                dim.dim_param = name_of(dim.dim_value)
    return model


def resized(array: np.ndarray, old: int, new: int) -> np.ndarray:
    """Return an array whose dimensions of size ``old`` have size ``new``, its elements repeated."""
    shape = tuple(new if n == old else n for n in array.shape)
    return np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)


def refusal(model: onnx.ModelProto) -> str | None:
    """Return why the C target does not take the whole model, or None."""
    report = compile_for(model).report()
    if len(report.regions) == 1 and not report.hosts:
        return None
    if not report.hosts:
        return "several regions"
    return "; ".join(str(remark) for host in report.hosts for remark in host.reasons)


def spread(cases: Sequence[Case]) -> Iterator[Case]:
    step = max(1, len(cases) // CASES_EACH)
    yield from itertools.islice(cases, 0, None, step)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", sorted(BY_OP.keys() - {"Identity"}))  # one alone is not worth a region
def test_one_program_serves_all_sizes_of_an_operator(op: str, programs: list[str]):
    runs = 0
    for case in spread(BY_OP[op]):
        sizes = sorted({n for x in case.feeds.values() for n in x.shape} - {FIXED.get(op)})
        free = []
        for size in sizes:
            why = refusal(symbolic_model(case, [size]))
            if why is None:
                free.append(size)
            else:
                assert any(reason in why for reason in REFUSED.get(op, ())), f"{case}: {size}: {why}"
        if free:
            runs += serve(case, free, programs)
    assert runs > 3


def serve(case: Case, free: Sequence[int], programs: list[str]) -> int:
    """Run a case with these sizes symbolic at several sizes of each, and return how many runs that were."""
    model = symbolic_model(case, free)
    module, host = compile_for(model), compile_for(model, "host")
    assert not module.report().hosts
    assert len(module.report().regions) == 1
    programs.clear()
    runs = 0
    for old in free:
        for new in dict.fromkeys((old, 1, old + 1, 2 * old + 3, *(() if case.op in NOT_WITHOUT_ELEMENTS else (0,)))):
            feeds = {name: resized(x, old, new) for name, x in case.feeds.items()}
            try:
                with np.errstate(all="ignore"):
                    wanted = list(host.run(feeds).values())
            except TinycompError:
                continue  # the operator does not work for these sizes
            found = list(module.run(feeds).values())
            for f, w in zip(found, wanted, strict=True):
                assert_close(f, w, case, f"{case}: {new} for {old}")
            peer = run_onnxruntime(model, feeds) if case.onnxruntime and new == 2 * old + 3 else None
            for f, p in zip(found, peer or [], strict=bool(peer)):
                assert_close(f, p, case, f"{case}: {new} for {old} against onnxruntime")
            runs += 1
    assert programs == []
    return runs


# Operators and composites in models of their own ----------------------------------------------------------------------

Shapes = Mapping[str, Sequence[int | str]]
Sets = Sequence[Mapping[str, int]]


class Model:
    """A model with symbolic sizes, and the sizes that it is run at.

    Args:
        graph: A model, or a graph.
        shapes: Of every input, with names for the sizes that vary.
        sets: Sets of numbers for these names.
        names: The operators and composites that it is about.
        draw: Makes an input of a name, shape and dtype; by default of normal numbers, or of all 8-bit ones.
    """

    def __init__(
        self,
        graph: Any,
        shapes: Shapes,
        sets: Sets,
        names: Sequence[str],
        draw: Callable[..., np.ndarray] | None = None,
    ) -> None:
        self.graph = graph
        self.shapes = shapes
        self.sets = sets
        self.names = names
        self.draw = draw or numbers

    def at(self, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        return {n: tuple(sizes[d] if isinstance(d, str) else d for d in shape) for n, shape in self.shapes.items()}


def numbers(name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def named(model: onnx.ModelProto | bytes, shapes: Shapes) -> onnx.ModelProto:
    """Return a model whose inputs have these shapes."""
    result = onnx.load_from_string(model) if isinstance(model, bytes) else model
    for info in result.graph.input:
        if info.name in shapes:
            dtype = info.type.tensor_type.elem_type
            info.CopyFrom(helper.make_tensor_value_info(info.name, dtype, shapes[info.name]))
    return result


IMAGES = [{"n": 2, "h": 9, "w": 7}, {"n": 1, "h": 3, "w": 3}, {"n": 3, "h": 16, "w": 21}, {"n": 0, "h": 5, "w": 4}]
ROWS = [{"n": 5}, {"n": 1}, {"n": 33}, {"n": 0}]
TOKENS = [{"n": 2, "t": 7}, {"n": 1, "t": 1}, {"n": 3, "t": 65}, {"n": 0, "t": 4}]


def layers() -> Iterator[tuple[str, Model]]:
    shape = ("n", 16, "h", "w")
    for name, (composite, build) in LAYERS.items():
        layer = Layer(*shape)
        yield name, Model(layer.done(build(layer), 0.043), {"x0": shape}, IMAGES, [f"c.{composite}"])
    layer = Layer(*shape)
    yield "real", Model(layer.finish(layer.Softmax(conv(layer), axis=1)), {"x0": shape}, IMAGES, ["c.qconv_real"])


def dense_layers() -> Iterator[tuple[str, Model]]:
    for kind in ("qdense", "qdense_real"):
        layer = Layer("n", 40)
        w = layer.weight(40, 24, axis=1)
        y = layer.Gemm(layer.dequantized(layer.inputs[0]), w, layer.bias(w))
        graph = layer.done(y) if kind == "qdense" else layer.finish(layer.Softmax(y))
        yield kind, Model(graph, {"x0": ("n", 40)}, ROWS, [f"c.{kind}"])


def run_time_products() -> Iterator[tuple[str, Model]]:
    shapes = (("n", 3, "t", 17), ("n", 3, 17, "t"))
    for real in (False, True):
        graph = test_run_time_products.product(("uint8", "int8"), shapes, real)
        name = "c.qmatmul_real" if real else "c.qmatmul"
        yield name, Model(graph, dict(zip("ab", shapes, strict=True)), TOKENS, [name])


def float_composites() -> Iterator[tuple[str, Model]]:
    node = helper.make_node
    for op, x, w in (("Conv", ("n", 4, "h", "w"), (4, 4, 3, 3)), ("ConvTranspose", ("n", 4, "h", "w"), (4, 4, 3, 3))):
        attrs = {"pads": [1] * 4}
        nodes = [node(op, ["x", "w", "b"], ["c"], **attrs), node("Relu", ["c"], ["y"])]
        constants = {"w": floats(*w), "b": floats(4)}
        model = make_model(nodes, {"x": floats(1, 4, 5, 5)}, constants, ["y"], symbolic={"x": x})
        yield op, Model(model, {"x": x}, IMAGES, [{"Conv": "c.conv"}.get(op, "c.conv_transpose")])
    nodes = [node("Gemm", ["x", "w", "b"], ["c"]), node("Relu", ["c"], ["y"])]
    constants = {"w": floats(8, 5), "b": floats(5)}
    model = make_model(nodes, {"x": floats(2, 8)}, constants, ["y"], symbolic={"x": ("n", 8)})
    yield "Gemm", Model(model, {"x": ("n", 8)}, ROWS, ["c.gemm"])
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["c"]), node("Relu", ["c"], ["y"])]
    model = make_model(nodes, {"x": floats(2, 3, 8)}, constants, ["y"], symbolic={"x": ("n", "t", 8)})
    yield "MatMul", Model(model, {"x": ("n", "t", 8)}, TOKENS, ["c.matmul"])
    for depth in ("h", 6):
        x = ("n", 4, depth, "h", "w")
        nodes = [node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 6, strides=[2, 1, 1]), node("Relu", ["c"], ["y"])]
        constants = {"w": floats(6, 4, 3, 3, 3), "b": floats(6)}
        model = make_model(nodes, {"x": floats(1, 4, 6, 5, 5)}, constants, ["y"], symbolic={"x": x})
        yield f"volume {depth}", Model(model, {"x": x}, IMAGES, ["c.conv"])


def language_composites() -> Iterator[tuple[str, Model]]:
    hidden = test_attention.HIDDEN
    model, _ = test_attention.block("Mul", None)
    shapes: Shapes = {"x": ("n", "t", hidden)}
    yield "attention", Model(named(model, shapes), shapes, TOKENS, ["c.attention"])
    nodes, constants = test_attention.shared_heads()
    shared = make_model(nodes, test_attention.shared_feeds(3, 5), constants, ["y"])
    size = test_attention.SIZE
    shapes = {"q": ("n", test_attention.QUERIES, "t", size)}
    shapes |= dict.fromkeys("kv", ("n", test_attention.SHARED, "t", size))
    yield "grouped attention", Model(named(shared, shapes), shapes, TOKENS[:3], ["c.grouped_attention"])
    heads = test_rotary.HEADS * test_rotary.SIZE
    turned, _ = test_rotary.model()
    shapes = {"x": ("n", "t", heads), **dict.fromkeys(("cos", "sin"), ("n", 1, "t", test_rotary.SIZE))}
    yield "rotary", Model(named(turned, shapes), shapes, TOKENS, ["c.rotary"])
    shapes = {"x": ("n", "t", 24), "r": ("n", "t", 24)}
    feeds = {"x": test_norm.X, "r": test_norm.Y}
    for name, text in test_norm.SUMS.items():
        summed = nodes_of(f"{test_norm.SUM} {text}")
        used = {n for each in summed for n in each.input}
        if "table" in used:
            continue  # it has a gain for every place of a known length
        constants = {n: v for n, v in test_norm.CONSTANTS.items() if n in used}
        model = make_model(summed, feeds, constants, ["y"], 23, symbolic=shapes)
        yield f"sum {name}", Model(model, shapes, TOKENS, ["c.norm_of_sum"])
    nodes = nodes_of(test_norm.spelled("Pow", "Div", True))
    used = {n for each in nodes for n in each.input}
    constants = {n: v for n, v in test_norm.CONSTANTS.items() if n in used}
    model = make_model(nodes, {"x": test_norm.X}, constants, ["y"], 23, symbolic={"x": shapes["x"]})
    yield "spelled", Model(model, {"x": shapes["x"]}, TOKENS, ["c.rms_norm"])
    product = Product("int4", 16, "MatMul")
    shapes = {"x": ("n", product.x.shape[-1])}
    yield "wdense", Model(named(product.model, shapes), shapes, ROWS, ["c.wdense"])
    blocks = {"x": ("n", "t", test_block_products.K)}
    yield (
        "blocks",
        Model(named(test_block_products.nbits(activation="Relu"), blocks), blocks, TOKENS, ["c.blocks_dense"]),
    )
    yield "blocks alone", Model(named(test_block_products.nbits(), blocks), blocks, TOKENS, ["MatMulNBits"])


def position(name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return positions of rows, or numbers."""
    if np.dtype(dtype).kind == "f":
        return numbers(name, shape, dtype)
    return np.tile(np.arange(shape[-1]), (*shape[:-1], 1)).astype(dtype)


def sizes_as_data() -> Iterator[tuple[str, Model]]:
    """Operators whose cases have no inputs, or whose operands are sizes."""
    node = helper.make_node
    x = {"x": ("n", "t")}
    real = node("Cast", ["y"], ["r"], to=onnx.TensorProto.FLOAT)
    counts = node("Gather", ["s", "first"], ["n"])
    forms: dict[str, list[onnx.NodeProto]] = {
        "Shape": [node("Shape", ["x"], ["s"]), node("ReduceProd", ["s"], ["y"], keepdims=0), real],
        "Size": [node("Size", ["x"], ["y"]), real],
        "ConstantOfShape": [node("Shape", ["x"], ["s"]), node("ConstantOfShape", ["s"], ["r"])],
        "Range": [node("Shape", ["x"], ["s"]), counts, node("Range", ["zero", "n", "one"], ["y"]), real],
    }
    whole = {"zero": np.int64(0), "one": np.int64(1), "first": np.int64(1)}
    for name, nodes in forms.items():
        used = {n for each in nodes for n in each.input}
        constants = {n: v for n, v in whole.items() if n in used}
        added = [*nodes, node("Add", ["x", "r"], ["z"])]
        model = make_model(added, {"x": floats(2, 3)}, constants, ["z"], symbolic=x)
        yield name, Model(model, x, TOKENS, [name, "Sizes"])
    shapes: Shapes = {"x": ("n", 3, "t", 8), "cos": (70, 4), "sin": (70, 4), "p": ("n", "t")}
    feeds = {"x": floats(2, 3, 5, 8), "cos": floats(70, 4), "sin": floats(70, 4), "p": np.int64([[0]])}
    for domain, order in (("", ["x", "cos", "sin", "p"]), ("com.microsoft", ["x", "p", "cos", "sin"])):
        nodes = [node("RotaryEmbedding", order, ["y"], domain=domain), node("Relu", ["y"], ["z"])]
        model = make_model(nodes, feeds, {}, ["z"], 23, symbolic=shapes)
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        yield f"{domain} RotaryEmbedding", Model(model, shapes, TOKENS[:3], ["RotaryEmbedding"], position)


MODELS: dict[str, Model] = dict(
    itertools.chain(
        layers(), dense_layers(), run_time_products(), float_composites(), language_composites(), sizes_as_data()
    )
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_one_program_serves_all_sizes_of_a_model(name: str, programs: list[str]):
    """It computes what a program for these sizes computes, to the bit where it is of whole numbers."""
    model = MODELS[name]
    module = tinycomp.compile(model.graph, "c", strict=True)
    (region,) = module.report().regions
    wanted = {n for n in model.names if n.startswith("c.")}
    assert wanted <= set(region.composites), region.composites
    programs.clear()
    found = {}
    for place, sizes in enumerate(model.sets):
        shapes = model.at(sizes)
        feeds = {s.name: model.draw(s.name, shapes[s.name], s.dtype) for s in module.inputs}
        found[place] = feeds, module.run(feeds)
    assert programs == []
    for place, (feeds, results) in found.items():
        fixed = tinycomp.compile(model.graph, "c", shapes=model.at(model.sets[place]))
        for key, array in fixed.run(feeds).items():
            if array.dtype.kind == "f":
                np.testing.assert_allclose(results[key], array, rtol=1e-4, atol=1e-5, err_msg=str(model.sets[place]))
            else:
                np.testing.assert_array_equal(results[key], array, str(model.sets[place]))


ELSEWHERE = {
    "GroupQueryAttention", "Relayout", "Elements", "Conditions", "Declared", "c.qconv_scaled", "c.qdense_scaled",
    "c.qavgpool", "c.qresize", "c.qsoftmax", "Distances", "PairwiseCoupling", "GroupSlices", "MaxPoolIndices",
    "SampleCells", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Tokenizer",
    "TreeEnsemble",
}  # fmt: skip
"""What comes with others in these tests, or is tested with symbolic sizes in a file of its own; the rows of
:mod:`tests.cases` are met with open sizes there."""


def test_nothing_is_missing():
    covered = {
        *BY_OP,
        *ELSEWHERE,
        *(row.op for row in rows()),
        *(name for model in MODELS.values() for name in model.names),
    }
    assert {op for _, op in TABLE} <= covered
