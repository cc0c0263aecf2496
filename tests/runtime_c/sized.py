"""Programs over sizes: building them by hand, and the same programs with numbers put in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tests.runtime_c.element import BINARY, TYPES, UNARY, step
from tests.runtime_c.helpers import NO_ACTIVATION, OWN_BLOCKS
from tinycomp.memory.planner import Lifetime, aligned, placed_above, plan_arena
from tinycomp.runtime.native.program import (
    ABSENT,
    ArenaBuffer,
    BufferSpec,
    Found,
    Instruction,
    Left,
    Operand,
    Program,
    TableWord,
)
from tinycomp.symbolic import Expression, Size, evaluate, product, substitute, symbol, typical

ERF, ADD = 42, 0
FLOAT, INT64 = (TYPES.index(np.dtype(name)) for name in ("float32", "int64"))


def sizes_of(program: Program, arrays: Sequence[np.ndarray]) -> dict[str, int]:
    """Return the symbols of a program as its inputs show them."""
    sizes: dict[str, int] = {}
    for spec, array in zip(program.inputs, arrays, strict=True):
        for dim, found in zip(spec.shape, array.shape, strict=True):
            if isinstance(dim, Expression) and dim.name is not None:
                sizes.setdefault(dim.name, found)
    return sizes


def fixed(program: Program, sizes: Mapping[str, int]) -> Program:
    """Return a program with numbers put in: the one that a compiler would write for these sizes alone."""

    sizes = dict(sizes)
    for call in program.instructions:
        if call.found is not None:  # the kernel "sizes" has written it
            sizes[call.found.symbol] = evaluate(call.params["value0"], sizes)
    left = {each.place.index: each.output for each in program.left}

    def number(value):
        return evaluate(value, sizes) if isinstance(value, Expression) else value

    starts = _starts([number(piece.nbytes) for piece in program.arena], [piece.above for piece in program.arena])
    ends = [start + aligned(number(piece.nbytes)) for start, piece in zip(starts, program.arena, strict=True)]

    def place(operand):
        if operand.space != "arena":
            return Operand(operand.space, operand.index, number(operand.offset))
        if operand.index in left:
            return Operand("output", left[operand.index], number(operand.offset))
        return Operand("arena", 0, starts[operand.index] + number(operand.offset))

    def instruction(call):
        params = {name: number(value) for name, value in call.params.items()}
        return dataclasses.replace(call, operands=tuple(map(place, call.operands)), params=params, found=None)

    def spec(buffer):
        return BufferSpec(buffer.name, buffer.dtype, tuple(map(number, buffer.shape)))

    constants = list(program.constants)
    for index in {word.constant for word in program.tables}:
        constants[index] = constants[index].copy()
    for word in program.tables:
        constants[word.constant][word.word] = number(word.value)
    return dataclasses.replace(
        program,
        inputs=tuple(map(spec, program.inputs)),
        outputs=tuple(map(spec, program.outputs)),
        constants=tuple(constants),
        arena_bytes=max(ends, default=0),
        instructions=tuple(map(instruction, program.instructions)),
        arena=(),
        tables=(),
        left=(),
    )


def _starts(sizes: Sequence[int], above: Sequence[Sequence[int]]) -> list[int]:
    """Place every piece as low as those that it begins behind allow."""
    starts: dict[int, int] = {}
    while len(starts) < len(sizes):
        ready = [i for i in range(len(sizes)) if i not in starts and all(other in starts for other in above[i])]
        starts |= {i: max((starts[other] + aligned(sizes[other]) for other in above[i]), default=0) for i in ready}
    return [starts[i] for i in range(len(sizes))]


@dataclasses.dataclass(frozen=True)
class Value:
    """A matrix of floats somewhere in a program: row-major, its elements side by side."""

    place: Operand
    rows: Size
    columns: Size

    @property
    def size(self) -> Size:
        return self.rows * self.columns


class Builder:
    """Writes a program over sizes call by call; results go to the arena unless another place is given."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.inputs: list[BufferSpec] = []
        self.outputs: list[BufferSpec] = []
        self.constants: list[np.ndarray] = []
        self.tables: list[TableWord] = []
        self.calls: list[Instruction] = []
        self.left: list[Left] = []
        self.most: dict[str, Size] = {}
        self._pieces: list[Size] = []
        self._lives: list[list[int]] = []

    def input(self, *shape: Size, dtype: str = "float32") -> Operand:
        self.inputs.append(BufferSpec(f"x{len(self.inputs)}", dtype, shape))
        return Operand("input", len(self.inputs) - 1)

    def matrix(self, rows: Size, columns: Size) -> Value:
        return Value(self.input(rows, columns), rows, columns)

    def constant(self, *shape: int) -> Operand:
        return self.keep(self.rng.standard_normal(shape, np.float32) / 4)

    def keep(self, array: np.ndarray) -> Operand:
        self.constants.append(array)
        return Operand("constant", len(self.constants) - 1)

    def table(self, words: Sequence[Size]) -> Operand:
        place = self.keep(np.array([0 if isinstance(word, Expression) else word for word in words], np.int64))
        self.tables += [TableWord(place.index, i, w) for i, w in enumerate(words) if isinstance(w, Expression)]
        return place

    def piece(self, nbytes: Size) -> Operand:
        self._pieces.append(nbytes)
        self._lives.append([len(self.calls), len(self.calls)])
        return Operand("arena", len(self._pieces) - 1)

    def call(self, kernel: str, operands: Sequence[Operand], params, found: Found | None = None) -> None:
        for operand in operands:
            if operand.space == "arena":
                self._lives[operand.index][1] = len(self.calls)
        self.calls.append(Instruction(kernel, tuple(operands), params, (f"node{len(self.calls)}",), found=found))

    def program(self) -> Program:
        for each in self.left:
            self._lives[each.place.index][1] = len(self.calls)
        pieces = [substitute(size, self.most) for size in self._pieces]
        lives = [Lifetime(typical(size), first, last) for size, (first, last) in zip(pieces, self._lives, strict=True)]
        above = placed_above(lives, plan_arena(lives).offsets)
        arena = tuple(map(ArenaBuffer, pieces, above))
        return Program(
            "test", tuple(self.inputs), tuple(self.outputs), tuple(self.constants), 0, tuple(self.calls),
            left=tuple(self.left), arena=arena, tables=tuple(self.tables),
        )  # fmt: skip

    def give(self, value: Value) -> None:
        """Make a value an output."""
        self.outputs.append(BufferSpec(f"y{len(self.outputs)}", "float32", (value.rows, value.columns)))
        if isinstance(value.size, Expression) and value.size.symbols & self.most.keys():
            place = self.piece(value.size * 4)
            self.left.append(Left(len(self.outputs) - 1, place))
            self.copy(value, place)
        else:
            self.copy(value, Operand("output", len(self.outputs) - 1))

    def _made(self, rows: Size, columns: Size, place: Operand | None = None) -> Value:
        return Value(self.piece(rows * columns * 4) if place is None else place, rows, columns)

    # ---- calls ----

    def gemm(self, x: Value, columns: int, weights: Operand | None = None) -> Value:
        assert isinstance(x.columns, int)
        y = self._made(x.rows, columns)
        params = {"m": x.rows, "n": columns, "k": x.columns, "lda": x.columns, "ldc": columns, "ldr": 0, "trans_b": 0}
        weights = self.constant(x.columns, columns) if weights is None else weights
        operands = [y.place, x.place, weights, ABSENT, ABSENT]
        self.call("gemm_f32", operands, params | OWN_BLOCKS | NO_ACTIVATION)
        return y

    def softmax(self, x: Value) -> Value:
        y = self._made(x.rows, x.columns)
        self.call("softmax_f32", [y.place, x.place], {"outer": x.rows, "axis": x.columns, "inner": 1, "logarithm": 0})
        return y

    def layer_norm(self, x: Value) -> Value:
        y = self._made(x.rows, x.columns)
        params = {"rows": x.rows, "columns": x.columns, "rms": 0, "epsilon": 1e-5}
        self.call("layer_norm_f32", [y.place, ABSENT, x.place, ABSENT, ABSENT, ABSENT], params)
        return y

    def elementwise(self, *values: Value) -> Value:
        """Compute the error function of a value, or the sum of two, of which the second may be a single row."""
        first = values[0]
        y = self._made(first.rows, first.columns)
        words: list[Size] = [len(values), 0, 1, 1, *[1] * 6, first.rows, first.columns]
        for value in values:
            repeats = value.rows == 1
            words += [FLOAT, *[0] * 6, 0 if repeats else value.columns, 1]
        kind, operation = (UNARY, ERF) if len(values) == 1 else (BINARY, ADD)
        words += step(kind, operation, "float32", *range(len(values)))
        words.append(len(values))
        places = [y.place, ABSENT, ABSENT, ABSENT, self.table(words), *[value.place for value in values]]
        places += [ABSENT] * (16 - len(places))
        self.call("elementwise", places, {"words": len(words)})
        return y

    def copy(self, x: Value, to: Operand, transposed: bool = False) -> None:
        ones = {f"{name}{i}": 1 for name in ("size", "to_stride", "from_stride") for i in range(6)}
        rows, columns = (x.columns, x.rows) if transposed else (x.rows, x.columns)
        strides = (1, x.columns) if transposed else (x.columns, 1)
        params = {"element_size": 4, **ones, "size6": rows, "size7": columns}
        params |= {"to_stride6": columns, "to_stride7": 1, "from_stride6": strides[0], "from_stride7": strides[1]}
        self.call("copy", [to, x.place], params)

    def transposed(self, x: Value) -> Value:
        y = self._made(x.columns, x.rows)
        self.copy(x, y.place, transposed=True)
        return y

    def stacked(self, a: Value, b: Value) -> Value:
        y = self._made(a.rows + b.rows, a.columns)
        self.copy(a, y.place)
        self.copy(b, dataclasses.replace(y.place, offset=a.size * 4))
        return y

    def tail(self, x: Value, rows: Size) -> Value:
        """Leave out the first rows, without a call."""
        place = dataclasses.replace(x.place, offset=x.place.offset + rows * x.columns * 4)
        return Value(place, x.rows - rows, x.columns)

    def gather(self, x: Value, indices: Operand, count: Size) -> Value:
        y = self._made(count, x.columns)
        params = {"element_size": 4, "index_size": 8, "outer": 1, "axis": x.rows, "inner": x.columns, "count": count}
        self.call("gather", [y.place, x.place, indices], params)
        return y

    def fill(self, rows: Size, columns: Size) -> Value:
        y = self._made(rows, columns)
        ones = {f"{name}{i}": 1 for name in ("size", "stride") for i in range(6)}
        sizes = {"size6": rows, "size7": columns, "stride6": columns, "stride7": 1}
        self.call("fill", [y.place], {"element_size": 4, "pattern": 0x3FC00000, **ones, **sizes})
        return y

    def range(self, count: Size) -> Value:
        y = self._made(count, 1)
        operands = [y.place, self.keep(np.array(-3, np.float32)), self.keep(np.array(0.25, np.float32))]
        self.call("range", operands, {"type": FLOAT, "count": count})
        return y

    def sizes(self, *values: Size) -> None:
        """Give numbers out, as an output of their own."""
        self.outputs.append(BufferSpec(f"y{len(self.outputs)}", "int64", (len(values),)))
        self._sizes(Operand("output", len(self.outputs) - 1), values)

    def _sizes(self, place: Operand, values: Sequence[Size], found: Found | None = None) -> None:
        params = {"type": INT64, "count": len(values)} | {f"value{i}": 0 for i in range(8)}
        self.call("sizes", [place], params | {f"value{i}": value for i, value in enumerate(values)}, found)

    def found(self, size: Size, most: Size) -> Size:
        """Let a call write a size into the arena, and return the symbol that stands for it from there on."""
        name = f"found{len(self.most)}"
        self.most[name] = substitute(most, self.most)
        self._sizes(self.piece(8), [size], Found(name, 0, self.most[name]))
        return symbol(name)

    def first(self, x: Value, rows: Size) -> Value:
        """Go on with so many rows, of which a call finds out how many they are."""
        return Value(x.place, self.found(rows, x.rows), x.columns)

    def attention(self, x: Value, heads: int) -> Value:
        y = self._made(x.rows, x.columns)
        depth = x.columns // heads
        params = {
            "batch": 1, "heads": heads, "group": 1, "rows": x.rows, "keys": x.rows, "depth": depth,
            "value_depth": depth, "causal": 1, "past": 0, "scale": 0.5, "k_column": 1,
            "mask_batch": 0, "mask_head": 0, "mask_row": 0, "mask_column": 0,
        }  # fmt: skip
        for letter in "yqkv":
            params |= {f"{letter}_batch": x.size, f"{letter}_head": depth, f"{letter}_row": x.columns}
        self.call("attention_f32", [y.place, x.place, x.place, x.place, ABSENT], params)
        return y

    def conv(self, batch: Size, height: Size, width: Size, channels: int, out_channels: int) -> Value:
        """Convolve an input, an image, with 3x3 windows of stride 2."""
        x = self.input(batch, height, width, channels)
        out = (height - 1) // 2 + 1, (width - 1) // 2 + 1
        y = self._made(product((batch, *out)), out_channels)
        params = {
            "batch": batch, "height": height, "width": width, "channels": channels, "out_height": out[0],
            "out_width": out[1], "out_channels": out_channels, "kernel_height": 3, "kernel_width": 3,
            "stride_height": 2, "stride_width": 2, "dilation_height": 1, "dilation_width": 1, "pad_top": 1,
            "pad_left": 1, "groups": 1, "x_pixel_stride": channels, "y_pixel_stride": out_channels,
            "residual_pixel_stride": 0, "algorithm": 0, "group_channels": 0,
        }  # fmt: skip
        weights, bias = self.constant(out_channels, channels, 3, 3), self.constant(out_channels)
        self.call("conv2d_f32", [y.place, x, weights, bias, ABSENT], params | OWN_BLOCKS | NO_ACTIVATION)
        return y
