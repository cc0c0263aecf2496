"""Kernels on texts whose spans, tables and automata nobody should trust; what they compute is tested on the target."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.runtime_c.emulated import runner
from tests.runtime_c.helpers import Weight, run_single
from tinycomp.errors import ExecutionError
from tinycomp.ops.automaton import automaton
from tinycomp.runtime.native.program import BufferSpec, Instruction, Operand, Program
from tinycomp.targets.c.codegen.emitter import nd_params
from tinycomp.targets.c.ops.texts import case_table, hash_table

TEXTS = [b"", b"ab", "é".encode(), b"a\0b", b"x" * 40]
HEAP = np.frombuffer(b"".join(TEXTS), np.uint8)


def spans(*pairs: tuple[int, int]) -> np.ndarray:
    """Return spans of first bytes and lengths."""
    return np.array([start + (length << 32) for start, length in pairs], np.uint64)


def whole() -> np.ndarray:
    ends = np.cumsum([0, *map(len, TEXTS)])
    return spans(*zip(ends[:-1].tolist(), map(len, TEXTS), strict=True))


OUTSIDE = [(len(HEAP), 1), (0, len(HEAP) + 1), (2**32 - 1, 2**32 - 1), (1, 2**31)]


def lookup(texts: np.ndarray, table: np.ndarray, slots: int, isa: str, pool) -> list[int]:
    params = {"texts": len(texts), "x_bytes": len(HEAP), "slots": slots, "words": len(table), "missing": -7}
    return run_single("text_lookup", [texts, HEAP, Weight(table)], params, ("int64", texts.shape), isa, pool).tolist()


def match(texts: np.ndarray, table: np.ndarray, states: int, classes: int, isa: str, pool) -> list[bool]:
    params = {"texts": len(texts), "x_bytes": len(HEAP), "states": states, "classes": classes}
    return run_single("text_match", [texts, HEAP, Weight(table)], params, ("bool", texts.shape), isa, pool).tolist()


def test_lookup(isa: str, pool) -> None:
    table, slots = hash_table([TEXTS[4], TEXTS[2], b"zz", TEXTS[0], TEXTS[4]], [10, 11, 12, 13, 14])
    assert lookup(whole(), table, slots, isa, pool) == [13, -7, 11, -7, 10]
    many = [str(i).encode() for i in range(1000)]
    table, slots = hash_table([*many, TEXTS[1]], [*range(1001)])
    assert lookup(whole(), table, slots, isa, pool) == [-7, 1000, -7, -7, -7]


@pytest.mark.parametrize("place", OUTSIDE)
def test_a_span_outside_of_its_heap_fails(place: tuple[int, int], isa: str, pool) -> None:
    table, slots = hash_table([b"a"], [1])
    with pytest.raises(ExecutionError, match="a text lies outside of its heap"):
        lookup(spans((0, 1), place), table, slots, isa, pool)
    with pytest.raises(ExecutionError, match="a text lies outside of its heap"):
        match(spans(place), np.zeros(300, np.int32), 1, 1, isa, pool)
    params = nd_params((1,), a_stride=(1,), b_stride=(1,)) | {"a_bytes": len(HEAP), "b_bytes": len(HEAP)}
    with pytest.raises(ExecutionError, match="a text lies outside of its heap"):
        run_single("text_equal", [spans((0, 1)), HEAP, spans(place), HEAP], params, ("bool", (1,)), isa, pool)


def test_tables_of_garbage_only_give_other_answers(isa: str, pool, rng) -> None:
    full = rng.integers(-(2**62), 2**62, 16 + 8)
    lookup(whole(), full, 8, isa, pool)
    garbage = rng.integers(-(2**31), 2**31 - 1, 256 + 12 + 4).astype(np.int32)
    match(whole(), garbage, 4, 3, isa, pool)
    near = rng.integers(-2, 6, 256 + 12 + 4).astype(np.int32)
    match(whole(), near, 4, 3, isa, pool)


def test_match(isa: str, pool) -> None:
    made = automaton("[^x]+")
    assert made is not None
    table = np.concatenate([p.reshape(-1).astype(np.int32) for p in (made.classes, made.steps, made.accepts)])
    assert match(whole(), table, *made.steps.shape, isa, pool) == [False, True, True, True, False]


def normalized(texts: np.ndarray, heap: np.ndarray, action: str, isa: str, pool, **changes: int) -> list[bytes]:
    """Return texts in another case, without stop words."""
    cases, pages = case_table(action)
    count, room = len(texts), 3 * len(heap) + 8
    params = {
        "count": count, "total": len(heap), "longest": len(heap), "bytes": room, "x_bytes": len(heap), "kept": 0,
        "case_pages": pages, "case_words": len(cases), "stopped_pages": 0, "stopped_words": 0, "stop_slots": 0,
        "stop_words": 0,
    }  # fmt: skip
    outputs = (BufferSpec("y", "uint64", (max(count, 1),)), BufferSpec("count", "int64", (1,)))
    outputs += (BufferSpec("heap", "uint8", (room,)),)
    operands = [Operand("output", i) for i in range(3)] + [Operand("input", i) for i in range(2)]
    operands += [Operand("constant"), Operand("none"), Operand("none")]
    call = Instruction("text_normalize", tuple(operands), params | changes, ("node",))
    inputs = (BufferSpec("x", "uint64", texts.shape), BufferSpec("x_heap", "uint8", heap.shape))
    program = Program("test", inputs, outputs, (cases,), 0, (call,))
    y, left, made = (np.zeros(spec.shape, spec.dtype) for spec in outputs)
    runner(program, pool, isa).run([texts, heap], [y, left, made])
    whole, ends = made.tobytes(), [(s & (1 << 32) - 1, s >> 32) for s in y[: left[0]].tolist()]
    return [whole[start : start + length] for start, length in ends]


@pytest.mark.parametrize("action", ["LOWER", "UPPER"])
def test_every_letter_changes_as_in_python(action: str, native_isa: str, pool) -> None:
    lines = [
        "".join(map(chr, range(start, min(start + 4096, sys.maxunicode + 1)))) for start in range(0, 0x110000, 4096)
    ]
    lines += [f"a{chr(code)}Σ{chr(code)}b Σ{chr(code)} a" for code in range(0x3000)]
    data = [line.encode("utf-8", "surrogatepass") for line in lines]
    ends = np.cumsum([0, *map(len, data)])
    texts = spans(*zip(ends[:-1].tolist(), map(len, data), strict=True))
    change = str.lower if action == "LOWER" else str.upper
    found = normalized(texts, np.frombuffer(b"".join(data), np.uint8), action, native_isa, pool)
    assert found == [change(line).encode("utf-8", "surrogatepass") for line in lines]


def test_bytes_that_are_no_text_stay_as_they_are(isa: str, pool) -> None:
    heap = np.frombuffer(b"A\xffB\xce\xc3\xa9\xf4\xbf\xe2\x82Z\xce", np.uint8)
    assert normalized(spans((0, len(heap))), heap, "LOWER", isa, pool) == [b"a\xffb\xce\xc3\xa9\xf4\xbf\xe2\x82z\xce"]


@pytest.mark.parametrize("changes", [{"total": 1}, {"longest": 1}, {"bytes": 5}])
def test_more_than_there_is_room_for_fails(changes: dict[str, int], isa: str, pool) -> None:
    with pytest.raises(ExecutionError, match=r"longer than they may be|no room for the texts"):
        normalized(whole(), HEAP, "LOWER", isa, pool, **changes)


def test_rows_of_counts_that_nobody_found(isa: str, pool) -> None:
    parts, counts = spans(*[(i, 1) for i in range(12)]), np.array([2, -5, 2**62, 1], np.int64)
    params = {"texts": 4, "width": 3, "most": 3, "fill_start": 7, "fill_length": 0}
    rows = run_single("text_rows", [parts, counts], params, ("uint64", (4, 3)), isa, pool)
    fill = 7
    one = 1 << 32
    assert rows.tolist() == [[one, one + 1, fill], [fill] * 3, [fill] * 3, [one + 2, fill, fill]]
