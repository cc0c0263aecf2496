"""If, Loop, Scan, functions, and nests of them: compiled for several targets, compared with onnxruntime."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

import tinycomp
from tests.frontend.samples import GROWING, parse, run
from tinycomp import P
from tinycomp.driver.lowering import Lowering
from tinycomp.driver.pipeline import optimisation_passes, partitioning_passes
from tinycomp.runtime.native.executor import Pool
from tinycomp.target import Target

HEADER = '<ir_version: 10, opset_import: ["" : 17, "local" : 1]>\n'

IF = """
main (bool c, float[3, 8] x) => (float[3, 8] y) <float[8, 8] w = {W}, float[8] b = {B}> {
    [first] k = Relu(x)
    [choice] t = If (c) <
        then_branch = yes () => (float[3, 8] r) {
            [yes_matmul] m = MatMul(k, w)  [yes_add] a = Add(m, b)  [yes_relu] p = Relu(a)
            [yes_mod] r = Mod <fmod = 1> (p, x)
        },
        else_branch = no () => (float[3, 8] r) {
            [no_matmul] m = MatMul(x, w)  [no_relu] n = Relu(m)  [no_sub] r = Sub(n, k)
        }
    >
    [last] y = Mul(t, k)
}
"""

LOOP = """
main (int64 n, float[3, 8] x) => (float[3, 8] last, float[T, 3, 8] every)
<float[8, 8] w = {W}, float[8] b = {B}, float limit = {100.0}>
{
    [first] k = Relu(x)
    go = Constant <value: tensor = bool {1}> ()
    [loop] last, every = Loop (n, go, x) <
        body = trip (int64 i, bool g, float[3, 8] v) => (bool more, float[3, 8] next, float[3, 8] seen) {
            [product] m = MatMul(v, w)  [sum] a = Add(m, b)  [relu] p = Relu(a)  [carried] next = Add(p, k)
            [seen] seen = Mul(next, next)
            [largest] top = ReduceMax <keepdims = 0> (next)  [test] more = Less(top, limit)
        }
    >
}
"""

SCAN = """
main (float[8] start, float[5, 8] rows, float[8] g) => (float[8] total, float[5, 8] sums) <float[8, 8] w = {W}> {
    [gate] gate = Relu(g)
    [scan] total, sums = Scan <num_scan_inputs = 1,
        body = step (float[8] a, float[8] row) => (float[8] b, float[8] out) {
            [product] m = MatMul(row, w)  [relu] r = Relu(m)  [gated] s = Mul(r, gate)  [sum] b = Add(a, s)
            [softmax] out = Softmax(b)
        }
    > (start, rows)
}
"""

NESTED = """
main (int64 n, bool c, float[3, 8] x) => (float[3, 8] last) <float[8, 8] w = {W}> {
    [outer] k = Relu(x)
    go = Constant <value: tensor = bool {1}> ()
    [loop] last = Loop (n, go, x) <
        body = trip (int64 i, bool g, float[3, 8] v) => (bool more, float[3, 8] next) {
            more = Identity(g)
            [product] m = MatMul(v, w)
            [choice] next = If (c) <
                then_branch = yes () => (float[3, 8] r) { [yes_relu] p = Relu(m)  [yes_add] r = Add(p, k) },
                else_branch = no () => (float[3, 8] r) {
                    two = Constant <value_int = 2> ()
                    on = Constant <value: tensor = bool {1}> ()
                    [inner_loop] r = Loop (two, on, m) <
                        body = again (int64 j, bool h, float[3, 8] u) => (bool on_too, float[3, 8] z) {
                            on_too = Identity(h)
                            [inner_matmul] q = MatMul(u, w)  [inner_relu] s = Relu(q)  [inner_mul] z = Mul(s, k)
                        }
                    >
                }
            >
        }
    >
}
"""

FUNCTION = """
main (bool c, float[3, 8] x, float[8, 8] w) => (float[3, 8] y, float[3, 8] z) {
    [call_one] y = local.guarded (c, x, w)
    [call_two] z = local.guarded (c, y, w)
}
<domain: "local", opset_import: ["" : 17]>
guarded (c, v, w) => (r) {
    [inside_matmul] m = MatMul(v, w)
    [inside_if] r = If (c) <
        then_branch = yes () => (t) { [inside_relu] t = Relu(m) },
        else_branch = no () => (t) { [inside_add] t = Add(m, v) }
    >
}
"""

CASES = {"If": IF, "Loop": LOOP, "Scan": SCAN, "nested": NESTED, "function": FUNCTION}


def model_of(text: str) -> onnx.ModelProto:
    """Parse a model after filling in its weights."""
    rng = np.random.default_rng(1)
    for marker, count in (("{W}", 64), ("{B}", 8)):
        values = ", ".join(f"{v:.4f}" for v in rng.uniform(-0.6, 0.6, count))
        text = text.replace(marker, f"{{{values}}}")
    return parse(HEADER + text)


def feeds_of(model: onnx.ModelProto, condition: bool = True, trips: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    stored = {t.name for t in model.graph.initializer}
    feeds: dict[str, Any] = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        special = {onnx.TensorProto.BOOL: np.array(condition), onnx.TensorProto.INT64: np.array(trips)}
        if value.name not in stored:
            random = rng.standard_normal(shape).astype(np.float32)
            feeds[value.name] = special.get(value.type.tensor_type.elem_type, random)
    return feeds


class Npu(Target):
    """Takes products, sums and Relu, and counts what is built and what is run."""

    def __init__(self) -> None:
        super().__init__("npu")
        self.accept("Add", "Mul", "Relu")
        self.composite(dense)
        self.built: Counter[str] = Counter()
        self.runs: Counter[str] = Counter()
        self.codegen(self._build)

    def _build(self, region: Any) -> Any:
        self.built[region.op] += 1
        plan = Lowering({}, Pool(1)).plan(region.body)

        def run_region(*operands: Any) -> Any:
            self.runs[region.op] += 1
            return plan.run(operands)

        return run_region


def dense(x: Any, w: Any) -> Any:
    """A product, with Relu where there is one."""
    return P.Relu(P.MatMul(x, w)) | P.MatMul(x, w)


def assert_like_onnxruntime(module: tinycomp.Module, model: onnx.ModelProto, feeds: Mapping[str, Any]) -> None:
    found = module.run(dict(feeds))
    names = [v.name for v in model.graph.output]
    for name, expected in zip(names, run(model, feeds), strict=True):
        assert found[name].shape == expected.shape, name
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("target", ["host", "c", "npu", "npu and c"])
def test_the_results_are_those_of_onnxruntime(case: str, target: str):
    model = model_of(CASES[case])
    targets = {"npu": [Npu()], "npu and c": [Npu(), "c"]}.get(target, [target])
    module = tinycomp.compile(model, targets, verify=True)
    for condition in (True, False):
        for trips in (0, 1, 4):
            assert_like_onnxruntime(module, model, feeds_of(model, condition, trips))


@pytest.mark.parametrize(
    ("case", "inside"),
    [("If", {"yes_matmul", "no_matmul"}), ("Loop", {"product", "carried"}), ("Scan", {"product", "sum"}),
     ("nested", {"product", "yes_add", "inner_matmul"})],
)  # fmt: skip
def test_regions_in_bodies_are_built_once_and_run_on_every_trip(case: str, inside: set[str]):
    npu = Npu()
    model = model_of(CASES[case])
    module = tinycomp.compile(model, npu)
    report = module.report()
    homes = {report.where(name) for name in inside}
    assert "host" not in homes
    assert None not in homes
    built = Counter(row.symbol for row in report.regions)
    assert npu.built == built
    module.run(feeds_of(model, True, 1))
    few = npu.runs.total()
    for condition in (True, False):
        module.run(feeds_of(model, condition, 7))
    assert npu.built == built, "nothing is built while a model runs"
    assert npu.runs.total() > 2 * few or case in ("If", "Scan")
    assert set(npu.runs) == set(built)


def test_a_region_in_a_loop_runs_once_per_trip():
    npu = Npu()
    model = model_of(LOOP)
    module = tinycomp.compile(model, npu)
    symbol = module.report().where("product")
    for trips in (0, 1, 6):
        npu.runs.clear()
        every = module.run(feeds_of(model, trips=trips))["every"]
        assert npu.runs[symbol] == len(every) == trips


def test_a_loop_is_one_region_with_its_body_on_the_c_target():
    """Nothing is left to the host, not even the loop's own bookkeeping."""
    report = tinycomp.compile(model_of(LOOP), "c").report()
    assert {row.target for row in report.regions} == {"c"}
    assert report.where("product") == report.where("carried") != "host"
    assert report.totals["macs"]["host"] == 0
    assert not report.hosts


def test_a_region_whose_shapes_change_from_trip_to_trip_is_built_once():
    text = GROWING.replace("next = Concat <axis = 0> (v, x)", "w = Concat <axis = 0> (v, x)\n next = Relu(w)")
    model = parse(text)
    x = np.random.default_rng(0).standard_normal((1, 3)).astype(np.float32)
    for per_shape in (False, True):
        npu = Npu()
        module = tinycomp.compile(model, npu, specialize=per_shape)
        for trips, builds in ((2, 2), (2, 2), (5, 5), (3, 5)):
            feeds = {"n": np.array(trips), "x": x}
            assert_like_onnxruntime(module, model, feeds)
            assert npu.built.total() == (builds if per_shape else 1)
    assert_like_onnxruntime(tinycomp.compile(model, "c"), model, {"n": np.array(4), "x": x})


def test_regions_of_open_sizes_are_built_once():
    model = model_of(LOOP.replace("[3, 8]", "[N, 8]").replace("[T, 3, 8]", "[T, N, 8]"))
    for per_shape in (False, True):
        npu = Npu()
        module = tinycomp.compile(model, npu, specialize=per_shape)
        assert (npu.built.total() == 0) == per_shape, "sizes are waited for where they are asked for"
        for size, new in ((2, True), (2, False), (5, True), (2, False)):
            before = npu.built.total()
            feeds = {"n": np.array(2), "x": np.full((size, 8), 0.1, np.float32)}
            assert_like_onnxruntime(module, model, feeds)
            assert (npu.built.total() > before) == (new and per_shape)


def test_the_report_shows_the_nodes_of_bodies_with_reasons():
    report = tinycomp.compile(model_of(IF), Npu()).report()
    (row,) = report.why("yes_mod")
    assert (row.op, row.tier) == ("Mod", "numpy")
    assert "npu: no rule for Mod" in [str(r) for r in row.reasons]
    (row,) = report.why("no_sub")
    assert "npu: no rule for Sub" in [str(r) for r in row.reasons]
    (choice,) = report.why("choice")
    assert (choice.op, choice.macs) == ("If", 0)
    assert report.where("yes_matmul").startswith("npu_")
    assert {"yes_mod", "no_sub"} <= {line.split("│")[1].strip() for line in str(report).split("\n") if "│" in line}


def test_a_near_miss_in_a_body_is_explained():
    npu = Target("npu")

    @npu.composite
    def dense_bias(x, w=P.const, b=P.const):
        return P.Relu(P.MatMul(x, w) + b)

    @dense_bias.check
    def _(match):
        return tinycomp.reject(f"at most 4 columns, got {match.w.type.shape[1]}")

    report = tinycomp.compile(model_of(IF), npu).report()
    (row,) = report.why("yes_relu")
    assert "npu.dense_bias: at most 4 columns, got 8" in [str(r) for r in row.reasons]
    (row,) = report.why("no_relu")
    assert any("expected Add, found MatMul at no_matmul" in str(r) for r in row.reasons)


def test_a_target_may_take_the_whole_loop():
    npu = Npu()
    npu.accept("Loop")
    model = model_of(NESTED)
    module = tinycomp.compile(model, npu)
    (region,) = module.report().regions
    assert (region.ops["Loop"], region.ops["Relu"]) == (1, 1), "what is inside the loop is the target's own business"
    assert module.report().hosts == ()
    for condition in (True, False):
        assert_like_onnxruntime(module, model, feeds_of(model, condition))
    assert npu.runs == {region.symbol: 2}


def test_a_loop_of_unknown_length_stays_out_where_the_target_needs_sizes():
    npu = Npu()
    npu.accept("Loop")
    model = model_of(LOOP)
    for specialize in (False, True):
        module = tinycomp.compile(model, npu, specialize=specialize)
        assert_like_onnxruntime(module, model, feeds_of(model))
        assert "Loop" in module.report().regions[0].ops
    npu.static_shapes = True
    module = tinycomp.compile(model, npu)
    assert_like_onnxruntime(module, model, feeds_of(model))
    (loop,) = [host for host in module.report().hosts if host.op == "Loop"]
    assert str(loop.reasons[0]) == (
        'npu.static_shapes: the size of its result "every" depends on data, and npu needs to know every size'
    )


def test_strict_counts_the_nodes_of_bodies():
    with pytest.raises(tinycomp.TinycompError, match="yes_mod"):
        tinycomp.compile(model_of(IF), "npu_sim", strict=True)


@pytest.mark.parametrize("case", CASES)
def test_saved_and_pickled_modules_compute_the_same(case: str, tmp_path):
    model = model_of(CASES[case])
    for targets in (["c"], [Npu(), "c"]):
        module = tinycomp.compile(model, targets)
        module.save(tmp_path / "m.tcm")
        loaded = [tinycomp.load(tmp_path / "m.tcm", targets=[Npu()])]
        if targets == ["c"]:
            loaded.append(pickle.loads(pickle.dumps(module)))
        for copy in loaded:
            assert [r.sources for r in copy.report().regions] == [r.sources for r in module.report().regions]
            for condition in (True, False):
                feeds = feeds_of(model, condition)
                expected, found = module.run(feeds), copy.run(feeds)
                assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_the_same_weights_in_two_bodies_are_shared():
    """A captured constant is bound where it is read, without a copy of the array."""
    passes = [*optimisation_passes(), *partitioning_passes([Npu()])]
    graph = tinycomp.Pipeline(passes)(tinycomp.from_onnx(model_of(NESTED)))
    scopes = {id(scope): scope for scope, _ in graph.walk()}.values()
    arrays = [v.const for scope in scopes for v in scope.constants if v.const.shape == (8, 8)]
    assert len(arrays) == 2
    assert arrays[0] is arrays[1]
