"""Plans with regions on devices: what is copied, what overlaps, and that results do not depend on it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tinycomp
from tests.runtime.device.units import SHAPE, chain, data, diamond, graph_of, mixed, unit
from tinycomp.errors import MemoryLimitError, TargetError
from tinycomp.target_api import DeviceProgram, FaultPolicy, Target, TensorType
from tinycomp.targets.device_sim import Behaviour

MEETING = 20.0
"""Seconds after which two that wait for each other give up."""


def test_a_chain_of_regions_on_one_device_is_not_copied_in_between() -> None:
    npu = unit("npu", "Relu", "Neg", "Abs", single=True)
    with tinycomp.compile(chain("Neg", "Relu", "Neg", "Abs"), npu) as module:
        assert len(module.report().regions) == 4
        np.testing.assert_array_equal(module(data()), np.maximum(-data(), 0))
        (device,) = module.devices
        assert device.asked == ["in", "run", "run", "run", "run", "out"]
        assert [(copy.source, copy.destination) for copy in module.plan.copies] == [("host", "npu"), ("npu", "host")]
        assert module.report().totals["copies"] == {"count": 2, "bytes": 2 * data().nbytes}


@pytest.mark.parametrize(("retries", "waiting"), [(0, 3), (1, 1)])
def test_regions_queue_up_behind_each_other_unless_one_may_have_to_run_again(retries: int, waiting: int) -> None:
    submitted, go_on = [], threading.Event()

    def before(node: object) -> None:
        assert go_on.wait(MEETING)
        submitted.append(module.devices[0].asked.count("run"))

    npu = unit("npu", "Relu", "Neg", single=True, before=before, faults=FaultPolicy(retries=retries))
    with tinycomp.compile(chain("Neg", "Relu", "Neg"), npu) as module:
        future = module.run_async({"x0": data()})
        while not (module.devices and module.devices[0].asked.count("run") == waiting):
            threading.Event().wait(0.001)
        go_on.set()
        np.testing.assert_array_equal(future.result(MEETING)["y"], -np.maximum(-data(), 0))
        assert submitted == [[1, 2, 3], [3, 3, 3]][waiting == 3]


def test_independent_regions_on_two_devices_run_at_the_same_time() -> None:
    meet = threading.Barrier(2, timeout=MEETING)
    targets = [
        unit("npu", "Relu", before=lambda node: meet.wait()),
        unit("dsp", "Neg", before=lambda node: meet.wait()),
    ]
    with tinycomp.compile(diamond(), targets) as module:
        np.testing.assert_array_equal(module(data()), np.maximum(data(), 0) + data())


def test_independent_regions_on_two_devices_of_one_target_run_at_the_same_time() -> None:
    meet = threading.Barrier(2, timeout=MEETING)
    npu = unit("npu", "Relu", "Neg", before=lambda node: meet.wait())
    with tinycomp.compile(diamond(), npu, devices=2) as module:
        np.testing.assert_array_equal(module(data()), np.maximum(data(), 0) + data())
        assert [device.asked for device in module.devices] == [["in", "run", "out"]] * 2


def test_the_host_works_beside_a_device() -> None:
    meet = threading.Barrier(2, timeout=MEETING)
    npu = unit("npu", "Relu", before=lambda node: meet.wait())
    host = unit("numpy_code", "Neg", before=lambda node: meet.wait(), on_device=False)
    with tinycomp.compile(diamond(), [npu, host]) as module:
        np.testing.assert_array_equal(module(data()), np.maximum(data(), 0) + data())


def test_a_value_is_copied_once_to_each_device() -> None:
    targets = [unit("npu", "Relu", "Neg", "Sub"), unit("dsp", "Mul")]
    with tinycomp.compile(mixed(), targets) as module:
        module(data((32, 32)))
        npu, dsp = module.devices
        assert npu.asked.count("in") == 2  # x, and what Tanh makes of a
        assert (npu.asked.count("across"), dsp.asked.count("across"), dsp.asked.count("in")) == (1, 1, 0)


def test_devices_that_do_not_reach_each_other_pass_values_through_the_host() -> None:
    apart = Behaviour(peers=False)
    targets = [unit("npu", "Relu", behaviour=apart), unit("dsp", "Neg", behaviour=apart)]
    with tinycomp.compile(chain("Relu", "Neg"), targets) as module:
        np.testing.assert_array_equal(module(data()), -np.maximum(data(), 0))
        assert [device.asked for device in module.devices] == [["in", "run", "out"]] * 2
        rows = module.report().devices
        assert [(row.bytes_in, row.bytes_out, row.bytes_across) for row in rows] == [
            (data().nbytes, data().nbytes, 0)
        ] * 2


def test_memory_that_host_and_device_share_is_not_copied_into() -> None:
    with tinycomp.compile(chain("Relu"), unit("npu", "Relu", behaviour=Behaviour(shared=True))) as module:
        np.testing.assert_array_equal(module(data()), np.maximum(data(), 0))
        assert module.devices[0].asked == ["run", "out"]


@pytest.mark.parametrize("bound", [True, False])
def test_constants_that_are_parameters_are_brought_along_once(bound: bool) -> None:
    graph = graph_of()
    product = graph.add("Mul", [graph.inputs[0], graph.add_const(data(seed=3), "w")]).output
    graph.set_outputs([product], ["y"])
    with tinycomp.compile(graph, unit("npu", "Mul", bind_constants=bound)) as module:
        for _ in range(3):
            np.testing.assert_array_equal(module(data()), data() * data(seed=3))
        assert module.devices[0].asked.count("in") == 3 + (not bound)


@pytest.mark.parametrize("static", [True, False])
def test_sizes_that_are_known_when_a_run_begins(static: bool) -> None:
    npu = unit("npu", "Relu", "Neg", static_shapes=static)
    with tinycomp.compile(chain("Relu", "Neg", shape=("n", 3)), npu) as module:
        for rows in (2, 5, 2):
            np.testing.assert_array_equal(module(data((rows, 3))), -np.maximum(data((rows, 3)), 0))
        assert module.devices[0].asked == ["in", "run", "out"] * 3
        assert [copy.bytes for copy in module.plan.copies] == [12, 12]


def test_sizes_that_depend_on_data_stay_off_devices() -> None:
    graph = graph_of()
    found = graph.add("NonZero", [graph.inputs[0]]).output
    graph.set_outputs([graph.add("Neg", [graph.add("Abs", [found]).output]).output], ["y"])
    with tinycomp.compile(graph, unit("npu", "Abs", "Neg")) as module:
        np.testing.assert_array_equal(module(data()), -np.abs(np.array(np.nonzero(data()))))


def test_rows_are_made_up_for_a_device_with_buckets() -> None:
    with tinycomp.compile(chain("Relu", shape=("n", 3)), unit("npu", "Relu", buckets=(4,))) as module:
        np.testing.assert_array_equal(module(data((6, 3))), np.maximum(data((6, 3)), 0))
        assert module.devices[0].asked == ["in", "run", "out"] * 2


def branching() -> tinycomp.Graph:
    """A branch with a region, behind a region."""
    from onnx import parser

    assert SHAPE == (4, 8)
    return tinycomp.from_onnx(
        parser.parse_model("""<ir_version: 10, opset_import: ["": 17]>
        branching (float[4, 8] x, bool c) => (float[4, 8] y) { a = Abs(x)
        b = If(c) <then_branch = t () => (float[4, 8] t) { t = Neg(a) },
                   else_branch = e () => (float[4, 8] e) { e = Relu(a) }>
        y = Neg(b) }""")
    )


def test_regions_in_branches_run_on_devices_too() -> None:
    room = Behaviour(memory=6 * data().nbytes)
    with tinycomp.compile(branching(), unit("npu", "Abs", "Neg", "Relu", behaviour=room)) as module:
        for chosen in (True, False):
            expected = -(-np.abs(data()) if chosen else np.abs(data()))
            np.testing.assert_array_equal(module(data(), np.array(chosen)), expected)


def test_a_branch_for_which_there_is_no_room_is_an_error_and_no_hang() -> None:
    room = Behaviour(memory=5 * data().nbytes)
    module = tinycomp.compile(branching(), unit("npu", "Abs", "Neg", "Relu", behaviour=room))
    with pytest.raises(MemoryLimitError, match="npu:0: the device does not have the memory that a run needs"):
        module(data(), np.array(True))


def test_a_run_that_does_not_fit_says_so() -> None:
    npu = unit("npu", "Relu", behaviour=Behaviour(memory=64))
    with tinycomp.compile(chain("Relu"), npu) as module:
        with pytest.raises(MemoryLimitError, match="expected at most 64 bytes; found 256 bytes for a run") as caught:
            module(data())
        assert caught.value.where == "npu:0"


def test_runs_for_which_there_is_no_room_wait_for_others() -> None:
    npu = unit("npu", "Relu", behaviour=Behaviour(memory=300, latency=0.001))
    with tinycomp.compile(chain("Relu"), npu) as module:
        module.in_flight = 4
        futures = [module.run_async({"x0": data(seed=seed)}) for seed in range(8)]
        for seed, future in enumerate(futures):
            np.testing.assert_array_equal(future.result()["y"], np.maximum(data(seed=seed), 0))
        assert module.devices[0].peak == 256


def test_values_take_the_place_of_those_that_nobody_needs_any_more() -> None:
    npu = unit("npu", "Relu", "Neg", single=True)
    with tinycomp.compile(chain(*["Neg", "Relu"] * 4), npu) as module:
        module(data())
        assert module.devices[0].peak == 2 * data().nbytes


def test_verification_compares_regions_on_devices() -> None:
    wrong = Target("npu")
    wrong.accept("Neg")
    wrong.device(lambda index: unit("npu", "Neg").open_device(index))
    wrong.codegen(lambda region: DeviceProgram(lambda x: -x + 1))
    with pytest.raises(tinycomp.TinycompError, match="npu_0"):
        tinycomp.compile(chain("Neg"), wrong, verify=True)
    tinycomp.compile(chain("Neg"), unit("npu", "Neg"), verify=True).close()


def test_a_device_program_needs_a_target_with_devices() -> None:
    bare = Target("bare")
    bare.accept("Neg")
    bare.codegen(lambda region: DeviceProgram(None))
    with pytest.raises(TargetError, match="the code generator returned a DeviceProgram, and the target has no devices"):
        tinycomp.compile(chain("Neg"), bare)


def test_devices_that_do_not_open_say_so() -> None:
    npu = unit("npu", "Neg")

    @npu.device
    def missing(index: int) -> None:
        raise OSError("no such device")

    with pytest.raises(TargetError, match="target npu, device 0: the device does not open: OSError: no such device"):
        tinycomp.compile(chain("Neg"), npu)(data())
    npu.device(lambda index: object())
    with pytest.raises(TargetError, match="the target opened something else than a device"):
        tinycomp.compile(chain("Neg"), npu)(data())


def test_plans_without_devices_are_left_alone() -> None:
    module = tinycomp.compile(chain("Neg"), "c")
    assert not module.plan.on_devices
    assert module.devices == ()
    assert "copies" not in module.report().totals
    module.close()
    np.testing.assert_array_equal(module(data()), -data())


def test_two_results_of_one_region_and_one_that_is_an_input() -> None:
    graph = graph_of()
    (x,) = graph.inputs
    a = graph.add("Neg", [x]).output
    graph.set_outputs([graph.add("Abs", [a]).output, a, x], ["y", "z", "same"])
    with tinycomp.compile(graph, unit("npu", "Neg", "Abs")) as module:
        y, z, same = module(data())
        np.testing.assert_array_equal(y, np.abs(data()))
        np.testing.assert_array_equal(z, -data())
        np.testing.assert_array_equal(same, data())


def test_an_empty_tensor() -> None:
    graph = graph_of()
    graph = chain("Neg", shape=("n", 3))
    with tinycomp.compile(graph, unit("npu", "Neg")) as module:
        assert module(np.zeros((0, 3), np.float32)).shape == (0, 3)


def test_other_dtypes() -> None:
    graph = tinycomp.Graph("model", opsets={"": 17})
    graph.set_outputs([graph.add("Neg", [graph.add_input("x", TensorType("int8", (3,)))]).output], ["y"])
    with tinycomp.compile(graph, unit("npu", "Neg")) as module:
        np.testing.assert_array_equal(module(np.array([1, -2, 3], np.int8)), np.array([-1, 2, -3], np.int8))
