"""Models with symbolic sizes: one program per region serves them all, and says which sizes it does not work for."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tinycomp
from tests.targets.c.harness import make_model
from tests.threads import in_threads
from tinycomp.data import digits, digits_model
from tinycomp.driver.lowering import Lowering
from tinycomp.errors import FeedError, ModelError
from tinycomp.passes.merge_regions import MergeRegions
from tinycomp.rewrite import reject
from tinycomp.runtime.module import Module
from tinycomp.runtime.regions import SPECIALISATIONS, NativeRegion, PerShape

W = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often regions were sought, and how often one was generated."""
    seen: Counter[str] = Counter()
    merge, made = MergeRegions.run, Lowering._made

    def merging(self: MergeRegions, graph: tinycomp.Graph) -> bool:
        seen["partitioned"] += 1
        return merge(self, graph)

    def making(self: Lowering, node: Any, keep: bool) -> Any:
        seen["generated"] += 1
        return made(self, node, keep)

    monkeypatch.setattr(MergeRegions, "run", merging)
    monkeypatch.setattr(Lowering, "_made", making)
    return seen


def shared_bytes(module: Module) -> int:
    """Bytes of the packed weights that the module's regions share."""
    return int(module._parts.pack.func.__self__.weights.nbytes)  # type: ignore[attr-defined]


def natives(module: Module) -> list[NativeRegion]:
    return [step.run for step in module._parts.plan.steps if isinstance(step.run, NativeRegion)]


def two_inputs() -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["a", "b"], ["s"], name="sum"), helper.make_node("MatMul", ["s", "w"], ["y"])]
    feeds = {"a": rows(2), "b": rows(2)}
    return make_model(nodes, feeds, {"w": W}, ["y"], symbolic={"a": ("N", 4), "b": ("N", 4)})


def test_every_batch_size():
    images, _ = digits()
    module = tinycomp.compile(digits_model())
    whole = module(images[:32])
    for n in (1, 2, 3, 7, 32, 1):
        np.testing.assert_allclose(module(images[:n]), whole[:n], atol=1e-6)


def test_an_empty_batch():
    module = tinycomp.compile(digits_model())
    assert module(np.empty((0, 1, 8, 8), np.float32)).shape == (0, 10)


def test_a_new_size_compiles_nothing_and_packs_nothing(work):
    images, _ = digits()
    module = tinycomp.compile(digits_model())
    assert work == {"partitioned": 1, "generated": 1}
    held = shared_bytes(module)
    assert held > 0, "weights are packed when the model is compiled"
    whole = module(images[:40])
    for n in (1, 2, 3, 17, 40, *range(1, 2 * SPECIALISATIONS)):
        np.testing.assert_allclose(module(images[:n]), whole[:n], atol=1e-6)
    assert work == {"partitioned": 1, "generated": 1}
    assert shared_bytes(module) == held
    (region,) = natives(module)
    assert region.native.state_bytes < held / 10
    assert len(region.native.contexts) == 1, "one run at a time has the memory of one run"


def computed_shape() -> onnx.ModelProto:
    """An initial state as large as the batch: Shape, Gather, Concat and Expand, as recurrent models are exported."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "four"], ["wanted"], axis=0),
        helper.make_node("Expand", ["one", "wanted"], ["ones"], name="state"),
        helper.make_node("Add", ["x", "ones"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["y"]),
    ]
    constants = {"zero": np.array([0]), "four": np.array([4]), "one": np.ones((1, 1), np.float32), "w": W}
    return make_model(nodes, {"x": rows(2)}, constants, ["y"], symbolic={"x": ("N", 4)})


def test_what_follows_from_sizes_is_no_step_of_a_run():
    module = tinycomp.compile(computed_shape(), strict=True)
    for n in (1, 3, 8, 0):
        np.testing.assert_allclose(module(rows(n)), (rows(n) + 1) @ W, rtol=1e-4, atol=1e-5)
    (region,) = natives(module)
    kernels = {call.kernel for call in region.program.instructions}
    assert kernels.isdisjoint({"sizes", "gather", "concat"}), kernels


def picky(**options: Any) -> tuple[tinycomp.Target, list[Sequence[int]]]:
    """A target that takes Exp of two rows alone, and what it was built for."""
    target, built = tinycomp.Target("picky", **options), []

    @target.op("Exp")
    def _(node):
        return node.inputs[0].type.shape[0] == 2 or reject("two rows at a time")

    @target.codegen
    def build(region):
        built.append(region.inputs[0].shape)
        return lambda x: np.exp(x)

    return target, built


def exponential() -> onnx.ModelProto:
    return make_model([helper.make_node("Exp", ["x"], ["y"])], {"x": rows(2)}, {}, ["y"], symbolic={"x": ("N", 4)})


def test_a_rule_sees_the_symbol_and_takes_what_shapes_fix():
    target, built = picky()
    module = tinycomp.compile(exponential(), target)
    assert [step.tier for step in module._parts.plan.steps] == ["numpy"]
    for n in (2, 3):
        np.testing.assert_allclose(module(rows(n)), np.exp(rows(n)), rtol=1e-5)
    assert not built
    fixed = tinycomp.compile(exponential(), target, shapes={"x": (2, 4)})
    assert [step.tier for step in fixed._parts.plan.steps] == ["picky"]
    np.testing.assert_allclose(fixed(rows(2)), np.exp(rows(2)), rtol=1e-5)


@pytest.mark.parametrize("static_shapes", [True, False])
def test_a_target_that_needs_sizes_is_built_per_set_of_them_within_bounds(static_shapes):
    target, built = tinycomp.Target("sized", static_shapes=static_shapes), []
    target.accept("Exp")

    @target.codegen
    def build(region):
        built.append(region.inputs[0].shape)
        return lambda x: np.exp(x)

    module = tinycomp.compile(exponential(), target, specialize=not static_shapes)
    assert built == [], "no size is known yet"
    sizes = [*range(1, SPECIALISATIONS + 8)]
    for n in [*sizes, sizes[-1]]:
        np.testing.assert_allclose(module(rows(n)), np.exp(rows(n)), rtol=1e-5)
    assert built == [(n, 4) for n in sizes]
    (step,) = module._parts.plan.steps
    assert isinstance(step.run, PerShape)
    assert len(step.run.cache) == SPECIALISATIONS
    module(rows(1))
    assert built[-1] == (1, 4), "the first one was let go"


def test_a_specialised_module_computes_the_same():
    module, special = tinycomp.compile(two_inputs()), tinycomp.compile(two_inputs(), specialize=True)
    for n in (1, 3, 7, 3):
        np.testing.assert_array_equal(special(rows(n), rows(n)), module(rows(n), rows(n)))
    assert any(isinstance(step.run, PerShape) for step in special._parts.plan.steps)
    programs = special._parts.pack.func.__self__.lowering().programs
    assert programs == {}, "what is built per set of sizes is not kept for good"


def test_threads_may_ask_for_new_sizes_at_once():
    images, _ = digits()
    module = tinycomp.compile(digits_model())
    whole = tinycomp.compile(digits_model())(images[:12])
    held = shared_bytes(module)
    start, wrong = threading.Barrier(8), []

    def work(seed: int) -> None:
        start.wait()
        sizes = np.random.default_rng(seed).integers(1, 13, 12)
        wrong.extend(n for n in sizes if not np.allclose(module(images[:n]), whole[:n], atol=1e-6))

    in_threads(work, range(8))
    assert not wrong
    assert shared_bytes(module) == held
    assert len(natives(module)[0].native.contexts) <= 8


def test_a_loaded_module_takes_new_sizes_in_the_same_way(work):
    images, _ = digits()
    module = tinycomp.compile(digits_model())
    restored = tinycomp.load(module.__reduce__()[1][0])
    for n in (1, 5, 0):
        np.testing.assert_array_equal(restored(images[:n]), module(images[:n]))
    assert work == {"partitioned": 1, "generated": 1}


_RUN_ALONE = """
import sys
import numpy as np
import tinycomp
module = tinycomp.load(sys.argv[1])
assert module(np.ones((3, 4), np.float32), np.ones((3, 4), np.float32)).shape == (3, 5)
assert module(np.ones((7, 4), np.float32), np.ones((7, 4), np.float32)).shape == (7, 5)
assert not [m for m in sys.modules if m.startswith(("onnx", "tinycomp.ir", "tinycomp.ops", "tinycomp.driver.compiler"))]
"""


def test_a_saved_module_serves_all_sizes_without_the_compiler(tmp_path):
    tinycomp.compile(two_inputs()).save(tmp_path / "m.tcm")
    subprocess.run([sys.executable, "-c", _RUN_ALONE, str(tmp_path / "m.tcm")], check=True, timeout=120)


def test_disagreeing_sizes_are_named():
    module = tinycomp.compile(two_inputs())
    with pytest.raises(FeedError) as error:
        module(rows(2), rows(3))
    assert str(error.value) == (
        'inputs "a" and "b": the sizes of "N" differ; expected N = 2 as in a; found N = 3. '
        "Give both inputs the same size there."
    )


def test_unnamed_dimensions_are_independent():
    model = two_inputs()
    for info in model.graph.input:
        info.type.tensor_type.shape.dim[0].ClearField("dim_param")
    module = tinycomp.compile(model)
    assert [s.shape for s in module.inputs] == [("a.0", 4), ("b.0", 4)]
    np.testing.assert_allclose(module(rows(3), rows(1)), (rows(3) + rows(1)) @ W, rtol=1e-4, atol=1e-5)


def test_shapes_fix_sizes():
    module = tinycomp.compile(two_inputs(), shapes={"a": (3, 4), "b": (3, 4)}, strict=True)
    assert str(module.inputs[0]) == "a: float32[3, 4]"
    assert str(module.outputs[0]) == "y: float32[3, 5]"
    np.testing.assert_allclose(module(rows(3), rows(3)), 2 * rows(3) @ W, rtol=1e-4, atol=1e-5)
    with pytest.raises(FeedError, match=r"compile with shapes=\{...\} for another one"):
        module(rows(2), rows(2))


def test_a_size_given_for_one_input_holds_for_all_with_the_same_symbol():
    for model in (two_inputs(), tinycomp.from_onnx(two_inputs())):
        module = tinycomp.compile(model, shapes={"a": (3, 4)})
        assert [s.shape for s in module.inputs] == [(3, 4), (3, 4)]


def test_shapes_replace_fixed_sizes_too_and_apply_to_graphs():
    fixed = tinycomp.compile(two_inputs(), shapes={"a": (3, 4), "b": (3, 4)})
    graph = tinycomp.from_onnx(two_inputs())
    module = tinycomp.compile(graph, shapes={"a": (3, 4), "b": (3, 4)})
    np.testing.assert_array_equal(module(rows(3), rows(3)), fixed(rows(3), rows(3)))
    assert [v.type.shape for v in graph.inputs] == [("N", 4), ("N", 4)], "the graph handed in is left alone"


@pytest.mark.parametrize("as_graph", [False, True])
@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ({"x": (1, 4)}, 'shapes names the input "x", which the model does not have; expected one of'),
        ({"a": (1, 3)}, r"node s.* the operands do not broadcast"),
        ({"a": (1, 4, 4)}, 'input "a": the given shape has the wrong rank; expected 2 dimensions'),
        ({"a": (1 << 63, 4)}, 'input "a": a dimension of the given shape is not valid; expected a size of at least 0'),
        ({"a": ((1, 1 << 63), 4)}, 'input "a": not the bounds of a dimension; expected .least, most.'),
        ({"a": (-1, 4)}, 'input "a": a dimension of the given shape is not valid; expected a size of at least 0'),
        ({"a": (1.5, 4)}, 'input "a": a dimension of the given shape is not valid'),
        ({"a": (2, 4), "b": (3, 4)}, 'input "b": the given shapes disagree about the dimension "N"; expected 2'),
    ],
)
def test_shapes_that_do_not_fit(shapes, text, as_graph):
    model = tinycomp.from_onnx(two_inputs()) if as_graph else two_inputs()
    with pytest.raises(ModelError, match=text):
        tinycomp.compile(model, shapes=shapes)


Dims = dict[str, tuple[Any, ...]]


def fails(nodes: list[Any], feeds: Dims, fits: Dims, misfit: Dims, **constants: Any) -> str:
    """Return what a run of ill-fitting sizes raises, before and after saving; runs of fitting ones still work."""
    arrays = {name: np.ones(shape, np.float32) for name, shape in fits.items()}
    module = tinycomp.compile(make_model(nodes, arrays, constants, ["y"], symbolic=feeds), strict=True)
    fitting = module.run(arrays)["y"]
    wrong = {name: np.ones(shape, np.float32) for name, shape in misfit.items()}
    messages = []
    for each in (module, tinycomp.load(module.__reduce__()[1][0])):
        for call in (each.run, lambda feeds, each=each: each(*feeds.values())):
            with pytest.raises(FeedError) as error:
                call(wrong)
            messages.append(str(error.value))
        np.testing.assert_array_equal(each.run(arrays)["y"], fitting)  # the module lives on
    assert len(set(messages)) == 1
    return messages[0]


NODE = helper.make_node
AB = {"a": ("N", 4), "b": ("M", 4)}


@pytest.mark.parametrize(
    ("node", "feeds", "fits", "misfit", "constants", "text"),
    [
        (
            NODE("Reshape", ["a", "shape"], ["y"], name="fold"), {"a": ("N", 3)}, {"a": (4, 3)}, {"a": (3, 3)},
            {"shape": np.array([2, -1])},
            "node fold (Reshape): the model does not work for these sizes: [N, 3] and [2, -1] have different numbers "
            "of elements; found N = 3",
        ),
        (
            NODE("Add", ["a", "b"], ["y"], name="sum"), AB, {"a": (1, 4), "b": (3, 4)}, {"a": (3, 4), "b": (5, 4)}, {},
            "node sum (Add): the model does not work for these sizes: the operands do not broadcast: N and M are "
            "different, and neither is 1; found N = 3, M = 5",
        ),
        (
            NODE("Mul", ["a", "b"], ["y"], name="mul"), AB, {"a": (3, 4), "b": (1, 4)}, {"a": (0, 4), "b": (3, 4)}, {},
            "node mul (Mul): the model does not work for these sizes: the operands do not broadcast: N and M are "
            "different, and neither is 1; found N = 0, M = 3",
        ),
        (
            NODE("MatMul", ["a", "b"], ["y"], name="product"), {"a": ("N", "K"), "b": ("L", 5)},
            {"a": (3, 4), "b": (4, 5)}, {"a": (3, 4), "b": (6, 5)}, {},
            'inputs "a" and "b": the sizes of "L" differ; expected L = 4 as in a; found L = 6. Nodes decide sizes '
            "that the model leaves open: product (MatMul): the operands differ in the size that is summed over: K "
            "and L.",
        ),
        (
            NODE("Concat", ["a", "b"], ["y"], name="join", axis=1), AB, {"a": (3, 4), "b": (3, 4)},
            {"a": (5, 4), "b": (3, 4)}, {},
            'inputs "a" and "b": the sizes of "N" differ; expected N = 5 as in a; found N = 3. Nodes decide sizes '
            "that the model leaves open: join (Concat): the operands differ outside axis 1: M and N.",
        ),
        (
            NODE("Split", ["a", "parts"], ["y", "rest"], name="cut", axis=0), {"a": ("N", 4)}, {"a": (3, 4)},
            {"a": (5, 4)}, {"parts": np.array([1, 2])},
            'input "a": wrong shape; expected a: float32[3, 4]; found shape (5, 4). Nodes decide sizes that the model '
            "leaves open: cut (Split): the sizes do not split axis 0: N and 3.",
        ),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else "",
)  # fmt: skip
def test_sizes_that_do_not_fit_name_node_and_sizes(node, feeds, fits, misfit, constants, text):
    message = fails([node], feeds, fits, misfit, **constants)
    assert message in (f"c_0, {text}", text)


def test_a_size_that_must_be_one_is_demanded():
    node = NODE("Squeeze", ["a", "axes"], ["y"], name="drop")
    message = fails([node], {"a": ("N", 4)}, {"a": (1, 4)}, {"a": (3, 4)}, axes=np.array([0]))
    assert message == (
        'input "a": wrong shape; expected a: float32[1, 4]; found shape (3, 4). Nodes decide sizes that the model '
        "leaves open: drop (Squeeze): axis 0 of [N, 4] cannot be dropped: N and 1."
    )


def test_sizes_that_depend_on_data_are_served_by_one_program(work):
    nodes = [
        helper.make_node("Slice", ["x", "zero", "end"], ["cut"], name="cut"),
        helper.make_node("MatMul", ["cut", "w"], ["p"], name="product"),
        helper.make_node("Relu", ["p"], ["y"], name="relu"),
    ]
    feeds = {"x": rows(40), "end": np.array([3])}
    model = make_model(nodes, feeds, {"w": W, "zero": np.array([0])}, ["y"])
    module = tinycomp.compile(model)
    assert module.report().where("product") == "c_0"
    generated = work["generated"]
    for n in range(SPECIALISATIONS + 8):
        wanted = np.maximum(rows(40)[:n] @ W, 0)
        np.testing.assert_allclose(module(rows(40), np.array([n])), wanted, rtol=1e-4, atol=1e-5)
    assert work["generated"] == generated
    restored = tinycomp.load(module.__reduce__()[1][0])
    np.testing.assert_array_equal(restored(rows(40), np.array([5])), module(rows(40), np.array([5])))


def test_what_is_known_of_elements_is_lost_where_branches_disagree():
    """A shape that depends on the branch taken, and one that grows from trip to trip, are no constants."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[N, 4] a, float[M, 4] b, bool c) => (float[A, B] y) <float[1, 1] one = {1}> {
        s = If(c) <then_branch = t () => (int64[2] p) { p = Shape(a) },
                   else_branch = e () => (int64[2] q) { q = Shape(b) }>
        y = Expand(one, s) }""")
    feeds = {"a": rows(2), "b": rows(3), "c": np.array(True)}
    module = tinycomp.compile(model)
    assert module.run(feeds)["y"].shape == (2, 4)
    assert module.run({**feeds, "c": np.array(False)})["y"].shape == (3, 4)


def test_what_is_known_of_elements_is_lost_where_trips_change_them():
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[N, 4] a, int64 trips) => (float[A, B] y) <float[1, 1] one = {1}> { start = Shape(a)
        s = Loop(trips, , start) <body = trip (int64 i, bool go, int64[2] s) => (bool more, int64[2] twice)
            { more = Identity(go)  twice = Add(s, s) }>
        y = Expand(one, s) }""")
    module = tinycomp.compile(model)
    for n, trips in ((2, 1), (3, 2), (1, 0)):
        found = module.run({"a": rows(n), "trips": np.array(trips)})["y"]
        assert found.shape == (n << trips, 4 << trips)
