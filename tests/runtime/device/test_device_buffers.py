"""Inputs and outputs on devices, DLPack, and memory that is given back."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import tinycomp
from tests.runtime.device.units import SHAPE, Listening, chain, data, mixed, unit
from tinycomp.errors import FeedError, MemoryLimitError, OptionError
from tinycomp.targets.device_sim import Behaviour, SimulatedDevice


def test_inputs_and_outputs_on_the_device_are_not_copied() -> None:
    with Listening("npu:0") as device, tinycomp.compile(chain("Neg"), unit("npu", "Neg"), devices=[device]) as module:
        x, y = device.put(data()), device.empty(SHAPE, np.float32)
        device.asked.clear()
        assert module.run({"x0": x}, outputs={"y": y})["y"] is y
        assert device.asked == ["run"]
        np.testing.assert_array_equal(y.numpy(), -data())
        assert module.devices == (device,)
        with pytest.raises(FeedError, match='output "y": shares its memory with another one'):
            module.run({"x0": x}, outputs={"y": x})
        np.testing.assert_array_equal(module(x), -data())


def test_bound_buffers() -> None:
    with Listening("npu:0") as device, tinycomp.compile(chain("Neg"), unit("npu", "Neg"), devices=[device]) as module:
        x, y = device.put(data()), device.empty(SHAPE, np.float32)
        run = module.bind(x, y)
        assert run() is y
        x.write(data(seed=1))
        device.asked.clear()
        run()
        assert device.asked == ["run"]
        np.testing.assert_array_equal(y.numpy(), -data(seed=1))
        array = np.zeros(SHAPE, np.float32)
        assert module.bind(x, array)() is array
        np.testing.assert_array_equal(array, -data(seed=1))
        assert isinstance(module.bind(x)(), np.ndarray)
        with pytest.raises(FeedError, match='output "y": shares its memory with another one'):
            module.bind(x, x)


def test_a_result_that_is_listed_twice_has_two_buffers() -> None:
    graph = chain("Neg")
    graph.set_outputs([graph.outputs[0], graph.outputs[0]], ["y", "z"])
    with Listening("npu:0") as device, tinycomp.compile(graph, unit("npu", "Neg"), devices=device) as module:
        y, z = (device.empty(SHAPE, np.float32) for _ in range(2))
        module.run({"x0": data()}, outputs={"y": y, "z": z})
        np.testing.assert_array_equal(y.numpy(), -data())
        np.testing.assert_array_equal(z.numpy(), -data())


@pytest.mark.parametrize("peers", [True, False])
def test_buffers_of_another_device_are_brought_where_they_are_needed(peers: bool) -> None:
    targets = [unit("npu", "Relu", "Neg", "Sub"), unit("dsp", "Mul")]
    expected = tinycomp.compile(mixed(), "host")(data((32, 32)))
    with Listening("far", Behaviour(peers=peers)) as far, tinycomp.compile(mixed(), targets) as module:
        y, z = (far.empty((32, 32), np.float32) for _ in range(2))
        x = far.put(data((32, 32)))
        module.run({"x0": x}, outputs={"y": y, "z": z})
        np.testing.assert_array_equal(y.numpy(), expected[0])
        np.testing.assert_array_equal(z.numpy(), expected[1])
        assert module.devices[0].asked.count("across") == (2 if peers else 1)


def test_a_request_goes_to_the_device_on_which_its_inputs_are() -> None:
    with tinycomp.compile(chain("Neg"), unit("npu", "Neg"), devices=3) as module:
        module(data())
        there = module.devices[2].put(data())
        for _ in range(4):
            module(there)
        assert [row.requests for row in module.report().devices] == [1, 0, 4]
        assert module.devices[2].asked == ["in", *["run", "out"] * 4]


def test_buffers_that_do_not_fit_are_refused() -> None:
    with SimulatedDevice() as device, tinycomp.compile(chain("Neg"), unit("npu", "Neg")) as module:
        with pytest.raises(FeedError, match='input "x0": does not fit'):
            module(device.empty(SHAPE, np.float64))
        with pytest.raises(FeedError, match='output "y": does not fit'):
            module.run({"x0": data()}, outputs={"y": device.empty((2, 2), np.float32)})
        with pytest.raises(FeedError, match="the array does not fit the buffer"):
            device.empty(SHAPE, np.float32).write(np.zeros(3))


def test_sizes_of_buffers_must_agree() -> None:
    graph = tinycomp.Graph("model", opsets={"": 17})
    a, b = (graph.add_input(name, tinycomp.ir.TensorType("float32", ("n",))) for name in "ab")
    graph.set_outputs([graph.add("Add", [a, b]).output], ["y"])
    module = tinycomp.compile(graph, unit("npu", "Add"))
    with SimulatedDevice() as device, pytest.raises(FeedError, match='the sizes of "n" differ'):
        module(device.put(data((2,))), data((3,)))


def test_dlpack_hands_out_the_memory_itself() -> None:
    with SimulatedDevice(behaviour=Behaviour(shared=True)) as device:
        buffer = device.put(data())
        array = np.from_dlpack(buffer)
        np.testing.assert_array_equal(array, data())
        buffer.write(data(seed=1))
        np.testing.assert_array_equal(array, data(seed=1))
        assert tinycomp.compile(chain("Neg"), "c")(buffer).shape == SHAPE


def test_what_was_handed_out_keeps_its_buffer() -> None:
    with SimulatedDevice(behaviour=Behaviour(shared=True)) as device:
        array = np.from_dlpack(device.put(data()))
        gc.collect()
        kept = [device.put(data(seed=seed)) for seed in range(1, 4)]
        np.testing.assert_array_equal(array, data())
        assert device.used == 4 * data().nbytes
        del array, kept
        gc.collect()
        device.put(data()).release()
        assert device.used == 0


def test_dlpack_takes_memory_as_it_is_where_the_device_may_access_it() -> None:
    array = data()
    with SimulatedDevice(behaviour=Behaviour(shared=True)) as device:
        buffer = device.from_dlpack(array)
        assert (device.used, device.from_dlpack(buffer)) == (0, buffer)
        array[0, 0] = 7
        assert buffer.numpy()[0, 0] == 7
    with SimulatedDevice() as device:
        buffer = device.from_dlpack(array)
        assert device.used
        array[0, 0] = 8
        assert buffer.numpy()[0, 0] == 7
        with pytest.raises(BufferError, match="the host cannot access the memory dram of sim:0"):
            np.from_dlpack(buffer)
        with pytest.raises(FeedError, match="the tensor cannot be read"):
            device.from_dlpack("text")


def test_tensors_of_torch_go_in_and_out_without_a_copy() -> None:
    torch = pytest.importorskip("torch")
    with SimulatedDevice(behaviour=Behaviour(shared=True)) as device:
        tensor = torch.from_numpy(data())
        buffer = device.from_dlpack(tensor)
        with tinycomp.compile(chain("Neg"), unit("npu", "Neg"), devices=[device]) as module:
            result = device.empty(SHAPE, np.float32)
            module.run({"x0": buffer}, outputs={"y": result})
            assert torch.equal(torch.from_dlpack(result), -tensor)
            tensor[...] = 1
            module.run({"x0": buffer}, outputs={"y": result})
            assert torch.equal(torch.from_dlpack(result), -torch.ones(SHAPE))
            np.testing.assert_array_equal(module(tensor), -np.ones(SHAPE))


def test_memory_is_given_back() -> None:
    with SimulatedDevice() as device:
        first = device.put(data())
        first.release()
        first.release()
        assert device.used == 0
        device.put(data())  # nobody refers to it: the next one takes its place
        gc.collect()
        kept = device.put(data())
        assert device.used == kept.nbytes
        part = kept.part(4, (2,), np.float32)
        np.testing.assert_array_equal(part.numpy(), data().reshape(-1)[1:3])
        del kept
        gc.collect()
        device.put(data(seed=1))
        np.testing.assert_array_equal(part.numpy(), data().reshape(-1)[1:3])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: d.empty("ab", np.int8), "shape: the option does not take this value; expected Sequence; found 'ab'"),
        (lambda d: d.empty((2, -1), np.int8), r"sim:0: a size is negative; expected 0 or more; found \(2, -1\)"),
        (lambda d: d.empty((2,), "any"), "sim:0: there is no such type; expected numbers; found TypeError: data type"),
        (lambda d: d.empty((2,), None), "there is no such type; expected numbers; found TypeError: object is no type"),
        (lambda d: d.empty((2,), np.int8, ["dram"]), "memory: the option does not take this value; expected str"),
        (lambda d: d.put([[1], [2, 3]]), "sim:0: the array cannot be read; expected an array of numbers; found Value"),
        (lambda d: d.put(np.ma.masked_array([1], [True])), "the array cannot be read; expected an array of numbers"),
        (lambda d: d.put("text"), "sim:0: the array cannot be read; expected an array of numbers; found TypeError: <U"),
        (lambda d: d.put([1]).write(None), "sim:0: the array cannot be read; expected an array of numbers"),
        (lambda d: d.put([1]).numpy(timeout=-1), "timeout: the option does not take this value; expected float"),
    ],
)
def test_what_is_no_array_of_a_device_is_refused(call, message: str) -> None:
    with SimulatedDevice() as device, pytest.raises((FeedError, OptionError), match=message):
        call(device)


def test_there_are_the_memories_that_there_are() -> None:
    with SimulatedDevice(behaviour=Behaviour(memory=128)) as device:
        assert device.empty((3,), np.int8, "dram").memory == "dram"
        with pytest.raises(OptionError, match="the device has no such memory; expected one of dram; found 'drum'"):
            device.empty((3,), np.int8, "drum")
        with pytest.raises(MemoryLimitError, match="there is no room in the memory"):
            device.empty((200,), np.int8)


def test_a_module_that_is_gone_closes_its_devices() -> None:
    module = tinycomp.compile(chain("Neg"), unit("npu", "Neg"))
    module(data())
    (device,) = module.devices
    del module
    gc.collect()
    device._thread.join(10)
    assert not device._thread.is_alive()
    assert device.used == 0


def test_devices_that_are_given_stay_open() -> None:
    with SimulatedDevice() as device:
        for _ in range(2):
            with tinycomp.compile(chain("Neg"), unit("npu", "Neg"), devices=device) as module:
                np.testing.assert_array_equal(module(data()), -data())
        assert device._thread.is_alive()
        assert device.used == 0
