"""Results whose number of rows only a run shows, on the C target: what follows row by row is in the same region."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from onnx import helper

import tinycomp
from tests.targets.c.harness import assert_ran_on_c, compile_for, make_model, nodes_of, run_onnxruntime
from tinycomp.errors import ExecutionError, FeedError, MemoryLimitError, UnsupportedError
from tinycomp.runtime.csource.source import CSource

BATCH, CLASSES, BOXES = 2, 3, 60
MOST = 8


def detections(seed: int = 0, boxes: int = BOXES, batch: int = BATCH) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 8, (batch, boxes, 2))
    edges = np.concatenate([corner, corner + rng.uniform(0.5, 4, (batch, boxes, 2))], -1).astype(np.float32)
    return {"boxes": edges, "scores": np.round(rng.random((batch, CLASSES, boxes)), 2).astype(np.float32)}


SETTINGS = {"most": np.array([MOST]), "iou": np.array([0.1], "f4"), "least": np.array([0.85], "f4")}
SUPPRESSION = nodes_of("kept = NonMaxSuppression(boxes, scores, most, iou, least)")


def model_of(*nodes, outputs=("kept",), constants=None, feeds=None, symbolic=None):
    """A suppression, and what follows."""
    feeds = detections() if feeds is None else feeds
    given = {n: a for n, a in {**SETTINGS, **(constants or {})}.items() if n not in feeds}
    return make_model([*SUPPRESSION, *nodes], feeds, given, outputs, symbolic=symbolic)


def index(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def check(model, feeds, module=None):
    """Compare with the host and onnxruntime; whole numbers and moved floats are the same bits."""
    module = module or compile_for(model)
    found = list(module.run(feeds).values())
    for wanted in (list(compile_for(model, "host").run(feeds).values()), run_onnxruntime(model, feeds)):
        assert wanted is not None
        for f, w in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(f, w, strict=True)
    return found


def gathered() -> tuple[list, dict[str, np.ndarray]]:
    """The box and score of everything that is kept, as detectors end."""
    text = """where = Gather<axis = 1>(kept, columns) box = GatherND(boxes, where) score = GatherND(scores, kept)
        column = Unsqueeze(score, one) label = Slice(kept, one, two, one) class = Cast<to = 1>(label)
        rows = Concat<axis = 1>(box, column, class)"""
    return nodes_of(text), {"columns": index(0, 2), "one": index(1), "two": index(2)}


def test_what_follows_row_by_row_is_in_the_region():
    nodes, constants = gathered()
    model = model_of(*nodes, outputs=("rows", "score", "kept"), constants=constants)
    module = compile_for(model, strict=True)
    assert_ran_on_c(module, "NonMaxSuppression")
    for seed in range(6):
        rows, score, kept = check(model, detections(seed), module)
        assert 0 < len(kept) < BATCH * CLASSES * MOST
        assert all(a.base is None for a in (rows, score, kept))


FOLLOWING = {
    "element-wise": "y = Mul(kept, weights)",
    "with itself": "y = Add(kept, kept)",
    "chain": "f = Cast<to = 1>(kept) g = Sqrt(f) y = Neg(g)",
    "columns": "a, b, y = Split<axis = 1, num_outputs = 3>(kept)",
    "squeezed": "a = Gather<axis = 1>(kept, two) y = Squeeze(a, one)",
    "flattened": "a = Gather<axis = 1>(kept, two) y = Reshape(a, flat)",
    "slices": "a = Gather<axis = 1>(kept, scalar) y = Gather<axis = 0>(table, a)",
    "transposed rows": "a = Unsqueeze(kept, two) y = Transpose<perm = [0, 2, 1]>(a)",
    "both results": "a = Mul(kept, weights) y = Concat<axis = 1>(a, kept)",
}
CONSTANTS = {
    "weights": index(1, 10, 100), "one": index(1), "two": index(2), "flat": index(-1), "scalar": np.array(2),
    "table": np.arange(BOXES * 5, dtype=np.float32).reshape(BOXES, 5),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLLOWING)
@pytest.mark.parametrize("most", [0, 1, MOST, BOXES])
def test_following(name, most):
    nodes = nodes_of(FOLLOWING[name])
    names = {n for each in nodes for n in each.input}
    constants = {n: a for n, a in CONSTANTS.items() if n in names} | {"most": np.array([most])}
    model = model_of(*nodes, outputs=("y", "kept"), constants=constants)
    module = compile_for(model, strict=True)
    assert_ran_on_c(module, "NonMaxSuppression")
    check(model, detections(3), module)


ALL_AT_ONCE = {
    "sum over rows": "y = ReduceSum<keepdims = 0>(kept, zero)",
    "first row": "y = Gather<axis = 0>(kept, zero)",
    "rows joined": "y = Concat<axis = 0>(kept, kept)",
    "turned": "y = Transpose<perm = [1, 0]>(kept)",
    "taken apart": "y = Reshape(kept, flat)",
    "against a column of rows": "f = Cast<to = 1>(kept) a = Transpose<perm = [1, 0]>(f) y = MatMul(f, a)",
    "first rows": "y = Slice(kept, zero, one, zero)",
}


@pytest.mark.parametrize("name", ALL_AT_ONCE)
def test_what_needs_all_rows_is_in_the_region(name):
    nodes = nodes_of(ALL_AT_ONCE[name])
    names = {n for each in nodes for n in each.input}
    constants = {n: a for n, a in (CONSTANTS | {"zero": index(0)}).items() if n in names}
    model = model_of(*nodes, outputs=("y", "kept"), constants=constants)
    module = compile_for(model, strict=True)
    assert_ran_on_c(module, "NonMaxSuppression")
    for seed in (4, 5, 4):
        check(model, detections(seed), module)


def test_what_is_left_of_the_room():
    """A size that shrinks as more is found."""
    nodes = nodes_of("""shape = Shape<start = 0, end = 1>(kept) rest = Sub(all, shape)
        missing = Concat<axis = 0>(rest, three) zeros = ConstantOfShape<value = int64[1] {7}>(missing)
        y = Concat<axis = 0>(kept, zeros)""")
    constants = {"all": index(BATCH * CLASSES * MOST), "three": index(3)}
    module = compile_for(model_of(*nodes, outputs=("y", "kept"), constants=constants))
    for seed in range(4):
        (y, _) = check(model_of(*nodes, outputs=("y", "kept"), constants=constants), detections(seed), module)
        assert len(y) == BATCH * CLASSES * MOST


def test_rows_that_two_results_count():
    """They may differ in number."""
    again = "other = NonMaxSuppression(boxes, scores, most, iou2, least)"
    model = model_of(
        *nodes_of(f"{again} y = Concat<axis = 0>(kept, other)"),
        outputs=("y", "kept", "other"),
        constants={"iou2": np.array([0.0], "f4"), "most": np.array([BOXES])},
    )
    module = compile_for(model)
    found = check(model, detections(5), module)
    assert len(found[1]) > len(found[2])
    nodes = nodes_of(f"{again} y = Add(kept, other)")
    check(model_of(*nodes, outputs=("y",), constants={"iou2": SETTINGS["iou"]}), detections(5))


def test_values_that_merely_have_as_many_rows_are_computed_whole():
    """There is room for one row, and none is found."""
    feeds = detections(boxes=1, batch=1) | {"row": np.array([[-1, 0, 2]], "f4")}
    nodes = nodes_of("positive = Relu(row) f = Cast<to = 1>(kept) y = Mul(f, positive)")
    feeds["scores"] = feeds["scores"][:, :1]
    constants = {"most": np.array([1]), "least": np.array([2], "f4")}
    model = model_of(*nodes, outputs=("positive", "y"), constants=constants, feeds=feeds)
    module = compile_for(model, strict=True)
    assert_ran_on_c(module, "NonMaxSuppression")
    positive, y = check(model, feeds, module)
    assert (positive.tolist(), y.shape) == ([[0, 0, 2]], (0, 3))


def suppressing(name: str) -> tinycomp.Target:
    """A target that takes suppressions and negations."""
    target = tinycomp.Target(name)
    target.accept("NonMaxSuppression", "Neg")
    return target


def test_a_callable_returns_what_it_finds():
    finder = suppressing("finder")
    asked = []

    @finder.codegen
    def build(region):
        asked.append([n.op for n in region.body.nodes])
        return lambda *operands: -np.arange(6).reshape(-1, 3)

    model = model_of(*nodes_of("y = Neg(kept)"), outputs=("y",))
    module = tinycomp.compile(model, finder)
    assert module(*detections().values()).tolist() == [[0, -1, -2], [-3, -4, -5]]
    assert asked == [["NonMaxSuppression", "Neg"]]


def test_c_source_writes_arrays_of_known_sizes():
    writer = suppressing("writer")

    @writer.codegen
    def build(region):
        return CSource("int run(void) { return 0; }", "run")

    text = r'C source writes arrays of known sizes, .* depends on data; found "kept"'
    with pytest.raises(UnsupportedError, match=text):
        tinycomp.compile(model_of(), writer)


def test_settings_at_run_time():
    feeds = detections()
    for most, iou, least in itertools.product([0, 3, 1 << 40], [0.0, 0.5, 1.0], [-1.0, 0.5, 2.0]):
        given = feeds | {"most": np.array([most]), "iou": np.array([iou], "f4"), "least": np.array([least], "f4")}
        check(model_of(feeds=given), given)
    given = feeds | {"iou": np.array([1.5], "f4")}
    with pytest.raises(ExecutionError, match="iou_threshold is not between 0 and 1"):
        compile_for(model_of(feeds=given)).run(given)


def test_absent_settings():
    feeds = detections()
    for count in (2, 3, 4):
        inputs = ["boxes", "scores", "most", "iou"][:count]
        nodes = [helper.make_node("NonMaxSuppression", inputs, ["kept"], name="nms", center_point_box=1)]
        settings = {name: SETTINGS[name] for name in inputs[2:]}
        check(make_model(nodes, feeds, settings, ["kept"]), feeds)


def test_no_boxes_at_all():
    for feeds in (detections(boxes=0), detections(batch=0)):
        nodes, constants = gathered()
        model = model_of(*nodes, outputs=("kept", "box"), constants=constants, feeds=feeds)
        module = compile_for(model)
        assert [a.shape for a in module.run(feeds).values()] == [(0, 3), (0, 4)]


def test_all_that_there_is_room_for():
    feeds = detections(boxes=4)
    feeds["boxes"] = np.array([[[i, i, i + 1, i + 1] for i in range(4)]] * BATCH, "f4")
    settings = {"least": np.array([-1], "f4")}
    (kept,) = check(model_of(constants=settings, feeds=feeds), feeds)
    assert len(kept) == BATCH * CLASSES * 4


def test_threads_do_not_change_the_result():
    nodes, constants = gathered()
    model = model_of(*nodes, outputs=("rows", "kept"), constants=constants | {"most": np.array([3000])})
    feeds = detections(7, boxes=3000)
    model = model_of(*nodes, outputs=("rows", "kept"), constants=constants, feeds=feeds)
    one, two = (tinycomp.compile(model, threads=threads).run(feeds) for threads in (1, 2))
    for a, b in zip(one.values(), two.values(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_short_call_and_the_long_one():
    nodes, constants = gathered()
    module = compile_for(model_of(*nodes, outputs=("rows", "kept"), constants=constants))
    feeds = detections(8)
    short, long = module(*feeds.values()), module(**feeds)
    for a, b in zip(short, long, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.base is None
        assert b.base is None


def test_bound_arrays_take_the_size_that_they_have():
    module, feeds = compile_for(model_of()), detections(9)
    kept = module(*feeds.values())
    bound = module.bind(feeds)
    np.testing.assert_array_equal(bound(), kept)
    feeds["scores"][...] = 0
    with pytest.raises(FeedError, match="depends on the values of the inputs"):
        bound()


def test_profile_names_the_calls():
    nodes, constants = gathered()
    module = compile_for(model_of(*nodes, outputs=("rows",), constants=constants))
    rows = {row.kernel: row for row in module.profile(detections(), runs=2).rows}
    assert rows["nms_f32"].bytes > 0
    assert rows["gather_nd"].bytes > 0


def test_saved_modules(tmp_path):
    nodes, constants = gathered()
    model = model_of(*nodes, outputs=("rows", "kept"), constants=constants)
    module, feeds = tinycomp.compile(model), detections(10)
    module.save(tmp_path / "m.tcm")
    for other in (tinycomp.load(tmp_path / "m.tcm"), pickle.loads(pickle.dumps(module))):
        check(model, feeds, other)
        check(model, detections(11), other)


def test_symbolic_sizes():
    nodes, constants = gathered()
    symbolic = {"boxes": ["n", "m", 4], "scores": ["n", CLASSES, "m"]}
    model = model_of(*nodes, outputs=("rows", "kept"), constants=constants, symbolic=symbolic)
    module = tinycomp.compile(model)
    for batch, boxes in [(1, 5), (3, 70), (1, 5)]:
        check(model, detections(batch, boxes, batch), module)


def test_a_plan_for_all_sizes():
    """Where a size is unknown for another reason, the region is specialised when that is known."""
    nodes = nodes_of("""marked = NonZero(mask) places = Squeeze(marked, zero)
        boxes = Gather<axis = 1>(all, places) scores = Gather<axis = 2>(every, places)""")
    feeds = {"all": detections()["boxes"], "every": detections()["scores"], "mask": np.arange(BOXES) % 3}
    after, constants = gathered()
    model = make_model(
        [*nodes, *SUPPRESSION, *after], feeds, SETTINGS | constants | {"zero": index(0)}, ["rows", "kept"]
    )
    module = compile_for(model)
    check(model, feeds, module)
    check(model, feeds | {"mask": np.arange(BOXES) % 2}, module)


def test_the_budget_counts_the_room_for_rows():
    feeds = detections(boxes=2000)
    settings = {"most": np.array([2000])}
    model = model_of(constants=settings, feeds=feeds)
    room = BATCH * CLASSES * 2000 * 3 * 8
    values = sum(x.nbytes for x in feeds.values())
    with pytest.raises(MemoryLimitError, match="the arena, the threads' scratch and results"):
        tinycomp.compile(model, memory_limit=values + room)
    check(model, feeds, tinycomp.compile(model, memory_limit=10 * (values + room)))


def test_verification():
    nodes, constants = gathered()
    model = model_of(*nodes, outputs=("rows", "kept"), constants=constants)
    check(model, detections(12), tinycomp.compile(model, verify=True))
