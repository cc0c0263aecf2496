"""The simulated device: its memory, its queue, its faults."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.runtime.device.units import data
from tinycomp.errors import DeviceFault, MemoryLimitError
from tinycomp.targets.device_sim import Behaviour, SimulatedDevice

SLOW = Behaviour(memory=1024)


def test_memory_is_divided_first_fit_and_aligned() -> None:
    with SimulatedDevice(behaviour=SLOW) as device:
        (memory,) = device.memories
        blocks = [device.allocate(100, memory) for _ in range(8)]
        assert [block.offset for block in blocks] == [128 * i for i in range(8)]
        with pytest.raises(MemoryLimitError, match="expected at most 1024 bytes; found 64 bytes beside 1024"):
            device.allocate(1, memory)
        device.free(blocks[2])
        device.free(blocks[3])
        assert device.allocate(256, memory).offset == 256
        assert (device.used, device.peak) == (1024, 1024)


def test_memory_is_freed_when_the_commands_that_use_it_have_ended() -> None:
    go_on, seen = threading.Event(), []
    with SimulatedDevice(behaviour=SLOW) as device:
        x, y = device.put(np.ones(128, np.float32)), device.empty((128,), np.float32)

        def work(array: np.ndarray) -> np.ndarray:
            go_on.wait()
            seen.append(array.sum())
            return array

        event = device.submit(work, [x], [y])
        x.release()
        y.release()
        assert device.used == 1024
        threading.Timer(0.05, go_on.set).start()
        block = device.allocate(1024, device.memories[0])  # waits for the command
        assert (seen, block.offset) == ([128.0], 0)
        device.wait(event)


def test_commands_run_in_order() -> None:
    with SimulatedDevice() as device:
        x, y = device.empty((4, 8), np.float32), device.empty((4, 8), np.float32)
        result = np.empty((4, 8), np.float32)
        events = [device.copy(data(), x)]
        events += [device.submit(lambda a: -a, [x], [y]), device.submit(lambda a: a + 1, [y], [x])]
        events.append(device.copy(x, result))
        device.wait(events[-1])
        np.testing.assert_array_equal(result, 1 - data())
        assert [activity.name for event in events for activity in device.wait(event)] == [
            "copy in",
            "run",
            "run",
            "copy out",
        ]


def test_a_command_that_fails_leaves_garbage() -> None:
    with SimulatedDevice(behaviour=Behaviour(fault_rate=1.0)) as device:
        x = device.empty((8,), np.uint8)
        with pytest.raises(DeviceFault, match="a parity error"):
            device.wait(device.copy(np.zeros(8, np.uint8), x))
        assert (device._at(x) == 0xA5).all()


def test_faults_come_again_with_their_seed() -> None:
    def faults(seed: int) -> list[bool]:
        found = []
        with SimulatedDevice(behaviour=Behaviour(fault_rate=0.3, seed=seed)) as device:
            x = device.empty((8,), np.uint8)
            for _ in range(50):
                event = device.copy(np.zeros(8, np.uint8), x)
                event.ended.wait()
                found.append(event.fault is not None)
        return found

    assert faults(1) == faults(1) != faults(2)
    assert 5 < sum(faults(1)) < 25


def test_hanging_commands_are_late() -> None:
    with SimulatedDevice(behaviour=Behaviour(hang_rate=1.0, hang=0.05)) as device:
        event = device.copy(np.zeros(8, np.uint8), device.empty((8,), np.uint8))
        with pytest.raises(TimeoutError, match=r"copy in runs for more than 0\.001 s"):
            device.wait(event, 0.001)
        device.wait(event)


def test_a_buffer_stays_in_its_block() -> None:
    with SimulatedDevice() as device:
        part = device.empty((8,), np.uint8).part(60, (8,), np.uint8)
        with pytest.raises(DeviceFault, match="a buffer leaves its block"):
            device.wait(device.copy(np.zeros(8, np.uint8), part))
