"""Several runs at once: futures, asyncio, pipelines, and what keeps them from being too many."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import tinycomp
from tests.runtime.device.units import Listening, chain, data, unit
from tinycomp.errors import FeedError, OptionError
from tinycomp.runtime.device.instances import DeviceSet, Member
from tinycomp.target_api import Node

PATIENCE = 20.0
Feeds = dict[str, Any]


def feeds(number: int) -> Feeds:
    return {"x0": data(seed=number)}


def result(number: int) -> np.ndarray:
    return -np.maximum(data(seed=number), 0)


@pytest.mark.parametrize("target", ["c", "npu"])
def test_futures_hold_the_results_of_their_requests(target: str) -> None:
    npu = unit("npu", "Relu", "Neg")
    with tinycomp.compile(chain("Relu", "Neg"), npu if target == "npu" else target) as module:
        futures = [module.run_async(feeds(number)) for number in range(20)]
        for number, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(PATIENCE)["y"], result(number))


def test_errors_of_a_run_are_in_its_future() -> None:
    with tinycomp.compile(chain("Relu"), "c") as module:
        future = module.run_async({"x0": np.zeros(3, np.float32)})
        assert isinstance(future.exception(PATIENCE), FeedError)
        assert module.run_async(feeds(0)).exception(PATIENCE) is None


def test_requests_on_two_devices_meet() -> None:
    """While one is in the second half of the model, the next is in the first."""
    meet = threading.Barrier(2, timeout=PATIENCE)
    targets = [
        unit("npu", "Relu", before=lambda node: meet.wait()),
        unit("dsp", "Neg", before=lambda node: meet.wait()),
    ]
    with tinycomp.compile(chain("Relu", "Neg"), targets) as module:
        edges = [threading.Thread(target=meet.wait) for _ in range(2)]  # for the first half and the last
        edges[0].start()
        stream = tinycomp.pipeline_requests(module, (feeds(number) for number in range(4)), in_flight=2)
        for number, each in enumerate(stream):
            np.testing.assert_array_equal(each["y"], result(number))
            if number == 2:
                edges[1].start()
        for edge in edges:
            edge.join(PATIENCE)


def test_several_instances_serve_several_requests_at_once() -> None:
    meet = threading.Barrier(2, timeout=PATIENCE)
    npu = unit("npu", "Relu", before=lambda node: meet.wait())
    with tinycomp.compile(chain("Relu"), npu, devices=2) as module:
        for future in [module.run_async(feeds(number)) for number in range(4)]:
            future.result(PATIENCE)
        assert [row.requests for row in module.report().devices] == [2, 2]


def test_a_request_takes_the_least_busy_device_and_among_equals_the_one_not_used_for_longest() -> None:
    units = [Listening(f"npu:{index}") for index in range(2)]
    devices = DeviceSet("npu", units.__getitem__, range(2))

    def choose() -> Member:
        (member,) = devices.choose(1, lambda member: 0)
        return member

    first, second = choose(), choose()
    assert [first.device, second.device] == units  # one that was chosen is busy from then on
    second.instance.leave()
    assert choose() is second
    assert choose() is first  # both have one request; it was chosen before the other
    assert [member.instance.active for member in (first, second)] == [2, 1]
    devices.close()


class Counting:
    """Counts how many regions wait to go on."""

    def __init__(self) -> None:
        self.go_on = threading.Semaphore(0)
        self.begun = 0

    def __call__(self, node: Node) -> None:
        self.begun += 1
        self.go_on.acquire()


def test_a_thread_that_asks_for_too_much_waits() -> None:
    gate = Counting()
    with tinycomp.compile(chain("Relu"), unit("npu", "Relu", before=gate)) as module:
        module.in_flight = 2
        asked: list[int] = []

        def ask() -> None:
            for number in range(4):
                module.run_async(feeds(number))
                asked.append(number)

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(0.2)
        assert (asked, thread.is_alive()) == ([0, 1], True)
        gate.go_on.release(4)
        thread.join(PATIENCE)
        assert asked == [0, 1, 2, 3]


def test_coroutines_wait_for_their_turn_without_holding_up_the_loop() -> None:
    gate = Counting()

    async def serve(module: tinycomp.Module) -> list[np.ndarray]:
        futures = [module.run_async(feeds(number)) for number in range(6)]
        gate.go_on.release(6)
        return [(await future)["y"] for future in futures]

    with tinycomp.compile(chain("Relu", "Neg"), unit("npu", "Relu", "Neg", before=gate)) as module:
        module.in_flight = 2
        gate.go_on.release(6)
        for number, each in enumerate(asyncio.run(serve(module))):
            np.testing.assert_array_equal(each, result(number))


def test_a_coroutine_sees_the_error_of_its_run() -> None:
    async def ask(module: tinycomp.Module) -> None:
        with pytest.raises(FeedError):
            await module.run_async({"x0": np.zeros(3, np.float32)})

    with tinycomp.compile(chain("Relu"), "c") as module:
        asyncio.run(ask(module))


def test_a_pipeline_reads_no_further_than_there_is_room() -> None:
    read: list[int] = []

    def requests() -> Iterator[Mapping[str, Any]]:
        for number in range(10):
            read.append(number)
            yield feeds(number)

    with tinycomp.compile(chain("Relu", "Neg"), unit("npu", "Relu", "Neg")) as module:
        stream = tinycomp.pipeline_requests(module, requests(), in_flight=3)
        assert read == []
        np.testing.assert_array_equal(next(stream)["y"], result(0))
        assert len(read) == 4
        for number, each in enumerate(stream, 1):
            np.testing.assert_array_equal(each["y"], result(number))
            assert len(read) <= number + 4


def test_a_pipeline_ends_where_a_request_fails() -> None:
    bad = {"x0": np.zeros(3, np.float32)}
    with tinycomp.compile(chain("Relu", "Neg"), unit("npu", "Relu", "Neg")) as module:
        stream = tinycomp.pipeline_requests(module, [feeds(0), bad, feeds(2)])
        np.testing.assert_array_equal(next(stream)["y"], result(0))
        with pytest.raises(FeedError):
            next(stream)
        module.close()


def test_how_many_requests_are_under_way() -> None:
    npu = unit("npu", "Relu")
    assert tinycomp.compile(chain("Relu"), "c").in_flight == 2
    module = tinycomp.compile(chain("Relu"), npu, devices=3)
    assert module.in_flight == 6
    module.in_flight = 4
    assert module.in_flight == 4
    text = "in_flight: the option does not take this value; expected int"
    for wrong in (0, "many"):
        with pytest.raises(OptionError, match=text):
            module.in_flight = wrong
        with pytest.raises(OptionError, match=text):
            tinycomp.pipeline_requests(module, [], in_flight=wrong)  # type: ignore[arg-type]
    module.close()
