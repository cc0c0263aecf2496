"""What only repeats elements, or counts, takes no memory: who reads a part of it gets that part."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from onnx import helper, parser

import tinycomp

HEAD = '<ir_version: 9, opset_import: ["": 17]> g (float[3] row, float[1, 3] line, float[3, 1] column)'
ROWS, MOST = 1 << 23, 1 << 24
MAKERS = {
    "Expand": ("big = Expand(row, size)", [1, 2, 3]),
    "Tile": ("counts = Concat<axis = 0>(times, one) big = Tile(line, counts)", [1, 2, 3]),
    "ConstantOfShape": ("big = ConstantOfShape<value = float[1] {7}>(size)", [7, 7, 7]),
    "Slice": ("all = Expand(row, size) big = Slice(all, one, three, one)", [2, 3]),
    "Transpose": ("all = Expand(column, turned) big = Transpose<perm = [1, 0]>(all)", [1, 2, 3]),
    "Range": ("all = Range(begin, limit, step) big = Slice(all, one, many)", 7),
}
READERS = {"Slice": "part = Slice(big, two, three)", "Gather": "part = Gather(big, two)"}
NUMBERS = {
    "size": [ROWS, 3], "times": [ROWS], "turned": [3, ROWS], "one": [1], "two": [2], "three": [3], "many": [9],
    "begin": 1, "limit": 8 * ROWS, "step": 2,
}  # fmt: skip
FED = ("size", "times", "turned", "limit")


@pytest.mark.parametrize("target", ["host", "c"])
@pytest.mark.parametrize("is_fed", [False, True], ids=["constant", "fed"])
def test_a_part_of_what_repeats_takes_no_memory_for_the_rest(is_fed: bool, target: str) -> None:
    for maker, (making, expected) in MAKERS.items():
        for reader, reading in READERS.items():
            if (maker, reader) == ("Range", "Gather"):
                continue  # an index that is too large must be found
            model = parser.parse_model(f"{HEAD} => (part) {{ {making} {reading} }}")
            used = {name: np.array(n) for name, n in NUMBERS.items() if any(name in v.input for v in model.graph.node)}
            feeds = {name: n for name, n in used.items() if is_fed and name in FED}
            inputs = [helper.make_tensor_value_info(name, 7, n.shape) for name, n in feeds.items()]
            model.graph.input.extend(inputs)
            model.graph.initializer.extend(
                helper.make_tensor(name, 7, n.shape, n.reshape(-1)) for name, n in used.items() if name not in feeds
            )
            module = tinycomp.compile(
                model, () if target == "host" else target, memory_limit=None if target == "host" else MOST
            )
            row = np.array([1, 2, 3], np.float32)
            tracemalloc.start()
            result = module.run({"row": row, "line": row[None], "column": row[:, None], **feeds})["part"]
            grown = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            np.testing.assert_array_equal(result.reshape(-1), expected, f"{maker}, {reader}")
            assert grown < MOST, (maker, reader, grown)
