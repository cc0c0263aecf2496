"""Parquet files with something wrong in them, made from a number each, and what scoring makes of one."""

from __future__ import annotations

import functools
import io
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tinycomp
from tests.fuzz.harness import WrongError
from tests.fuzz.mutation import mutate_bytes
from tinycomp.errors import FeedError
from tinycomp.ir import Graph, TensorType
from tinycomp.scoring.manifest import read_file
from tinycomp.scoring.piece import Settings
from tinycomp.scoring.score import chosen_columns
from tinycomp.scoring.worker import Worker

ROWS = 90
_FORMS = (
    {"compression": "snappy"}, {"compression": "none"}, {"compression": "zstd"}, {"compression": "gzip"},
    {"compression": "none", "use_dictionary": False}, {"compression": "lz4", "use_dictionary": ["name"]},
    {"compression": "snappy", "write_page_checksum": True, "data_page_version": "2.0"},
)  # fmt: skip


@functools.cache
def whole(form: int) -> bytes:
    """A file of three row groups: lists of numbers, texts, numbers."""
    rng, buffer = np.random.default_rng(form), io.BytesIO()
    table = pa.table(
        {
            "x": pa.array(rng.standard_normal((ROWS, 4)).astype(np.float32).tolist(), pa.list_(pa.float32(), 4)),
            "name": [f"row {i % 7}" for i in range(ROWS)],
            "id": np.arange(ROWS),
        }
    )
    pq.write_table(table, buffer, row_group_size=40, **_FORMS[form])
    return buffer.getvalue()


def case(seed: int) -> bytes:
    """Return the bytes of a file: cut off, or with changes anywhere, in its pages or in its footer."""
    rng = random.Random(f"damage:{seed}")
    data = whole(seed % len(_FORMS))
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    match rng.randrange(4):
        case 0:
            return data[: rng.randrange(len(data))]
        case 1:
            return mutate_bytes(rng, data)
        case 2:
            return mutate_bytes(rng, data[:footer])[:footer].ljust(footer, b"\0") + data[footer:]
        case _:
            changed = bytearray(data)
            for _ in range(rng.choice((1, 1, 2, 4))):
                changed[rng.randrange(footer, len(data) - 4)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            return bytes(changed)


@functools.cache
def worker(folder: str) -> Worker:
    """Return a worker that writes to a folder."""
    graph = Graph("sums", opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", ("N", "T")))
    graph.set_outputs([graph.add("ReduceSum", [x, graph.add_const(np.int64([1]))], {"keepdims": 0}).output], ["sum"])
    module = tinycomp.compile(graph)
    module.save(Path(folder) / "m.tcm")
    return Worker(Settings(str(Path(folder) / "m.tcm"), folder, {"x": "x"}, ("name", "id"), None, 1))


def check(data: bytes, folder: str) -> Counter[str]:
    """Score a file into a folder: results for its rows, or an error of ours that names it."""
    scorer, path = worker(folder), Path(folder) / "given.parquet"
    path.write_bytes(data)
    try:
        file, schema = read_file(path)
        chosen_columns(scorer.module, [(file, schema)], {}, ["name", "id"])
        done = [scorer.score(piece) for piece in file.pieces(0)]
    except FeedError as error:
        if str(path) not in str(error):
            raise WrongError(f"the error does not name the file: {error}") from error
        return Counter(refused=1)
    assert sum(each.rows + each.failed for each in done) == sum(file.row_groups)
    for each in done:
        assert pq.read_metadata(Path(folder) / each.name).num_rows == each.rows
    return Counter(scored=1)
