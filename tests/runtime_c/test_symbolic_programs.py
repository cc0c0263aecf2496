"""Programs over sizes: every run gives the bits of the same program with numbers put in."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from tests import records
from tests.runtime_c.sized import Builder, Value, fixed, sizes_of
from tests.threads import in_threads
from tinycomp.errors import ArtifactError, ExecutionError, FeedError, MemoryLimitError, TargetError
from tinycomp.memory import budget
from tinycomp.runtime.binding import direct_call
from tinycomp.runtime.native.encoder import encoded
from tinycomp.runtime.native.executor import NativeProgram, Pool, Weights
from tinycomp.runtime.native.library import ffi, lib
from tinycomp.runtime.native.program import ArenaBuffer, BufferSpec, Instruction, Operand, Program, TableWord
from tinycomp.runtime.plan import Plan, Step
from tinycomp.runtime.regions import NativeRegion
from tinycomp.runtime.spec import TensorSpec
from tinycomp.symbolic import evaluate, if_zero, maximum, minimum, product, symbol

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


def found(b: Builder) -> None:
    """A size, what follows from it in several ways, and another one that is found among the first."""
    x = b.gemm(b.first(b.elementwise(b.matrix(N, 8)), N // 2), 12)
    b.give(x)
    y = b.first(b.softmax(b.stacked(x, x)), x.rows // 3 + minimum(x.rows, 2))
    b.give(b.transposed(y))
    b.give(b.elementwise(y, b.matrix(1, 12)))
    b.sizes(N)


PROGRAMS: Mapping[str, Callable[[Builder], None]] = {
    function.__name__: function for function in (layers, tables, moves, indexed, attending, image, found)
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
                made = b.gemm(b.first(x, x.rows // 3), 8)
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


@pytest.mark.parametrize("seed", range(0, 40, 8))
def test_programs_survive_their_records(seed):
    program = random_program(seed)
    again = records.again(program)  # numbers of single precision are rounded
    assert records.again(again) == again
    check(NativeProgram(again), dict.fromkeys(again.symbols, 5))


@pytest.mark.parametrize("name", PROGRAMS)
def test_bound_and_profiled(name, pool):
    program = made(name)
    native = NativeProgram(program, pool)
    bound = []
    for sizes in schedule(program, 2, 4):
        arrays = feeds(program, sizes)
        wanted, found = native.call(arrays), empty(fixed(program, sizes_of(program, arrays)))
        bound.append((native.bound(arrays, found), found, wanted))
        profiled = [np.zeros_like(w) for w in wanted]
        seconds = native.profile(arrays, profiled)
        assert len(seconds) == len(program.instructions)
        assert all(native.work(i).bytes >= 0 for i in range(len(seconds)))
        for result, want in zip(profiled, wanted, strict=True):
            np.testing.assert_array_equal(result, want)
    for run, found, wanted in bound:
        run()
        for result, want in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(result, want)


def direct(native: NativeProgram) -> Callable[[list[np.ndarray]], list[np.ndarray] | None]:
    """Return the short way through a plan that is this program alone."""
    program = native.program
    region = NativeRegion(program, native.pool)
    region.native = native
    inputs = tuple(TensorSpec(s.name, s.dtype, (None,) * len(s.shape)) for s in program.inputs)
    outputs = tuple(TensorSpec(s.name, s.dtype, (None,) * len(s.shape)) for s in program.outputs)
    reads = tuple(range(len(inputs)))
    writes = tuple(range(len(inputs), len(inputs) + len(outputs)))
    step = Step("region", "region", "c", region, reads, writes)
    return direct_call(Plan(inputs, outputs, (step,), (None,) * (len(reads) + len(writes)), reads, writes))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_short_way(name, pool):
    program = made(name)
    native = NativeProgram(program, pool)
    call = direct(native)
    grown = NativeProgram(program, pool)
    for sizes in schedule(program, 3):
        arrays = feeds(program, sizes)
        wanted, found = grown.call(arrays), call(arrays)
        if found is None:  # more memory is needed, which the long way asks for
            native.call(arrays)
            found = call(arrays)
        for result, want in zip(found, wanted, strict=True):
            assert (result.shape, result.dtype) == (want.shape, want.dtype)
            np.testing.assert_array_equal(result, want)


def test_the_short_way_leaves_sizes_alone_that_do_not_work():
    b = Builder(np.random.default_rng(0))
    b.give(b.tail(b.matrix(N, 4), 3))
    native = NativeProgram(b.program())
    call = direct(native)
    x = np.ones((5, 4), np.float32)
    for arrays in ([x[:2]], [x[:0]], [x.T], [x.astype(int)], [], [x, x]):
        assert call(arrays) is None
        native.call([x])
        np.testing.assert_array_equal(call([x])[0], x[3:])


# ---- sizes that do not work ----


def test_typical_sizes_need_not_work():
    """They are those for which a program is checked first; here they divide by 0 and need more memory than there is."""
    b = Builder(np.random.default_rng(0))
    x = b.matrix(N, M)
    b.sizes(M // (N - 1), product([M, K] * 8))
    huge = b.fill(M * M * M * M * M, M * M * M * M * M)
    b.give(b.tail(huge, M * M * M * M * M - 1))
    b.give(b.elementwise(x, b.matrix(N, M)))
    b.input(K)
    program = b.program()
    native = NativeProgram(program)
    for n, m, k in ((3, 2, 1), (0, 1, 2), (4, 3, 0)):
        if n:
            check(native, {"n": n, "m": m, "k": k})
    with pytest.raises(FeedError, match="a size that divides another is 0"):
        native.call(feeds(program, {"n": 1, "m": 1, "k": 1}))
    check(native, {"n": 3, "m": 2, "k": 1})


def refusing() -> Program:
    """A program whose second call works from four rows on; the first one has then made its plan already."""
    b = Builder(np.random.default_rng(0))
    x = b.matrix(N, M)
    y = b.transposed(x)
    b.give(b.softmax(b.tail(b.transposed(y), 4)))
    return b.program()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_context_is_whole_again_after_sizes_that_a_call_refuses(threads):
    native = NativeProgram(refusing(), Pool(threads))
    for n, m in ((6, 3), (3, 3), (6, 3), (2, 9), (7, 9), (0, 0), (4, 0), (40, 50), (1, 50), (40, 50)):
        if n >= 4:
            check(native, {"n": n, "m": m})
            continue
        with pytest.raises(FeedError, match="the model does not work for these sizes") as refused:
            native.call([np.zeros((n, m), np.float32)])
        assert f"n = {n}, m = {m}" in str(refused.value)
    assert len(native.contexts) == 1


def test_a_refused_call_is_named():
    b = Builder(np.random.default_rng(0))
    b.give(b.tail(b.softmax(b.matrix(N, M)), 4))
    native = NativeProgram(b.program())
    text = r"test, node node1 \(copy\): the model does not work for these sizes: .*; found n = 3, m = 5"
    with pytest.raises(FeedError, match=text):
        native.call([np.zeros((3, 5), np.float32)])
    check(native, {"n": 5, "m": 3})


def test_a_negative_dimension_of_a_result():
    spec = BufferSpec("y", "float32", (N - 3, N - 3))
    params = {f"{name}{i}": int(name == "size" and i < 7) for name in ("size", "stride") for i in range(8)}
    fill = Instruction("fill", (Operand("output"),), {"element_size": 4, "pattern": 0, **params})
    program = Program("test", (BufferSpec("x", "float32", (N,)),), (spec,), (), 0, (fill,))
    native = NativeProgram(program)
    call = direct(native)
    assert native.call([np.zeros(5, np.float32)])[0].shape == (2, 2)
    x = np.zeros(1, np.float32)
    assert call([x]) is None
    with pytest.raises(FeedError, match="an array would have a dimension of -2"):
        native.call([x])
    with pytest.raises(FeedError, match="an array would have a dimension of -2"):
        native.run([x], [np.zeros((2, 2), np.float32)])
    assert call([np.zeros(3, np.float32)])[0].shape == (0, 0)


def test_sizes_too_large():
    b = Builder(np.random.default_rng(0))
    x = b.input(N, M)
    b.outputs.append(BufferSpec("y", "float32", (N, M)))
    b.copy(Value(x, N, M), Operand("output", 0))
    b.sizes(N * N)
    native = NativeProgram(b.program())
    for n in (1 << 25, 1 << 49, 1 << 60):
        with pytest.raises((FeedError, MemoryLimitError), match=r"a size of \d+|more memory would be needed"):
            native.call([np.zeros((n, 0), np.float32)])
        check(native, {"n": 5, "m": 3})


def test_inputs_that_do_not_fit_each_other():
    program = made("moves")
    native = NativeProgram(program)
    x, y = np.zeros((2, 3), np.float32), np.zeros((4, 5), np.float32)
    with pytest.raises(FeedError, match=r'array 1 \(".*"\) does not fit') as refused:
        native.call([x, y])
    assert "float32[4, 3]" in str(refused.value)
    with pytest.raises(FeedError, match="wrong number of arrays"):
        native.call([x])
    with pytest.raises(FeedError, match=r'array 0 \(".*"\) does not fit'):
        native.call([x[0], y])
    with pytest.raises(FeedError, match="wrong number of arrays"):
        native.call([x, y[:, :3].copy(), x])
    check(native, {"n": 2, "m": 3, "k": 4})


def test_a_budget_that_refuses_to_grow():
    native = NativeProgram(made("layers"))
    with budget.limited(memory=1 << 20):
        check(native, {"n": 20})
        with pytest.raises(MemoryLimitError, match="region test"):
            native.call(feeds(native.program, {"n": 100_000}))
        check(native, {"n": 21})
        check(native, {"n": 0})
    check(native, {"n": 100_000})
    with budget.limited(memory=1 << 20):
        native.call(feeds(native.program, {"n": 50_000}))  # its memory is there already


def test_a_budget_that_refuses_the_first_sizes():
    b = Builder(np.random.default_rng(0))
    b.sizes(N)
    b.give(b.softmax(b.matrix(N, 4)))
    native = NativeProgram(b.program())
    with budget.limited(memory=1 << 16):
        with pytest.raises(MemoryLimitError):
            native.call(feeds(native.program, {"n": 100_000}))
        check(native, {"n": 0})


# ---- weights ----


@pytest.mark.parametrize("shared", [False, True])
def test_weights_at_a_place_that_depends_on_sizes(shared):
    """Packed weights are kept for all sizes, but not where they are others."""
    b = Builder(np.random.default_rng(0))
    both = b.constant(2, 8, 16)
    x = b.matrix(N, 8)
    b.give(b.gemm(x, 16, weights=dataclasses.replace(both, offset=if_zero(N - 3, 8 * 16 * 4, 0))))
    native = NativeProgram(b.program(), weights=Weights() if shared else None)
    for n in (1, 3, 2, 3, 3, 1):
        check(native, {"n": n})


def test_weights_are_packed_once_for_all_sizes():
    program = made("layers")
    native = NativeProgram(program)
    assert native.state_bytes >= sum(c.nbytes for c in program.constants)
    weights = Weights()
    natives = [NativeProgram(program, weights=weights) for _ in range(3)]
    packed = weights.nbytes
    for native in natives:
        check(native, {"n": 7})
    assert weights.nbytes == packed > 0


# ---- lives ----


def test_contexts_outlive_their_programs():
    native = NativeProgram(made("moves"), Pool(2))
    check(native, {"n": 3, "m": 4, "k": 5})
    contexts, run = native.contexts, native.bound(
        feeds(native.program, {"n": 1, "m": 2, "k": 3}), native.call(feeds(native.program, {"n": 1, "m": 2, "k": 3}))
    )  # fmt: skip
    handles = [context.handle for context in contexts]
    call = direct(native)
    del native, contexts
    gc.collect()
    run()
    assert call([np.ones((1, 2), np.float32), np.ones((3, 2), np.float32)]) is not None
    del run, call
    gc.collect()
    handles.clear()
    gc.collect()


def test_many_threads_with_sizes_of_their_own(pool):
    program = made("moves")
    native = NativeProgram(program, pool)
    call = direct(native)
    cases = []
    for sizes in schedule(program, 4, 9):
        arrays = feeds(program, sizes)
        cases.append((arrays, NativeProgram(program).call(arrays)))
    wrong: list[int] = []

    def work(start: int) -> None:
        for i in range(60):
            arrays, wanted = cases[(start * 5 + i) % len(cases)]
            found = (call(arrays) if i % 2 else None) or native.call(arrays)
            wrong.extend(i for f, w in zip(found, wanted, strict=True) if not np.array_equal(f, w))

    in_threads(work, range(8))
    assert wrong == []
    assert len(native.contexts) <= 9


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="nothing tells how much memory is in use")
def test_changing_sizes_take_no_memory(pool):
    native = NativeProgram(made("moves"), pool)
    call = direct(native)
    rng = np.random.default_rng(0)

    def some() -> None:
        for _ in range(400):
            n, m, k = (int(x) for x in rng.integers(0, 60, 3))
            arrays = [np.ones((n, m), np.float32), np.ones((k, m), np.float32)]
            assert call(arrays) or native.call(arrays)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    some()
    before = resident()
    for _ in range(5):
        some()
    assert resident() - before < 4 << 20


# ---- programs from files ----


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        ({"arena": [(64, (0,))]}, "the pieces of the arena lie in a circle"),
        ({"arena": [(64, (1,)), (64, (0,))]}, "the pieces of the arena lie in a circle"),
        ({"arena": [(64, (7,))]}, "the pieces of the arena lie in a circle"),
        ({"arena": [(64, (-1,))]}, "the pieces of the arena lie in a circle"),
        ({"arena": [(64, (1 << 70,))]}, "a number of the program does not fit"),
        ({"arena": [(symbol("q"), ())]}, "the size q depends on 'q', which is not a dimension of an input"),
        ({"arena": [(1 << 50, ())]}, "a size of 1125899906842624"),
        ({"arena": [(1 << 70, ())]}, "a number of the program does not fit"),
        ({"arena": []}, "is not among the 0 buffers of its space"),
        ({"arena": [], "arena_bytes": 1 << 20}, "is not among the 0 buffers of its space"),
        ({"tables": [(0, 1 << 40, N)]}, "has no word"),
        ({"tables": [(0, -1, N)]}, "has no word"),
        ({"tables": [(99, 0, N)]}, "constant 99 has no word"),
        ({"tables": [(-1, 0, N)]}, 'in a record "word": a number is out of range'),
        ({"tables": [(1 << 40, 0, N)]}, 'in a record "word": a number is out of range'),
        ({"tables": [(0, 1 << 70, N)]}, "a number of the program does not fit"),
        ({"tables": [(0, 0, N * int("9" * 4000))]}, "a number of the program does not fit"),
        ({"inputs": [("x", "float32", (3, 3))]}, "y0: .* depends on sizes"),
        ({"inputs": [("x", "float32", (N + 1, 3))]}, "not dimensions of an input"),
    ],
)
def test_programs_that_do_not_hold_together(damage, text):
    b = Builder(np.random.default_rng(0))
    b.give(b.elementwise(b.matrix(N, M)))
    kinds = {"arena": ArenaBuffer, "tables": TableWord, "inputs": BufferSpec}
    fields = {
        name: tuple(kinds[name](*each) for each in value) if name in kinds else value for name, value in damage.items()
    }
    with pytest.raises(TargetError, match=text):
        NativeProgram(dataclasses.replace(b.program(), **fields))


@pytest.mark.parametrize(
    "size",
    ["", "n +", "n ** 2", "f(n)", "n.m", "lambda: n", "[n]", "n < 3", "(" * 500 + "n" + ")" * 500, "n+" * 9000 + "n",
     "n//0", "*".join(["(a+b+c+d+e)"] * 80), "%".join("nabcdefghijklmopqrstuvwxyz"), "(n+1)//" * 200 + "m",
     f"min({', '.join(f'a{i}' for i in range(900))})", "\0", "min(n)" * 2],
)  # fmt: skip
def test_texts_that_are_no_sizes(size):
    program = made("tables")
    said = records.read(encoded(program))
    records.of_kind(said, "call")[0]["macs"] = size
    with pytest.raises(ArtifactError, match="the description of a program is damaged"):
        records.program(said, program.constants)


def test_tables_without_symbols():
    program = Program(
        "test", (), (), (np.zeros(3, np.int64),), 0, (), tables=(TableWord(0, 0, 3),), arena=(ArenaBuffer(64, ()),)
    )
    with pytest.raises(TargetError, match="the arena or a table depends on sizes, and the program has no symbols"):
        NativeProgram(program)
    spec = BufferSpec("y", "float32", (N,))
    with pytest.raises(TargetError, match=r"y: float32\[n\] depends on sizes that are not dimensions of an input"):
        NativeProgram(Program("test", (), (spec,), (), 0, ()))


def _damaged(data: object, rng: np.random.Generator) -> object:
    """Exchange one leaf of a description."""
    path: list[tuple[object, object]] = []
    while isinstance(data, (dict, list)) and data:
        keys = list(data) if isinstance(data, dict) else list(range(len(data)))
        key = keys[rng.integers(len(keys))]
        path.append((data, key))
        data = data[key]
    holder, key = path[-1]
    others = [0, 1, -1, 3, 1 << 31, 1 << 40, -(1 << 62), "n", "m*n - 5", [4, 5]]
    holder[key] = others[rng.integers(len(others))]
    return path[0][0]


@pytest.mark.parametrize("seed", range(20))
def test_damaged_programs_are_refused_or_run(seed):
    """What passes every check may compute anything, in its own memory."""
    program = random_program(seed)
    rng = np.random.default_rng(seed)
    text = json.dumps(records.read(encoded(program)))
    for _ in range(40):
        try:
            native = NativeProgram(records.program(_damaged(json.loads(text), rng), program.constants))
            for size in (5, 1, 0, 9):
                with contextlib.suppress(FeedError, ExecutionError):
                    native.call(feeds(program, dict.fromkeys(program.symbols, size)))
        except (ArtifactError, TargetError, MemoryLimitError, MemoryError):
            pass


# ---- calls that follow from sizes alone ----


def adding_up(again: bool = False) -> Program:
    """Add the input to 1.5, which only the first call sets, and perhaps write the sum there."""
    b = Builder(np.random.default_rng(0))
    x = b.matrix(N, 3)
    total = b.fill(N, 3)
    y = b.elementwise(total, x)
    if again:
        b.copy(y, total.place)
    b.give(y)
    program = b.program()
    apart = tuple(ArenaBuffer(piece.nbytes, tuple(range(i))) for i, piece in enumerate(program.arena))
    return dataclasses.replace(program, arena=apart, setup=1)


def runs_setup(native: NativeProgram, context, x: np.ndarray) -> bool:
    """Run in a context, and tell whether the first instruction has run."""
    y = np.zeros_like(x)
    native._fit(context, [x])
    native._place(context, [y])
    seconds = ffi.new("double[]", [-1.0] * len(native.program.instructions))
    arrays = context.inputs, context.outputs
    assert not lib.tc_run_profiled(native.handle, context.handle, ffi.NULL, *arrays, seconds, context.error)
    np.testing.assert_array_equal(y, np.full_like(x, 2.5))
    return seconds[0] >= 0


def test_setup_runs_where_sizes_are_new():
    native = NativeProgram(adding_up())
    x = {n: np.ones((n, 3), np.float32) for n in (2, 5)}
    for n, new in [(2, True), (2, False), (2, False), (5, True), (5, False), (2, True), (2, False)]:
        assert runs_setup(native, native.contexts[0], x[n]) == new


def test_setup_runs_again_after_sizes_that_were_refused():
    native = NativeProgram(adding_up())
    x = np.ones((2, 3), np.float32)
    assert runs_setup(native, native.contexts[0], x)
    with pytest.raises(FeedError):
        native.call([np.ones((2, 4), np.float32)])
    call = direct(native)
    for _ in range(3):
        (result,) = call([x])
        np.testing.assert_array_equal(result, np.full((2, 3), 2.5, np.float32))
    assert not runs_setup(native, native.contexts[0], x)


def test_every_context_sets_itself_up():
    native = NativeProgram(adding_up())
    contexts = [native.new_context() for _ in range(2)]
    for new in (True, False):
        for context in contexts:
            assert runs_setup(native, context, np.ones((2, 3), np.float32)) == new


def test_setup_runs_every_time_where_others_write_what_it_wrote():
    native = NativeProgram(adding_up(again=True))
    for _ in range(3):
        assert runs_setup(native, native.contexts[0], np.ones((2, 3), np.float32))


@pytest.mark.parametrize(
    ("setup", "text"),
    [
        (2, r"instruction 1 \(elementwise\) does not follow from sizes alone"),
        (-1, "no program over sizes, or it has no -1 instructions"),
        (5, "no program over sizes, or it has no 5 instructions"),
        (1 << 70, "a number of the program does not fit"),
    ],
)
def test_setup_that_is_none(setup, text):
    with pytest.raises(TargetError, match=text):
        NativeProgram(dataclasses.replace(adding_up(), setup=setup))


def test_setup_survives_its_records():
    program = adding_up()
    assert records.again(program) == program
