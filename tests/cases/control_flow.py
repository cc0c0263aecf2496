"""Loops and branches, written as text; every operator's rows stand in bodies as well, which is a way of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

from tests.cases.case import Case, Const
from tests.cases.values import floats

LOOP = """sum (int64 i, bool go, float[a] s) => (bool on, float[a] t, float[a] each)
    { on = Identity(go) t = Add(s, s) each = Neg(t) }"""
SCAN_TWO = """b (float s, float x, float z) => (float t, float y) { y = Mul(x, z) t = Add(s, y) }"""
SCAN = "step (float s, float x) => (float t, float y) { t = Add(s, x) y = Mul(t, t) }"
GROW = "grow (int64 i, bool go, float[b] s) => (bool on, float[c] t) { on = Identity(go) t = Concat<axis=0>(s, s) }"
STOP = """stop (int64 i, bool go, int64 s) => (bool on, int64 t, int64 each)
    { one = Constant<value_int=1>() t = Add(s, one) five = Constant<value_int=5>() on = Less(t, five)
      each = Identity(s) }"""


def graph(text: str) -> onnx.GraphProto:
    """Return a body."""
    return onnx.parser.parse_graph(text)


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    for trips in (0, 1, 3):
        for limit in (np.array(trips), Const(np.array(trips))):
            operands: list[Any] = [limit, None, floats(4)]
            yield Case("Loop", operands, {"body": graph(LOOP)}, outputs=2, onnxruntime=trips > 0)
            yield Case("Loop", [limit, None, floats(2)], {"body": graph(GROW)})
    yield Case("Loop", [None, np.array(True), np.array(0)], {"body": graph(STOP)}, outputs=2)
    yield Case("Loop", [np.array(3), np.array(True), np.array(1)], {"body": graph(STOP)}, outputs=2)
    yield Case("Loop", [np.array(9), np.array(False), np.array(1)], {"body": graph(STOP)}, outputs=2, onnxruntime=False)
    for x in (floats(5), floats(1), floats(0)):
        for directions in ([0], [1]):
            attrs = {"body": graph(SCAN), "num_scan_inputs": 1, "scan_input_directions": directions}
            yield Case("Scan", [np.array(0.5, np.float32), x], attrs, outputs=2, onnxruntime=bool(x.size))
    for lengths in ((4, 5), (5, 4), (0, 2)):
        attrs = {"body": graph(SCAN_TWO), "num_scan_inputs": 2}
        yield Case("Scan", [np.array(0.5, np.float32), *map(floats, lengths)], attrs, outputs=2, refused="differ|index")
    branches = {
        "then_branch": graph("t () => (float[2] y) { y = Constant<value_floats=[1.0, 2.0]>() }"),
        "else_branch": graph("e () => (float[3] y) { y = Constant<value_floats=[3.0, 4.0, 5.0]>() }"),
    }
    for which in (True, False):
        yield Case("If", [np.array(which)], branches)
        yield Case("If", [Const(np.array(which))], branches)
    yield Case("If", [np.array([True])], branches)
    # A loop whose carried value grows, named as the result around it.
    growing = "t () => (float[k] y0) { x = Constant<value_floats=[1.0, 2.0]>() m = Constant<value_int=2>() " + (
        f"y0 = Loop(m, , x) <body = {GROW}> }}"
    )
    yield Case("If", [np.array(True)], branches | {"then_branch": graph(growing)})
