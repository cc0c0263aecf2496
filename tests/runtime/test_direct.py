"""The short way through a module that is one native region, in C: what it takes, and what it leaves alone."""

from __future__ import annotations

import dataclasses
import sys

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import tinycomp
from tests.host_only import host_only
from tests.targets.c.harness import make_model
from tests.threads import in_threads
from tinycomp.errors import ExecutionError, FeedError, TinycompWarning
from tinycomp.memory.budget import limited
from tinycomp.runtime.binding import direct_call, direct_program, direct_start
from tinycomp.runtime.regions import NativeRegion

A, B = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(4, dtype=np.float32)


def module_of(node, feeds, outputs=("y",), **options):
    return tinycomp.compile(make_model([node], feeds, {}, list(outputs)), **options)


@pytest.fixture(scope="module")
def adding():
    return module_of(helper.make_node("Add", ["a", "b"], ["y"]), {"a": A, "b": B})


@pytest.fixture
def direct(adding):
    call = direct_call(adding._parts.plan)
    assert call is not None
    return call


class OwnArray(np.ndarray):
    """A subclass may behave in its own way."""


def test_results_are_fresh(direct):
    first, second = direct((A, B)), direct([A, B])
    np.testing.assert_array_equal(first, [A + B])
    assert not np.shares_memory(first[0], second[0])
    assert first[0].flags.owndata


@pytest.mark.parametrize(
    "arrays",
    [
        (),
        (A,),
        (A, B, B),
        (A.tolist(), B),
        (None, B),
        (A.astype("f8"), B),
        (A.astype("i4"), B),
        (A.astype(">f4"), B),
        (A.astype(ml_dtypes.bfloat16), B),
        (A[:2], B),
        (A[None], B),
        (A.ravel(), B),
        (np.asfortranarray(A), B),
        (A, np.arange(8, dtype=np.float32)[::2]),
        (A.view(OwnArray), B),
        (A, np.float32(1)),
    ],
)
def test_what_does_not_fit_is_left_alone(direct, arrays):
    kept = [a for a in arrays if isinstance(a, np.ndarray)]
    counts = [sys.getrefcount(a) for a in kept]
    for _ in range(5):
        assert direct(arrays) is None
    assert [sys.getrefcount(a) for a in kept] == counts


def test_arrays_may_be_read_only_and_empty():
    constant = A.copy()
    constant.flags.writeable = False
    node = helper.make_node("Concat", ["a", "b"], ["y"], axis=0)
    module = module_of(node, {"a": A, "b": A[:0]})
    np.testing.assert_array_equal(direct_call(module._parts.plan)([constant, A[:0]])[0], A)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8", "int16", "int32", "int64", "uint64", "bool"])
def test_dtypes(dtype):
    x = A.astype(dtype)
    module = module_of(helper.make_node("Transpose", ["x"], ["y"]), {"x": x})
    (found,) = direct_call(module._parts.plan)([x])
    np.testing.assert_array_equal(found, x.T)
    assert found.dtype == x.dtype


def test_regions_beside_host_steps_are_called_so():
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Neg", ["sum"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    model = make_model(nodes, {"a": A, "b": B}, {}, ["y", "z"], symbolic={"a": ["n", 4]})
    module = tinycomp.compile(model, place={"Neg": "host"})
    regions = [step.run for step in module.plan.steps if isinstance(step.run, NativeRegion)]
    assert len(regions) == 2
    for timeout in (None, 60.0):  # nobody looks at the time on the short way
        for a in (A, A[:1], np.asfortranarray(A)):
            before = [len(region.native.contexts) for region in regions]
            results = module.run({"a": a, "b": B}, timeout=timeout)
            np.testing.assert_array_equal(results["y"], -(a + B))
            np.testing.assert_array_equal(results["z"], np.maximum(-(a + B), 0))
            assert [len(region.native.contexts) for region in regions] == [max(n, 1) for n in before]
    short = [region.direct for region in regions]
    assert None not in short
    (total,) = short[0]([A[:2], B])
    np.testing.assert_array_equal(total, A[:2] + B)
    assert short[0]([A[0], B]) is None
    with pytest.raises(FeedError, match="does not fit"):
        regions[0]([A[:, :3], B])


def test_a_dtype_without_a_buffer_interface_takes_the_long_way():
    x = A.astype(ml_dtypes.bfloat16)
    module = module_of(helper.make_node("Transpose", ["x"], ["y"]), {"x": x})
    assert direct_program(module._parts.plan) is not None
    assert direct_call(module._parts.plan) is None
    np.testing.assert_array_equal(module(x).astype("f4"), x.T.astype("f4"))


def halving(shape=("n", 4)):
    nodes = [helper.make_node("Add", ["a", "b"], ["s"]), host_only("s", "y")]
    model = make_model(nodes, {"a": A, "b": B}, {}, ["y", "s", "a"])
    return tinycomp.compile(model, shapes={"a": shape} if shape else {})


def test_a_plan_that_goes_on_on_the_host_begins_with_the_short_way():
    module = halving()
    start = direct_start(module._parts.plan, module.outputs)
    assert [step.tier for step in module._parts.plan.steps] == ["c", "numpy"]
    module(A, B)  # which takes the memory that more rows need, where the short way asks for none
    for rows in (1, 3, 0):
        for found in (start([A[:rows], B]), module._run([A[:rows], B], {})):
            y, total, a = found
            np.testing.assert_array_equal(total, A[:rows] + B)
            np.testing.assert_allclose(y, total / 2, rtol=1e-6)
            assert not np.shares_memory(a, A), "a result is the caller's own"
    assert start([A.astype("f8"), B]) is None
    assert start([A, B], [None, None, None]) is None
    with limited(timeout=100):
        assert start([A, B]) is None


def test_what_the_host_makes_after_the_short_way_is_held_to_the_model():
    module = halving(None)
    wrong = [dataclasses.replace(spec, shape=(9, 9)) for spec in module.outputs]
    with pytest.raises(ExecutionError, match=r'output "y".*expected y: float32\[9, 9\]; found shape \[3, 4\]'):
        direct_start(module._parts.plan, wrong)([A, B])


NAMES = np.array(["a", "ä", "", "d"], object)


def naming(labelled=("n",), dtype=TensorProto.INT64):
    """Give every row, of numbers that become negative, the name behind that of its sum, and a dictionary."""
    nodes = [
        helper.make_node("Neg", ["x"], ["negative"]),
        helper.make_node("ReduceSum", ["negative", "columns"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["number"], to=dtype),
        helper.make_node("Add", ["number", "one"], ["index"]),
        helper.make_node("Gather", ["names", "index"], ["label"]),
        helper.make_node("Softmax", ["negative"], ["scores"]),
        helper.make_node("ZipMap", ["scores"], ["rows"], domain="ai.onnx.ml", classlabels_strings=["p", "q"]),
    ]
    constants = [
        helper.make_tensor("names", TensorProto.STRING, [len(NAMES)], [text.encode() for text in NAMES]),
        helper.make_tensor("columns", TensorProto.INT64, [1], [1]),
        helper.make_tensor("one", dtype, [], [1]),
    ]
    row = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.STRING, labelled),
        helper.make_value_info("rows", helper.make_sequence_type_proto(row)),
        helper.make_tensor_value_info("index", dtype, ["n"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])
    graph = helper.make_graph(nodes, "naming", [x], outputs, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return tinycomp.compile(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def numbered(*numbers):
    return np.array([(-number - 0.25, 0.25) for number in numbers], "f4").reshape(-1, 2)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_names_and_dictionaries_are_made_on_the_short_way(dtype):
    module = naming(dtype=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    assert [step.tier for step in module.plan.steps] == ["c", "numpy", "numpy"]
    start = direct_start(module.plan, module.outputs)
    for numbers in ([-1, 0, 2, -2, -5], [], [1]):
        x = numbered(*numbers)
        wanted = module._run([x], {})  # which takes the memory that more rows need
        label, rows, index = start([x])
        np.testing.assert_array_equal(label, NAMES[np.array(numbers, dtype) + 1])
        assert label.dtype == object
        assert label.flags.owndata
        np.testing.assert_array_equal(index, np.array(numbers, dtype) + 1)
        assert index.dtype == dtype
        assert rows == wanted[1]
        assert [list(row) for row in rows] == [["p", "q"]] * len(numbers)
        assert all(type(value) is float for row in rows for value in row.values())
    rows[0]["p"] = 7.0
    assert start([x])[1] == wanted[1], "a result is the caller's own"
    assert start([x], [None, None, None]) is None
    assert module(x)[1] == wanted[1]


def test_what_is_no_index_of_a_name_is_told_by_the_long_way():
    module = naming()
    start = direct_start(module.plan, module.outputs)
    for number in (3, -6):
        assert start([numbered(number)]) is None
        with pytest.raises(ExecutionError, match=r"label.*Gather.*index out of bounds"):
            module(numbered(number))


def test_names_and_dictionaries_are_not_kept():
    module = naming()
    start, step = direct_start(module.plan, module.outputs), module.plan.steps[1]
    table = next(module.plan.slots[slot] for slot in step.reads if module.plan.slots[slot] is not None)
    module(numbered(0, 1))
    owned = [table[1], "p", numbered(0, 1), numbered(9, 0)]
    before = [*map(sys.getrefcount, owned)]
    for _ in range(50):
        assert start(owned[2:3]) is not None
        assert start(owned[3:]) is None
    assert [*map(sys.getrefcount, owned)] == before


def test_names_of_another_shape_than_declared_are_as_they_are():
    with pytest.warns(TinycompWarning, match=r'"label": declared as string\[2\], but it is string\[n\]'):
        module = naming(labelled=(2,))
    assert module(numbered(0, 1, 0))[0].tolist() == ["ä", "", "ä"]


def test_steps_that_make_objects_of_objects_are_left_to_the_host():
    module = naming()
    module(numbered(0))
    plan = module.plan
    steps = (*plan.steps, dataclasses.replace(plan.steps[2], reads=plan.steps[1].writes))
    start = direct_start(dataclasses.replace(plan, steps=steps), module.outputs)
    with pytest.raises(ExecutionError, match="the labels do not fit the columns"):
        start([numbered(0)])


def test_a_plan_whose_region_takes_not_all_inputs_has_no_short_start():
    nodes = [helper.make_node("Add", ["a", "b"], ["s"]), host_only("c", "y")]
    module = tinycomp.compile(make_model(nodes, {"a": A, "b": B, "c": A}, {}, ["y", "s"]))
    assert direct_start(module._parts.plan, module.outputs) is None


def test_a_step_that_fails_after_the_short_way_is_named():
    nodes = [helper.make_node("Add", ["a", "b"], ["s"]), host_only("s", "y")]
    module = tinycomp.compile(make_model(nodes, {"a": A, "b": B}, {}, ["y"]))
    plan = module._parts.plan
    broken = dataclasses.replace(plan.steps[1], run=lambda operands: 1 / 0)
    start = direct_start(dataclasses.replace(plan, steps=(plan.steps[0], broken)), module.outputs)
    with pytest.raises(ExecutionError, match=r"HostOnly.*ZeroDivisionError"):
        start([A, B])


def test_nothing_is_kept(adding, direct):
    program = direct_program(adding._parts.plan)
    a, b = A.copy(), B.copy()
    before = sys.getrefcount(a), sys.getrefcount(b), len(program.contexts)
    for _ in range(100):
        direct([a, b])
    assert (sys.getrefcount(a), sys.getrefcount(b), len(program.contexts)) == before
    results = direct([a, b])
    owners = sys.getrefcount(results[0])
    assert owners == 2  # the list, and the argument of getrefcount


def test_what_a_kernel_refuses_is_told_by_the_long_way():
    x, index = A, np.array([1, 2])
    module = module_of(helper.make_node("Gather", ["x", "i"], ["y"]), {"x": x, "i": index})
    program, call = direct_program(module._parts.plan), direct_call(module._parts.plan)
    before = len(program.contexts)
    for _ in range(3):
        assert call([x, np.array([1, 9])]) is None
        with pytest.raises(ExecutionError, match="an index is out of range"):
            module(x, np.array([1, 9]))
    assert len(program.contexts) == before
    np.testing.assert_array_equal(call([x, index])[0], x[index])


def test_a_context_that_cannot_be_made_is_an_error(adding, monkeypatch):
    def refuse():
        raise MemoryError("no more")

    program = direct_program(adding._parts.plan)
    monkeypatch.setattr(program, "new_context", refuse)
    call = direct_call(adding._parts.plan)
    kept = program.contexts[:]
    program.contexts.clear()
    try:
        with pytest.raises(MemoryError, match="no more"):
            call([A, B])
    finally:
        program.contexts.extend(kept)
    np.testing.assert_array_equal(call([A, B])[0], A + B)


def test_threads_have_contexts_of_their_own():
    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    module = module_of(helper.make_node("Softmax", ["x"], ["y"]), {"x": x}, threads=1)
    call, wrong = direct_call(module._parts.plan), []

    def work(factor):
        own = x * np.float32(factor)
        wanted = call([own])[0]
        wrong.extend(factor for _ in range(200) if not np.array_equal(call([own])[0], wanted))

    in_threads(work, range(8))
    assert not wrong
    assert len(direct_program(module._parts.plan).contexts) <= 8


@pytest.fixture(scope="module")
def extending():
    """A row is added to a buffer of any length; the program takes the operands in another order."""
    update = helper.make_node("TensorScatter", ["past", "update", "first"], ["present"], axis=2)
    double = helper.make_node("Add", ["present", "present"], ["doubled"])
    shapes = {"update": ["batch", 2, "new", 3], "first": ["batch"], "past": ["batch", 2, "room", 3]}
    return tinycomp.compile(make_model([update, double], extended()[0], {}, ["doubled", "present"], 24, shapes), "c")


def extended():
    rng = np.random.default_rng(0)
    feeds = {"update": rng.normal(size=(1, 2, 1, 3)).astype("f4"), "first": np.array([4])}
    feeds["past"] = rng.normal(size=(1, 2, 6, 3)).astype("f4")
    wanted = feeds["past"].copy()
    wanted[:, :, 4] = feeds["update"][:, :, 0]
    return feeds, wanted


def test_a_buffer_that_is_extended_may_be_the_result(extending):
    feeds, wanted = extended()
    call = direct_call(extending._parts.plan)
    order = [feeds[spec.name] for spec in extending.inputs]
    extending.run(feeds)  # the memory for these sizes is made by the long way
    doubled, present = call(order, [None, feeds["past"]])
    assert present is feeds["past"]
    np.testing.assert_array_equal(present, wanted)
    np.testing.assert_array_equal(doubled, 2 * wanted)
    results = extending.run(feeds, outputs={"present": feeds["past"]})
    assert results["present"] is feeds["past"]


def test_results_go_into_given_arrays(extending):
    feeds, wanted = extended()
    kept, target = feeds["past"].copy(), np.empty_like(feeds["past"])
    results = extending.run(feeds, outputs={"present": target})
    assert results["present"] is target
    np.testing.assert_array_equal(target, wanted)
    np.testing.assert_array_equal(feeds["past"], kept)


def test_arrays_that_overlap_otherwise_go_the_long_way(extending):
    feeds, wanted = extended()
    memory = np.zeros(2 * 6 * 3 + 3, "f4")
    memory[:36] = feeds["past"].reshape(-1)
    feeds["past"], target = memory[:36].reshape(1, 2, 6, 3), memory[3:].reshape(1, 2, 6, 3)
    order = [feeds[spec.name] for spec in extending.inputs]
    assert direct_call(extending._parts.plan)(order, [None, target]) is None
    results = extending.run(feeds, outputs={"present": target})
    np.testing.assert_array_equal(results["present"], wanted)


def test_arrays_for_results_that_do_not_fit_are_told(extending):
    feeds, _ = extended()
    with pytest.raises(FeedError) as caught:
        extending.run(feeds, outputs={"present": np.zeros((1, 2, 7, 3), "f4")})
    assert str(caught.value) == (
        'output "present": does not fit the result; expected shape (1, 2, 6, 3); found shape (1, 2, 7, 3). '
        "Give an array of this shape, or none: results are fresh then."
    )
    with pytest.raises(FeedError) as caught:
        extending.run(feeds, outputs={"presents": feeds["past"]})
    assert str(caught.value) == (
        'output "presents": not an output of the model; expected any of doubled, present; found presents. '
        'Did you mean "present"?'
    )
    frozen = np.zeros((1, 2, 6, 3), "f4")
    frozen.flags.writeable = False
    with pytest.raises(FeedError, match='output "present": cannot be bound'):
        extending.run(feeds, outputs={"present": frozen})


def test_a_module_of_any_sizes_is_bound_in_place(extending):
    feeds, wanted = extended()
    outputs = {"doubled": np.empty_like(feeds["past"]), "present": feeds["past"]}
    extending.bind(feeds, outputs)()
    np.testing.assert_array_equal(feeds["past"], wanted)
    np.testing.assert_array_equal(outputs["doubled"], 2 * wanted)
