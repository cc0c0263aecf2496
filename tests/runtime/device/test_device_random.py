"""Random graphs over two targets with devices and the host compute what the host alone does, to the bit.

``TINYCOMP_RANDOM_GRAPHS`` says how many graphs; the default is a small number.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator

import numpy as np
import pytest

import tinycomp
from tests.runtime.device.units import data, graph_of, unit
from tinycomp.target_api import FaultPolicy, Graph
from tinycomp.targets.device_sim import Behaviour, SimulatedDevice

GRAPHS = int(os.environ.get("TINYCOMP_RANDOM_GRAPHS", "12"))
UNARY, BINARY = ("Abs", "Neg", "Relu", "Tanh"), ("Add", "Mul", "Sub")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def random_graph(draw: random.Random, shape: tuple[int | str, ...]) -> Graph:
    """A graph of up to 25 nodes, each of which reads any values before it; some read constants."""
    graph = graph_of(shape, inputs=draw.randint(1, 3))
    values = list(graph.inputs)
    weight = graph.add_const(data((8,), 1), "w")
    for _ in range(draw.randint(1, 25)):
        op = draw.choice(UNARY + BINARY)
        operands = [draw.choice(values) for _ in range(1 if op in UNARY else 2)]
        if op in BINARY and draw.random() < 0.2:
            operands[1] = weight
        values.append(graph.add(op, operands).output)
    results = draw.sample(values, min(len(values), draw.randint(1, 4)))
    graph.set_outputs(results, [f"y{i}" for i in range(len(results))])
    return graph


@pytest.mark.parametrize("seed", range(GRAPHS))
def test_random_graphs(seed: int) -> None:
    draw = random.Random(seed)
    shape: tuple[int | str, ...] = draw.choice([(4, 8), ("n", 8)])
    graph = random_graph(draw, shape)
    ops = [op for op in UNARY + BINARY if op != "Tanh"]
    draw.shuffle(ops)
    mine, theirs = ops[: draw.randint(1, 4)], ops[4:]
    behaviour = Behaviour(
        fault_rate=draw.choice([0.0, 0.1]), seed=seed, peers=draw.random() < 0.5, shared=draw.random() < 0.3
    )
    policy = FaultPolicy(retries=6, fallback=draw.random() < 0.5) if behaviour.fault_rate else FaultPolicy()
    options = {"single": draw.random() < 0.3, "bind_constants": draw.random() < 0.7}
    static = draw.random() < 0.5
    targets = [
        unit("npu", *mine, behaviour=behaviour, static_shapes=static, **options),
        unit("dsp", *theirs, behaviour=behaviour, **options),
    ]
    host = tinycomp.compile(graph, "host")
    devices = {"npu": draw.randint(1, 3), "dsp": draw.randint(1, 2)}
    with tinycomp.compile(graph, targets, devices=devices, faults=policy) as module:
        requests = []
        for number in range(6):
            rows = draw.choice([3, 4]) if "n" in shape else 4
            requests.append({spec.name: data((rows, 8), 10 * number + i) for i, spec in enumerate(module.inputs)})
        futures = [module.run_async(feeds) for feeds in requests]
        for feeds, future in zip(requests, futures, strict=True):
            found, expected = future.result(60), host.run(feeds)
            assert found.keys() == expected.keys()
            for name, array in expected.items():
                np.testing.assert_array_equal(found[name], array)
        if module.plan.on_devices and not behaviour.fault_rate:
            with SimulatedDevice("other") as other:
                given = {name: other.put(array) if draw.random() < 0.5 else array for name, array in feeds.items()}
                into = {n: other.empty(a.shape, a.dtype) for n, a in expected.items() if draw.random() < 0.5}
                found = module.run(given, outputs=into)
                for name, array in expected.items():
                    value = found[name]
                    np.testing.assert_array_equal(value.numpy() if name in into else value, array)
