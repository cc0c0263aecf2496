"""Programs over sizes: every run gives the bits of the same program with numbers put in."""

from __future__ import annotations

import dataclasses
import gc
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.runtime_c.sized import Builder, Value, fixed, sizes_of
from tinycomp.errors import ArtifactError, FeedError, MemoryLimitError, TargetError
from tinycomp.memory import budget
from tinycomp.runtime.native.executor import NativeProgram, Pool
from tinycomp.runtime.native.program import ArenaBuffer, BufferSpec, Operand, Program, TableWord
from tinycomp.symbolic import evaluate, if_zero, maximum, minimum, symbol

N, M, K = symbol("n"), symbol("m"), symbol("k")


def layers(b: Builder) -> None:
    x = b.gemm(b.matrix(N, 12), 16)
    b.give(b.softmax(b.gemm(b.layer_norm(x), 20)))


def tables(b: Builder) -> None:
    x = b.matrix(N, M)
    b.give(b.elementwise(b.elementwise(x), x))
    b.give(b.elementwise(x, b.matrix(1, M)))


def moves(b: Builder) -> None:
    x, y = b.matrix(N, M), b.matrix(K, M)
    whole = b.stacked(b.transposed(b.transposed(x)), y)
    b.give(b.softmax(b.tail(whole, N)))
    b.give(b.tail(whole, (N + K) // 2))


def indexed(b: Builder) -> None:
    x = b.stacked(b.fill(1, 6), b.gemm(b.matrix(N, 4), 6))
    b.give(b.gather(x, b.input(M, dtype="int64"), M))
    b.sizes(N, M, N * M + 1, (N + 7) // 8, maximum(N - 3, 0), minimum(N, M), if_zero(N - 1, M, 5))
    b.give(b.range(N // 2 + M))


def attending(b: Builder) -> None:
    x = b.matrix(N, 8)
    b.give(b.attention(b.stacked(x, b.elementwise(x)), 2))


def image(b: Builder) -> None:
    x = b.conv(N, M, K, 3, 8)
    b.give(b.gemm(x, 4))
    b.sizes(x.rows)


def limited(b: Builder) -> None:
    b.give(b.counted(b.elementwise(b.matrix(N, 8)), N // 2, 12))


PROGRAMS: Mapping[str, Callable[[Builder], None]] = {
    function.__name__: function for function in (layers, tables, moves, indexed, attending, image, limited)
}


def random_program(seed: int) -> Program:
    """Apply calls at random to values at random; all kinds of them come up within a few seeds."""
    rng = np.random.default_rng(seed)
    b = Builder(rng)
    values = [b.matrix(N, 8), b.matrix(M, 8), b.matrix(N, K), b.matrix(2 * M + 1, 8)]
    indices = b.input(K, dtype="int64")

    def other(x: Value) -> Value | None:
        fitting = [v for v in values if v.columns == x.columns]
        return fitting[rng.integers(len(fitting))] if fitting else None

    for _ in range(12):
        x = values[rng.integers(len(values))]
        match rng.integers(12):
            case 0 | 1 if isinstance(x.columns, int):
                made = b.gemm(x, int(rng.integers(1, 24)))
            case 2 if isinstance(x.columns, int):
                made = b.counted(x, x.rows // 3, 8)
            case 3:
                made = b.softmax(x)
            case 4:
                made = b.layer_norm(x)
            case 5:
                made = b.transposed(x)
            case 6 if (y := other(x)) is not None:
                made = b.stacked(x, y)
            case 7:
                made = b.tail(x, minimum(x.rows, 3))
            case 8:
                made = b.gather(b.stacked(x, b.fill(1, x.columns)), indices, K)
            case 9 if isinstance(x.columns, int) and x.columns % 4 == 0:
                made = b.attention(x, 2)
            case 10:
                made = b.elementwise(x, b.fill(x.rows, x.columns))
            case _:
                made = b.elementwise(x)
        values.append(made)
    for value in values[-3:]:
        b.give(value)
    return b.program()


def made(name: str) -> Program:
    b = Builder(np.random.default_rng(3))
    PROGRAMS[name](b)
    return b.program()


def feeds(program: Program, sizes: Mapping[str, int]) -> list[np.ndarray]:
    """Draw inputs; indices are those of a single row."""
    rng = np.random.default_rng(sum(sizes.values()))
    shapes = [tuple(evaluate(dim, sizes) for dim in spec.shape) for spec in program.inputs]
    return [
        rng.integers(-1, 1, shape) if spec.dtype == "int64" else rng.standard_normal(shape, np.float32)
        for spec, shape in zip(program.inputs, shapes, strict=True)
    ]


def empty(program: Program) -> list[np.ndarray]:
    """Make outputs in which what is not written shows."""
    return [np.full(spec.shape, 77, spec.dtype) for spec in program.outputs]


def check(native: NativeProgram, sizes: Mapping[str, int], isa: str | None = None) -> None:
    """Compare a run, and one that makes its own outputs, with the program with numbers put in."""
    arrays = feeds(native.program, sizes)
    plain = fixed(native.program, sizes_of(native.program, arrays))
    wanted, found = empty(plain), empty(plain)
    NativeProgram(plain, isa=isa).run(arrays, wanted)
    native.run(arrays, found)
    for results in (found, native.call(arrays)):
        assert [(r.shape, r.dtype) for r in results] == [(w.shape, w.dtype) for w in wanted], sizes
        for result, want in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(result.view(np.uint8), want.view(np.uint8), str(sizes))


def schedule(program: Program, seed: int, count: int = 14) -> list[dict[str, int]]:
    """Return sizes that grow and shrink, often one symbol alone, among them none and one of everything."""
    rng = np.random.default_rng(seed)
    current = dict.fromkeys(program.symbols, 0)
    result = [current, dict.fromkeys(program.symbols, 1), dict.fromkeys(program.symbols, 130)]
    for i in range(count):
        drawn = {name: int(rng.choice([0, 1, 2, 3, 5, 8, 17, 33, 64, 65])) for name in program.symbols}
        changed = [str(rng.choice(program.symbols))] if i % 2 else program.symbols
        current = current | {name: drawn[name] for name in changed}
        result.append(current)
    return result


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_size_gives_the_bits_of_a_program_for_it_alone(name, native_isa, pool):
    program = made(name)
    natives = [NativeProgram(program, threads, native_isa) for threads in (None, pool)]
    for sizes in schedule(program, 1):
        for native in natives:
            check(native, sizes, native_isa)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed, pool):
    program = random_program(seed)
    natives = [NativeProgram(program, threads) for threads in (None, pool)]
    for sizes in schedule(program, seed, 6):
        for native in natives:
            check(native, sizes)
