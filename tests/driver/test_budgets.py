"""What compiling may spend: constants that grow, work that a small model asks for, and time."""

from __future__ import annotations

import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tinycomp
from tests.cases.case import make_model
from tests.host_only import DOMAIN, host_only
from tinycomp.errors import ExecutionError, MemoryLimitError, OptionError
from tinycomp.passes import fold_constants
from tinycomp.passes.fold_constants import FoldConstants


def model_of(nodes: list[onnx.NodeProto], output: str, **constants: np.ndarray) -> onnx.ModelProto:
    last = helper.make_node("Mul", [output, "x"], ["y"], name="last")
    return make_model([*nodes, last], {"x": np.ones(1, np.float32)}, constants, ["y"], 18)


def filled(name: str = "c0") -> onnx.NodeProto:
    value = numpy_helper.from_array(np.array([0.5], np.float32))
    return helper.make_node("ConstantOfShape", ["shape"], [name], value=value)


def doubling(count: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Concat", [f"c{i}", f"c{i}"], [f"c{i + 1}"], axis=0) for i in range(count)]
    return model_of([filled(), *nodes], f"c{count}", shape=np.array([8]))


def chain(count: int, size: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Exp" if i % 2 else "Neg", [f"c{i}"], [f"c{i + 1}"]) for i in range(count)]
    return model_of([filled(), *nodes], f"c{count}", shape=np.array([size]))


def test_growth_is_counted_over_all_passes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fold_constants, "_LEAST_GROWTH", 1 << 20)
    graph = tinycomp.from_onnx(doubling(20))  # 32 MiB at the end
    with fold_constants.sharing_budget(graph):
        for _ in range(4):
            FoldConstants().run(graph)
    assert sum(value.const.nbytes for value in graph.constants if value.const is not None) < 2 << 20
    reasons = [remark.reason for remark in graph.remarks if remark.rule == "Concat"]
    assert any("bytes to the constants" in reason for reason in reasons), reasons


def test_larger_models_may_grow_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fold_constants, "_LEAST_GROWTH", 1 << 20)
    weights = np.ones(1 << 22, np.float32)
    graph = tinycomp.from_onnx(model_of([helper.make_node("Concat", ["w"] * 6, ["c"], axis=0)], "c", w=weights))
    assert FoldConstants().run(graph)


def test_work_is_counted_over_all_passes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fold_constants, "_LEAST_WORK", 5000)
    module = tinycomp.compile(chain(20, 400))
    assert np.isfinite(module(np.ones(1, np.float32))).all()
    graph = tinycomp.from_onnx(chain(20, 400))
    with fold_constants.sharing_budget(graph):
        assert FoldConstants().run(graph)
        folded = len(graph)
        FoldConstants().run(graph)
        assert len(graph) == folded > 10
    assert any("operations to compute" in remark.reason for remark in graph.remarks)


def test_products_count_their_work(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fold_constants, "_LEAST_WORK", 20_000)
    for size, is_folded in ((20, True), (40, False)):
        graph = tinycomp.from_onnx(
            model_of([filled(), helper.make_node("MatMul", ["c0", "c0"], ["c1"])], "c1", shape=np.array([size, size]))
        )
        FoldConstants().run(graph)
        assert (len(graph) == 1) == is_folded


def test_the_time_of_compiling_is_limited():
    with pytest.raises(ExecutionError, match=r"pass inline-functions: the time is up; expected an end within 1e-09 s"):
        tinycomp.compile(chain(3, 4), timeout=1e-9)
    assert tinycomp.compile(chain(3, 4), timeout=1000)(np.ones(1, np.float32)).shape == (4,)
    with pytest.raises(OptionError, match="timeout"):
        tinycomp.compile(chain(3, 4), timeout=-1)


TABLES = {
    "EyeLike": "m (float[8192, 8192] x) => (float[8192, 8192] y) { y = EyeLike(x) }",
    "STFT": """m (float[1, 65536, 1] x) => (float[a, b, c, 2] y) <int64 step = {1}, int64 length = {1024}> {
        y = STFT(x, step, , length) }""",
    "DeformConv": """m (float[1, 1, 256, 256] x, float[1, 1, 32, 32] w, float[1, 2048, 225, 225] move)
        => (float[a, b, c, d] y) { y = DeformConv(x, w, move) }""",
    "Resize": """m (float[1, 3, 5, 5] x) => (float[a, b, c, d] y)
        <float[4] scales = {1.0, 1.0, 0.000000001, 0.000000001}> {
        y = Resize<mode = "linear", antialias = 1>(x, , scales) }""",
}


@pytest.mark.parametrize("text", TABLES.values(), ids=TABLES)
def test_what_sizes_of_a_model_say_is_not_written_down_while_compiling(text: str):
    """A table of 200 MB or more could be made of each."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> {text}')
    tracemalloc.start()
    try:
        tinycomp.compile(model)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


GROWING = {
    "Scan": """s, y = Scan<num_scan_inputs = 1, body = trip (float[a] s, float[1] row) => (float[b] t, float[1] again) {
        t = Concat<axis = 0>(s, s) again = Identity(row) }>(start, rows)""",
    "rows": """s, y = Scan<num_scan_inputs = 1, body = trip (float[a] s, float[1] row) => (float[a] t, float[a] again) {
        t = Identity(s) again = Identity(s) }>(start, rows)""",
    "MatMul": "column = Unsqueeze(start, one) line = Unsqueeze(start, zero) y = MatMul(column, line)",
    "Gemm": "line = Unsqueeze(start, zero) y = Gemm<transA = 1>(line, line)",
}


@pytest.mark.parametrize("body", GROWING.values(), ids=GROWING)
def test_what_grows_on_the_host_keeps_within_the_limit(body: str):
    text = f"""<ir_version: 9, opset_import: ["": 18]> m (float[n] start, float[k, 1] rows) => (float[...] y)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}> {{ {body} }}"""
    model = onnx.parser.parse_model(text.replace("float[...] y", "y"))
    module = tinycomp.compile(model, "host", memory_limit=1 << 24)
    tracemalloc.start()
    try:
        with pytest.raises(tinycomp.TinycompError, match="more memory would be needed than the budget allows"):
            module(np.ones(1 << 16, np.float32), np.ones((1000, 1), np.float32))
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def test_regions_whose_sizes_are_not_known_yet_reserve_nothing():
    weight = np.full((64, 64, 1, 1), 0.01, np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        host_only("a", "b"),
        helper.make_node("Conv", ["b", "w"], ["y"]),
    ]
    shapes, x = {"x": ["n", 64, "height", "width"]}, np.ones((1, 64, 4, 4), np.float32)
    model = make_model(nodes, {"x": x}, {"w": weight}, ["y"], 18, shapes, {DOMAIN: 1})
    module = tinycomp.compile(model, memory_limit=1 << 20)
    assert len(module.report().regions) == 2
    assert module(x).shape == x.shape
    with pytest.raises(MemoryLimitError):
        module(np.ones((1, 64, 256, 256), np.float32))
