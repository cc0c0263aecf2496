"""The recurrent kernel against plain numpy in float64: every cell, instruction set and number of threads."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tests.runtime_c.emulated import runner
from tests.runtime_c.helpers import Weight
from tinycomp.errors import ExecutionError, TargetError
from tinycomp.runtime.native.program import ABSENT, BufferSpec, Instruction, Operand, Program

RNN, LSTM, GRU, GRU_LINEAR = range(4)
GATES = {RNN: 1, LSTM: 4, GRU: 3, GRU_LINEAR: 3}
TANH, SIGMOID, RELU = 5, 4, 1
FUNCTIONS = {TANH: np.tanh, SIGMOID: lambda x: 1 / (1 + np.exp(-x)), RELU: lambda x: np.maximum(x, 0)}
SIZES = [(1, 1, 1), (6, 1, 16), (5, 2, 33), (4, 7, 70), (3, 13, 5), (2, 25, 130)]
"""Steps, batch, hidden."""

Arrays = dict[str, np.ndarray | None]
States = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Problem:
    """One call with its operands; absent ones are None."""

    cell: int
    size: tuple[int, int, int]
    directions: int = 1
    reverse: int = 0
    coupled: int = 0
    functions: tuple[int, int, int] = (SIGMOID, TANH, TANH)
    clip: float = float("inf")
    batch_first: bool = False
    ragged: bool = False
    extras: bool = True
    seed: int = 0

    def arrays(self) -> Arrays:
        rng = np.random.default_rng(self.seed)
        (steps, batch, hidden), ways, gates = self.size, self.directions, GATES[self.cell]

        def draw(*shape: int) -> np.ndarray:
            return rng.uniform(-1, 1, shape).astype(np.float32)

        states = (batch, ways, hidden) if self.batch_first else (ways, batch, hidden)
        x = draw(*((batch, steps) if self.batch_first else (steps, batch)), ways * gates * hidden)
        r = draw(ways, gates * hidden, hidden) / np.float32(np.sqrt(hidden))
        bias, peepholes, h, c = draw(ways, hidden), draw(ways, 3 * hidden), draw(*states), draw(*states)
        lengths = rng.integers(0, steps + 1, batch).astype(np.int32)
        is_lstm = self.cell == LSTM
        return {
            "x": x,
            "r": r,
            "bias": bias if self.extras and self.cell == GRU_LINEAR else None,
            "peepholes": peepholes if self.extras and is_lstm else None,
            "lengths": lengths if self.ragged else None,
            "h": h if self.extras else None,
            "c": c if self.extras and is_lstm else None,
        }

    def params(self) -> dict[str, int | float]:
        (steps, batch, hidden), ways = self.size, self.directions
        row, pair = ways * GATES[self.cell] * hidden, ways * hidden
        f, g, h = (TANH, TANH, TANH) if self.cell == RNN and self.functions[0] == SIGMOID else self.functions
        across = hidden if self.batch_first else batch * hidden
        return {
            "cell": self.cell, "steps": steps, "batch": batch, "hidden": hidden, "directions": ways,
            "reverse": self.reverse, "coupled": self.coupled, "clip": self.clip,
            "x_time": row if self.batch_first else batch * row, "x_batch": steps * row if self.batch_first else row,
            "y_time": pair if self.batch_first else batch * pair, "y_direction": across,
            "y_batch": steps * pair if self.batch_first else hidden,
            "state_direction": across, "state_batch": pair if self.batch_first else hidden,
            "f": f, "g": g, "h": h, **{f"{letter}_{n}": 0.0 for letter in "fgh" for n in "ab"},
        }  # fmt: skip


def run(
    problem: Problem, isa: str, pool: Any = None, changes: Any = (), wanted: str = "yhc", packs: bool = False
) -> list[np.ndarray]:
    """Return Y and the last states, those that the cell has and that are wanted; the run packs R itself if asked."""
    arrays, params = problem.arrays(), {**problem.params(), **dict(changes)}
    (steps, batch, hidden), ways = problem.size, problem.directions
    state = (batch, ways, hidden) if problem.batch_first else (ways, batch, hidden)
    shapes = {"y": (batch, steps, ways, hidden) if problem.batch_first else (steps, *state), "h": state, "c": state}
    kept = [n for n in shapes if n in wanted and (n != "c" or problem.cell == LSTM)]
    places = [Operand("output", kept.index(n)) if n in kept else ABSENT for n in shapes]
    specs, constants, feeds = [], [], []
    for name, array in arrays.items():
        if array is None:
            places.append(ABSENT)
        elif name in ("r", "bias", "peepholes") and not packs:
            places.append(Operand("constant", len(constants)))
            constants.append(Weight(array).array)
        else:
            places.append(Operand("input", len(feeds)))
            specs.append(BufferSpec(name, array.dtype.name, array.shape))
            feeds.append(array)
    outputs = tuple(BufferSpec(n, "float32", shapes[n]) for n in kept)
    calls, room = [], 0
    if packs:
        r, packed = len(shapes) + list(arrays).index("r"), Operand("arena", 0)
        room = 4 * ways * GATES[problem.cell] * hidden * -(-hidden // 16) * 16
        sizes = {"cell": problem.cell, "directions": ways, "hidden": hidden}
        calls.append(Instruction("recurrent_pack_f32", (packed, places[r]), sizes))
        places[r] = ABSENT
    calls.append(Instruction("recurrent_f32", (*places, packed if packs else ABSENT), params))
    program = Program("test", tuple(specs), outputs, tuple(constants), room, tuple(calls))
    results = [np.full(spec.shape, 77, np.float32) for spec in outputs]
    runner(program, pool, isa).run(feeds, results)
    return results


def step(problem: Problem, arrays: Arrays, way: int, x: np.ndarray, h: np.ndarray, c: np.ndarray) -> States:
    """One step of one sequence."""
    hidden, gates = problem.size[2], GATES[problem.cell]
    f, g, out = (FUNCTIONS[int(problem.params()[letter])] for letter in "fgh")
    r = arrays["r"][way].astype(np.float64).reshape(gates, hidden, hidden)
    bias = 0 if arrays["bias"] is None else arrays["bias"][way]
    peep = np.zeros((3, hidden)) if arrays["peepholes"] is None else arrays["peepholes"][way].reshape(3, hidden)
    x = x.reshape(gates, hidden)

    def clip(value: np.ndarray) -> np.ndarray:
        return np.clip(value, -problem.clip, problem.clip)

    if problem.cell == RNN:
        return f(clip(x[0] + r[0] @ h)), c
    if problem.cell == LSTM:
        i = f(clip(x[0] + r[0] @ h + peep[0] * c))
        keep = 1 - i if problem.coupled else f(clip(x[2] + r[2] @ h + peep[2] * c))
        cell = keep * c + i * g(clip(x[3] + r[3] @ h))
        return f(clip(x[1] + r[1] @ h + peep[1] * cell)) * out(cell), cell
    update, reset = f(clip(x[0] + r[0] @ h)), f(clip(x[1] + r[1] @ h))
    memory = reset * (r[2] @ h + bias) if problem.cell == GRU_LINEAR else r[2] @ (reset * h)
    return (1 - update) * g(clip(x[2] + memory)) + update * h, c


def reference(problem: Problem) -> list[np.ndarray]:
    """Compute Y and the last states, sequence by sequence."""
    arrays, (steps, batch, hidden), ways = problem.arrays(), problem.size, problem.directions
    x = arrays["x"].swapaxes(0, 1) if problem.batch_first else arrays["x"]
    lengths = np.full(batch, steps) if arrays["lengths"] is None else arrays["lengths"]
    y, last = np.zeros((steps, ways, batch, hidden)), np.zeros((2, ways, batch, hidden))
    for way, b in itertools.product(range(ways), range(batch)):
        at = (b, way) if problem.batch_first else (way, b)
        state = [np.zeros(hidden) if arrays[n] is None else arrays[n][at].astype(np.float64) for n in "hc"]
        order = range(lengths[b])
        for t in reversed(order) if problem.reverse != way else order:
            state = list(step(problem, arrays, way, np.split(x[t, b].astype(np.float64), ways)[way], *state))
            y[t, way, b] = state[0]
        last[:, way, b] = state
    if problem.batch_first:
        y, last = y.transpose(2, 0, 1, 3), last.swapaxes(1, 2)
    return [y, last[0], last[1]][: 3 if problem.cell == LSTM else 2]


def problems() -> list[Problem]:
    found = []
    for cell, size in itertools.product(GATES, SIZES):
        plain = Problem(cell, size)
        found += [
            plain,
            replace(plain, directions=2, ragged=True),
            replace(plain, directions=2, batch_first=True, ragged=True, extras=False),
            replace(plain, reverse=1, clip=0.4),
            replace(plain, functions=(SIGMOID, RELU, RELU), directions=2, reverse=1),
        ]
        if cell == LSTM:
            found.append(replace(plain, coupled=1))
    return found


@pytest.mark.parametrize("problem", problems(), ids=str)
def test_cells_equal_numpy(problem, isa, pool):
    results, threaded = run(problem, isa), run(problem, isa, pool)
    for found, other, wanted in zip(results, threaded, reference(problem), strict=True):
        np.testing.assert_array_equal(found.view(np.uint32), other.view(np.uint32), "threads change the bits")
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cell", GATES)
def test_what_a_run_packs_gives_the_same_bits(cell, isa, pool):
    for problem in (Problem(cell, (3, 4, 21), directions=2), Problem(cell, (2, 1, 70), reverse=1)):
        for found, wanted in zip(run(problem, isa, pool, packs=True), run(problem, isa), strict=True):
            np.testing.assert_array_equal(found.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("wanted", ["y", "h", "c", "yc"])
def test_every_result_may_be_absent(wanted, isa):
    problem = Problem(LSTM, (4, 3, 20), directions=2)
    everything = dict(zip("yhc", run(problem, isa), strict=True))
    for name, found in zip(wanted, run(problem, isa, wanted=wanted), strict=True):
        np.testing.assert_array_equal(found, everything[name])


@pytest.mark.parametrize("size", [(0, 2, 3), (2, 0, 3), (2, 3, 0)], ids=str)
@pytest.mark.parametrize("cell", GATES)
def test_nothing_to_do_keeps_the_first_states(cell, size, isa):
    problem = Problem(cell, size)
    for found, wanted in zip(run(problem, isa), reference(problem), strict=True):
        np.testing.assert_array_equal(found, wanted.astype(np.float32))


def test_not_a_number_stays_in_its_sequence(isa):
    problem = Problem(LSTM, (3, 2, 9))
    x = problem.arrays()["x"]
    x[1, 0, 4] = np.nan
    holds_nan = type("HoldsNan", (Problem,), {"arrays": lambda self: {**Problem.arrays(self), "x": x}})
    y = run(holds_nan(LSTM, (3, 2, 9)), isa)[0]
    assert np.isfinite(y[0]).all()
    assert np.isfinite(y[:, 0, 1]).all()
    assert np.isnan(y[2, 0, 0]).all()


@pytest.mark.parametrize("length", [-1, 5, 2**31 - 1, -(2**31)])
def test_length_out_of_range(length, isa):
    class BadLength(Problem):
        def arrays(self) -> Arrays:
            return {**Problem.arrays(self), "lengths": np.array([4, length], np.int32)}

    with pytest.raises(ExecutionError, match="a sequence length is out of range"):
        run(BadLength(GRU, (4, 2, 8)), isa)


@pytest.mark.parametrize(
    ("cell", "changes", "text"),
    [
        (RNN, {"cell": 4}, "there is no cell 4"),
        (RNN, {"directions": 3}, "there are 1 or 2 directions, not 3"),
        (RNN, {"reverse": 2}, "reverse and coupled must be 0 or 1"),
        (RNN, {"coupled": 1}, "only an LSTM has a cell state, peepholes or coupled gates"),
        (LSTM, {"cell": GRU}, "only an LSTM has a cell state, peepholes or coupled gates"),
        (GRU_LINEAR, {"cell": GRU}, "only a GRU that resets its product has a bias here"),
        (LSTM, {"h": 31}, "there is no such function"),
        (LSTM, {"clip": 0.0}, "the clip is not above 0"),
        (LSTM, {"clip": float("nan")}, "the clip is not above 0"),
        (LSTM, {"x_time": -1}, "a size is negative"),
        (LSTM, {"hidden": 9}, r"operand \d ends at byte"),
        (LSTM, {"steps": 2**47}, "a size is too large"),
    ],
    ids=str,
)
def test_bad_parameters(cell, changes, text, isa):
    with pytest.raises(TargetError, match=text):
        run(Problem(cell, (2, 3, 8)), isa, changes=changes)
