"""RNN, GRU and LSTM on the C target: one product for the inputs of all steps, then the steps themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ops.recurrent import Resolved, activation_names, resolve_activations
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.records import dataclass
from tinycomp.rewrite import reject
from tinycomp.runtime.native.library import codes, lib
from tinycomp.symbolic import Size
from tinycomp.targets.c.codegen.emitter import OWN_BLOCKS, Emitter, View
from tinycomp.targets.c.codegen.epilogue import IDENTITY
from tinycomp.targets.c.codegen.placement import emit_copy
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank
from tinycomp.targets.common.checks import Verdict, all_of, dtypes, ranks, sized_type

FAMILY = LoweringRules()
_FLOAT = 4
"""Bytes of a float32."""
_LANES = 16
"""The most floats of a vector, to whose multiple the rows of packed matrices are rounded up."""

_FUNCTIONS = {
    name.replace("_", "").lower(): code
    for name, code in (codes("tc_activation", "TC_ACT_") | codes("tc_unary", "TC_UNARY_")).items()
}
"""Codes of functions by ONNX's names in lower case."""

_ABSENT = Resolved("tanh", None, None)
_DEFAULTS: Mapping[str, tuple[str, ...]] = {
    "RNN": ("Tanh",),
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
}
_CELLS = codes("tc_cell", "TC_CELL_")
_GATES: Mapping[str, int] = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _lengths_check(node: Node) -> Verdict:
    lengths = node.optional_operand(4)
    if lengths is None or lengths.dtype == "int32":
        return True
    return reject(f'the sequence lengths "{lengths.name}" are {lengths.type}, not int32')


def _matrices_check(node: Node) -> Verdict:
    recurrence = node.operand(2)
    return recurrence.static_shape is not None or reject(f'the shape of "{recurrence.name}" is {recurrence.type}')


recurrent_check = all_of(
    dtypes("float32", operands=(0, 1, 2, 3, 5, 6, 7)), _lengths_check, ranks(3), known_rank, _matrices_check
)


@dataclass(frozen=True)
class _Shape:
    """The sizes of a node, and where its tensors step, in elements.

    Attributes:
        steps: Time steps.
        batch: Sequences.
        width: Size of one input.
        hidden: Hidden size.
        ways: 1 or 2 directions.
        gates: Gates of one hidden unit.
        batch_first: Whether ONNX's ``layout`` is 1.
    """

    steps: Size
    batch: Size
    width: Size
    hidden: int
    ways: int
    gates: int
    batch_first: bool

    @classmethod
    def of(cls, node: Node) -> _Shape:
        batch_first = bool(node.attrs.get("layout", 0))
        outer, inner, width = sized_type(node.operand(0))[1]
        steps, batch = (inner, outer) if batch_first else (outer, inner)
        ways, _, hidden = node.operand(2).static_shape or ()
        return cls(steps, batch, width, hidden, ways, _GATES[node.op], batch_first)

    @property
    def columns(self) -> int:
        """Gates of all hidden units of all directions."""
        return self.ways * self.gates * self.hidden

    @property
    def state_direction(self) -> Size:
        """Elements from one direction of a state to the next."""
        return self.hidden if self.batch_first else self.batch * self.hidden

    @property
    def y_direction(self) -> Size:
        """Elements from one direction of Y to the next."""
        return self.state_direction

    def params(self) -> dict[str, float | Size]:
        """Return the sizes and strides that the kernel wants."""
        row, pair = self.columns, self.ways * self.hidden
        return {
            "steps": self.steps,
            "batch": self.batch,
            "hidden": self.hidden,
            "x_time": row if self.batch_first else self.batch * row,
            "x_batch": self.steps * row if self.batch_first else row,
            "y_time": pair if self.batch_first else self.batch * pair,
            "y_direction": self.y_direction,
            "y_batch": self.steps * pair if self.batch_first else self.hidden,
            "state_direction": self.state_direction,
            "state_batch": pair if self.batch_first else self.hidden,
        }


@FAMILY.lower("RNN", "GRU", "LSTM", check=recurrent_check, layout=LayoutRule.ROW_MAJOR)
def recurrent(emit: Emitter, node: Node) -> None:
    """Emit the product for the inputs, and the steps: both directions at once if they use the same functions."""
    shape = _Shape.of(node)
    functions = _functions(node, shape.ways)
    linear = node.op == "GRU" and bool(node.attrs.get("linear_before_reset", 0))
    bias, inner_bias = _placed_biases(emit, node, shape, linear)
    inputs = _emit_inputs(emit, node, shape, bias)
    reverse = int(node.attrs.get("direction", "forward") == "reverse")
    cell = lib.TC_CELL_GRU_LINEAR if linear else _CELLS[node.op]
    params = {
        "cell": cell,
        "coupled": int(bool(node.attrs.get("input_forget", 0))),
        "clip": float(node.attrs.get("clip", 0.0)) or math.inf,
        **shape.params(),
    }
    operands = _Operands(emit, node, shape, cell, inputs, inner_bias)
    if len(set(functions)) == 1:
        both = {"directions": shape.ways, "reverse": reverse, **_function_params(functions[0])}
        emit.call("recurrent_f32", operands.of_directions(0, shape.ways), {**params, **both}, node)
        return
    for way, chosen in enumerate(functions):
        one = {"directions": 1, "reverse": way, **_function_params(chosen)}
        emit.call("recurrent_f32", operands.of_directions(way, 1), {**params, **one}, node)


def _constant(node: Node, index: int) -> np.ndarray:
    value = node.operand(index)
    assert value.const is not None, value
    return value.const


def _functions(node: Node, ways: int) -> list[tuple[Resolved, ...]]:
    """Return the functions of every direction, f, g and h; those that a cell does not have are tanh."""
    defaults = _DEFAULTS[node.op]
    names = activation_names(node.op, node.attrs.get("activations"), defaults, ways)
    found = resolve_activations(names, node.attrs.get("activation_alpha"), node.attrs.get("activation_beta"))
    each = len(defaults)
    return [(*found[way * each : (way + 1) * each], *(_ABSENT,) * (3 - each)) for way in range(ways)]


def _function_params(functions: tuple[Resolved, ...]) -> dict[str, int | float]:
    params: dict[str, int | float] = {}
    for letter, function in zip("fgh", functions, strict=True):
        params[letter] = _FUNCTIONS[function.name]
        params[f"{letter}_a"], params[f"{letter}_b"] = float(function.alpha or 0.0), float(function.beta or 0.0)
    return params


def _biases(node: Node, shape: _Shape, linear: bool) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the biases that the product for the inputs adds, and those that stand inside a GRU's reset.

    All gates add their two biases at once, but for the hidden gate of a GRU that resets its product.
    """
    if node.optional_operand(3) is None:
        return None, None
    given = _constant(node, 3).reshape(shape.ways, 2, shape.gates, shape.hidden)
    outer, inner = given[:, 0].copy(), given[:, 1]
    merged = shape.gates - linear
    outer[:, :merged] += inner[:, :merged]
    return outer.reshape(-1), np.ascontiguousarray(inner[:, -1]) if linear else None


def _placed_biases(emit: Emitter, node: Node, shape: _Shape, linear: bool) -> tuple[View | None, View | None]:
    """Return where the biases lie that :func:`_biases` describes; a run adds up those that are no constants."""
    given = node.optional_operand(3)
    if given is None or given.const is not None:
        outer, inner = _biases(node, shape, linear)
        return None if outer is None else emit.constant(outer), None if inner is None else emit.constant(inner)
    gates, hidden = shape.gates * shape.hidden, shape.hidden
    merged = gates - hidden * linear
    both = emit.view(given)
    outer_at = emit.scratch(_FLOAT * shape.columns)
    inner_at = emit.scratch(_FLOAT * shape.ways * hidden) if linear else None
    for way in range(shape.ways):
        own = both.at(_FLOAT * 2 * gates * way)
        to = outer_at.at(_FLOAT * gates * way)
        if inner_at is None:
            _emit_sum(emit, node, to, own, gates)
            continue
        halves = emit.scratch(_FLOAT * 2 * merged)  # of the gates that add both biases, side by side
        emit_copy(emit, node, halves, own, (2, merged), (merged, 1), (gates, 1), _FLOAT)
        _emit_sum(emit, node, to, halves, merged)
        emit_copy(emit, node, to.at(_FLOAT * merged), own.at(_FLOAT * merged), (hidden,), (1,), (1,), _FLOAT)
        behind = own.at(_FLOAT * (gates + merged))
        emit_copy(emit, node, inner_at.at(_FLOAT * hidden * way), behind, (hidden,), (1,), (1,), _FLOAT)
    return outer_at, inner_at


def _emit_sum(emit: Emitter, node: Node, to: View, of: View, count: int) -> None:
    """Emit the sum of two vectors that lie one behind the other."""
    sizes = {"outer": 1, "axis0": 2, "middle": 1, "axis1": 1, "inner": count}
    emit.call("reduce_f32", [to, of], {"op": lib.TC_REDUCE_SUM, **sizes}, node)


def _emit_inputs(emit: Emitter, node: Node, shape: _Shape, bias: View | None) -> View:
    """Emit the product of all inputs with the weights of all gates and directions."""
    rows = shape.steps * shape.batch
    result = emit.scratch(rows * shape.columns * _FLOAT)
    x, weights = node.operand(0), node.operand(1)
    sizes = {"m": rows, "n": shape.columns, "k": shape.width}
    if weights.const is not None and (bias is None or bias.buffer.space == "constant"):
        rows_apart = {"lda": shape.width, "ldc": shape.columns, "ldr": shape.columns, "trans_b": 1}
        params = {**sizes, **rows_apart, **OWN_BLOCKS, **IDENTITY.params()}
        emit.call("gemm_f32", [result, x, emit.constant(weights.const), bias, None], params, node)
        return result
    batches = {f"{operand}_batch{i}": 0 for operand in "abcr" for i in (0, 1)}
    own = {"a_row": shape.width, "a_column": 1, "b_row": 1, "b_column": shape.width, "c_row": shape.columns, "r_row": 0}
    params = {**sizes, **batches, **own, "batch0": 1, "batch1": 1, "block_rows": 0, "alpha": 1.0, **IDENTITY.params()}
    emit.call("matmul_f32", [result, x, weights, bias, None], params, node)
    return result


@dataclass(frozen=True)
class _Operands:
    """What the steps read and write.

    Attributes:
        emit: Places the values.
        node: The node.
        shape: Its sizes.
        cell: The kernel's name of the cell.
        inputs: What the inputs contribute to the gates.
        inner_bias: Of the hidden gate inside a GRU's reset, [directions, hidden].
    """

    emit: Emitter
    node: Node
    shape: _Shape
    cell: int
    inputs: View
    inner_bias: View | None

    def of_directions(self, way: int, count: int) -> list[Value | View | None]:
        """Return the kernel's operands for so many directions from one on."""
        shape = self.shape
        y, last_h, last_c = read_results(self.emit, self.node)
        per_gate = shape.gates * shape.hidden
        recurrence, packed = self._matrices(way, count)
        return [
            self._from(y, way * shape.y_direction),
            self._from(last_h, way * shape.state_direction),
            self._from(last_c, way * shape.state_direction),
            self._from(self.inputs, way * per_gate),
            recurrence,
            self._from(self.inner_bias, way * shape.hidden),
            self._from(self.node.optional_operand(7), way * 3 * shape.hidden),
            self.node.optional_operand(4),
            self._from(self.node.optional_operand(5), way * shape.state_direction),
            self._from(self.node.optional_operand(6), way * shape.state_direction),
            packed,
        ]

    def _matrices(self, way: int, count: int) -> tuple[View | None, View | None]:
        """Return where the recurrence matrices lie: as constants, or as an instruction packs them."""
        shape, value = self.shape, self.node.operand(2)
        whole = value.const is not None
        given = self.emit.constant(_constant(self.node, 2)) if whole else self.emit.view(value)
        own = given.at(_FLOAT * way * shape.gates * shape.hidden * shape.hidden)
        if whole:
            return own, None
        wide = -(-shape.hidden // _LANES) * _LANES
        packed = self.emit.scratch(_FLOAT * count * shape.gates * shape.hidden * wide)
        params = {"cell": self.cell, "directions": count, "hidden": shape.hidden}
        self.emit.call("recurrent_pack_f32", [packed, own], params, self.node)
        return None, packed

    def _from(self, place: Value | View | None, elements: Size) -> View | None:
        view = self.emit.view(place) if isinstance(place, Value) else place
        return None if view is None else view.at(elements * _FLOAT)


def read_results(emit: Emitter, node: Node) -> list[Value | None]:
    """Return the three results, None for those that are absent or that nothing reads."""
    read = [v.name and (v.users or emit.graph.is_output(v)) for v in node.outputs]
    results = [v if is_read else None for v, is_read in zip(node.outputs, read, strict=True)]
    return [*results, None, None][:3]
