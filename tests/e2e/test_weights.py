"""Where weights lie while a module lives: its results must not depend on a file that others may write to."""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tinycomp
from tests.cases.case import make_model
from tinycomp.errors import MemoryLimitError, ModelError

RNG = np.random.default_rng(3)
TABLE = RNG.standard_normal((500, 64)).astype(np.float32)
WEIGHTS = RNG.standard_normal((64, 300)).astype(np.float32)
BIAS = RNG.standard_normal(300).astype(np.float32)
TOKENS = np.array([[1, 499, 7], [3, 3, 0]])


def model(external: bool, path: Path) -> Path:
    """Rows of a table, times weights that are packed, plus a bias; the name shifts the weights to an odd address."""
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["rows"]),
        helper.make_node("MatMul", ["rows", "weights"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["y"]),
    ]
    weights = {"table": TABLE, "weights": WEIGHTS, "bias": BIAS}
    proto = make_model(nodes, {"tokens": TOKENS}, weights, ["y"], symbolic={"tokens": ["batch", 3]})
    proto.graph.name = "odd" * 7
    onnx.save(proto, path, save_as_external_data=external, size_threshold=1024, location=f"{path.stem}.data")
    return path


def wanted(tokens: np.ndarray) -> np.ndarray:
    return TABLE[tokens] @ WEIGHTS + BIAS


def cut_off(path: Path) -> None:
    for file in path.parent.glob(f"{path.stem}.*"):
        with file.open("r+b") as stream:
            stream.truncate(16)


@pytest.fixture(params=[False, True], ids=["in the model", "external"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return model(request.param, tmp_path / "m.onnx")


@pytest.mark.parametrize("target", ["c", "host", "npu_sim", ["npu_sim", "c"]], ids=str)
def test_a_module_runs_on_when_its_file_is_cut_off(path: Path, target) -> None:
    module = tinycomp.compile(path, target, shapes={"tokens": TOKENS.shape})
    cut_off(path)
    np.testing.assert_allclose(module(TOKENS), wanted(TOKENS), rtol=1e-4, atol=1e-4)


def test_what_needs_the_file_again_says_that_it_has_changed(path: Path) -> None:
    module = tinycomp.compile(path)
    first = module(TOKENS)
    cut_off(path)
    np.testing.assert_array_equal(module(TOKENS), first)
    np.testing.assert_array_equal(module(TOKENS[:1]), first[:1])  # the program of all sizes holds its own copies
    with pytest.raises(ModelError, match=r"the file has changed.*Compile the model again"):
        module.save(path.with_suffix(".tcm"))


def test_a_file_that_is_replaced_or_removed_serves_on(path: Path) -> None:
    module = tinycomp.compile(path)
    for file in path.parent.glob("m.*"):
        file.unlink()
    np.testing.assert_allclose(module(TOKENS), wanted(TOKENS), rtol=1e-4, atol=1e-4)
    module.save(path.with_suffix(".tcm"))
    again = tinycomp.load(path.with_suffix(".tcm"))
    np.testing.assert_array_equal(again(TOKENS), module(TOKENS))


@pytest.mark.parametrize("shapes", [{"tokens": TOKENS.shape}, None], ids=["static", "symbolic"])
def test_a_loaded_module_runs_on_when_its_file_is_cut_off(path: Path, shapes) -> None:
    saved = path.with_suffix(".tcm")
    tinycomp.compile(path, shapes=shapes).save(saved)
    module = tinycomp.load(saved)
    first = module(TOKENS)
    with saved.open("r+b") as stream:
        stream.truncate(16)
    np.testing.assert_array_equal(module(TOKENS), first)
    with pytest.raises(ModelError, match="the file has changed"):
        module.save(path.with_suffix(".copy"))


@pytest.mark.parametrize("specialize", [False, True])
def test_runs_of_several_sizes_share_one_packed_copy(path: Path, specialize: bool) -> None:
    module = tinycomp.compile(path, specialize=specialize)
    weights = module._parts.pack.func.__self__.weights
    if not specialize:
        assert weights.nbytes >= WEIGHTS.nbytes, "packed before the first run"
    module(TOKENS)
    held = weights.nbytes
    assert held >= WEIGHTS.nbytes
    module(TOKENS[:1])
    assert weights.nbytes == held


def numbers(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]


def resize(memory_limit: int | None = None):
    """A resize of many channels: its arena holds a copy of the input in another order, and of the result."""
    proto = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 17]>
        resize (float[1, 64, 128, 128] x) => (y) <int64[4] sizes = {1, 64, 126, 126}>
        { y = Resize<mode = "linear">(x, , , sizes) }""")
    return tinycomp.compile(proto, threads=1, memory_limit=memory_limit)


def test_a_limit_counts_what_a_program_allocates_when_it_is_loaded() -> None:
    values = 4 * 64 * (128 * 128 + 126 * 126)
    (region,) = resize().report().regions
    assert region.arena > values // 2
    with pytest.raises(MemoryLimitError, match="region c_0") as caught:
        resize(memory_limit=values + region.arena - 1)
    assert max(numbers(caught.value.found)) >= values + region.arena
    assert numbers(caught.value.expected) == [values + region.arena - 1]
    module = resize(memory_limit=values + region.arena + (1 << 20))
    assert module(np.zeros((1, 64, 128, 128), np.float32)).shape == (1, 64, 126, 126)


def test_the_report_has_the_arena_beside_its_lower_bound() -> None:
    report = resize().report()
    (region,) = report.regions
    assert region.arena >= region.arena_bound > 0
    assert report.totals["arena"] == {"bytes": region.arena, "bound": region.arena_bound}
    assert report.to_dict()["regions"][0]["arena"] == region.arena
    line = "Intermediate values inside regions take"
    assert line in str(report)
    assert type(report).from_dict(report.to_dict()) == report or not report.totals["macs"]["offloaded"]


def chain(count: int, size: int) -> tuple[tinycomp.Graph, list[np.ndarray]]:
    """Products in a row, with weights of ``size * size * 4`` bytes each."""
    graph = tinycomp.Graph("chain", opsets={"": 17})
    value = graph.add_input("x", tinycomp.ir.TensorType("float32", ("rows", size)))
    weights = [RNG.standard_normal((size, size)).astype(np.float32) / np.float32(size**0.5) for _ in range(count)]
    for i, array in enumerate(weights):
        value = graph.add("MatMul", [value, graph.add_const(array, f"w{i}")]).output
    graph.set_outputs([value], ["y"])
    return graph, weights


@pytest.mark.long
@pytest.mark.parametrize("size", [512, 700], ids=["1 MB", "2 MB"])
def test_many_weights_that_lie_side_by_side_are_right_and_freed(size: int) -> None:
    """More than one slab of them, beside which some have memory of their own."""
    count = 32
    graph, weights = chain(count, size)
    x = RNG.standard_normal((3, size)).astype(np.float32)
    expected = x
    for array in weights:
        expected = expected @ array
    resident = []
    for _ in range(6):
        modules = [tinycomp.compile(graph), tinycomp.compile(graph)]
        del modules[0]
        np.testing.assert_allclose(modules.pop()(x), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
        gc.collect()
        resident.append(_resident())
    # The first rounds find out what the allocator keeps for later ones; a leak would go on in every round.
    assert min(resident[4:]) - resident[1] < 2 * count * size * size * 4


def _resident() -> int:
    """Bytes of the process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
