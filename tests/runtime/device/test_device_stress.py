"""Eight threads, many requests, faulty devices with little memory: every request gets its own results, to the bit.

``TINYCOMP_STRESS_REQUESTS`` says how many requests; the default is a small number.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import tinycomp
from tests.runtime.device.units import data, mixed, unit
from tinycomp.target_api import FaultPolicy
from tinycomp.targets.device_sim import Behaviour, SimulatedDevice

REQUESTS = int(os.environ.get("TINYCOMP_STRESS_REQUESTS", "400"))
THREADS = 8
SHAPE = (32, 32)
INPUTS = 40
BEHAVIOUR = Behaviour(memory=1 << 20, latency=2e-5, fault_rate=0.01, hang_rate=0.001, hang=0.02)
TIGHT = Behaviour(memory=60_000, fault_rate=0.01, seed=1)


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Without warnings, and with threads that take turns far more often than they would."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
    sys.setswitchinterval(interval)


def test_a_module_that_is_closed_under_way_leaves_nobody_waiting() -> None:
    for _ in range(10):
        targets = [unit("npu", "Relu", "Neg", "Sub", behaviour=BEHAVIOUR), unit("dsp", "Mul", behaviour=BEHAVIOUR)]
        module = tinycomp.compile(mixed(), targets, faults=FaultPolicy(retries=2))
        module(data(SHAPE))
        ends: list[BaseException] = []

        def ask(module: tinycomp.Module = module, ends: list[BaseException] = ends) -> None:
            try:
                while True:
                    module(data(SHAPE))
            except tinycomp.DeviceFault as fault:
                ends.append(fault)

        askers = [threading.Thread(target=ask) for _ in range(4)]
        for asker in askers:
            asker.start()
        module.close()
        for asker in askers:
            asker.join(30)
        assert len(ends) == 4


@pytest.mark.long
@pytest.mark.parametrize(
    ("behaviour", "instances", "policy"),
    [
        (BEHAVIOUR, 2, FaultPolicy(retries=4, fallback=True, timeout=5.0)),
        (TIGHT, 1, FaultPolicy(retries=8)),
    ],
)
def test_no_request_is_lost_mixed_up_or_changed(behaviour: Behaviour, instances: int, policy: FaultPolicy) -> None:
    plain = [unit("npu", "Relu", "Neg", "Sub", on_device=False), unit("dsp", "Mul", on_device=False)]
    serial = tinycomp.compile(mixed(), plain)
    feeds = [data(SHAPE, seed) for seed in range(INPUTS)]
    expected = [serial(x) for x in feeds]
    threads_before = threading.active_count()
    targets = [unit("npu", "Relu", "Neg", "Sub", behaviour=behaviour), unit("dsp", "Mul", behaviour=behaviour)]
    module = tinycomp.compile(mixed(), targets, devices={"npu": instances}, faults=policy)
    served: list[int] = []
    wrong: list[object] = []

    def ask(thread: int) -> None:
        for number in range(thread, REQUESTS, THREADS):
            try:
                results = module(feeds[number % INPUTS])
            except Exception as error:
                wrong.append(error)
                continue
            served.append(number)
            if not all(map(np.array_equal, results, expected[number % INPUTS])):
                wrong.append(number)

    askers = [threading.Thread(target=ask, args=(thread,)) for thread in range(THREADS)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert not wrong
    assert sorted(served) == list(range(REQUESTS))
    rows = module.report().devices
    assert sum(row.faults for row in rows) > 0
    assert [sum(row.requests for row in rows if row.target == target) for target in ("npu", "dsp")] == [
        REQUESTS * min(instances, 2), REQUESTS,
    ]  # fmt: skip
    devices = module.devices
    assert all(isinstance(device, SimulatedDevice) and device.peak <= behaviour.memory for device in devices)
    module.close()
    assert [device.used for device in devices] == [0] * len(devices)
    assert threading.active_count() == threads_before
