"""If, Loop, Scan and SequenceMap as higher-order functions.

A body arrives as a callable ``body(*arrays) -> tuple of arrays``. Outer values that bodies read are the node's last
``captures`` inputs; a kernel hands all of them, unchanged, to each body as its last arguments. Values pass through
uninspected, so sequences and optionals work as well as tensors.

Loop and Scan concatenate what a body returns, so they cannot know dtype and rank of the result if the body never runs.
For that case ``output_types`` gives the types of the body's outputs for arguments of a first trip, each a pair of a
dtype name and a shape (None: unknown; dims that are not integers count as 0).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError, ModelError
from tinycomp.ir.types import numpy_dtype
from tinycomp.memory.budget import reserve_bytes
from tinycomp.ops.numeric import Array, fix_axis
from tinycomp.ops.record import OpFamily

FAMILY = OpFamily("control_flow")

Body = Callable[..., tuple[Any, ...]]
DeclaredType = tuple[str, Sequence[object] | None]
ResultTypes = Callable[..., Sequence[DeclaredType]]
_OBJECT_BYTES = 128
"""What an array costs besides its elements, roughly; rows of scalars are mostly this."""


def _no_types(*arguments: Any) -> Sequence[DeclaredType]:
    return ()


def _split_captures(op: str, inputs: Sequence[Any], captures: int) -> tuple[list[Any], list[Any]]:
    if not 0 <= captures <= len(inputs):
        raise ModelError(
            f"{op}: too few inputs", expected=f"at least {captures} captured values", found=str(len(inputs))
        )
    cut = len(inputs) - captures
    return list(inputs[:cut]), list(inputs[cut:])


def _truth(op: str, condition: Array) -> bool:
    if condition.size != 1:
        raise ExecutionError(
            f"{op}: the condition is not one value", expected="one element", found=f"shape {list(condition.shape)}"
        )
    return bool(condition.reshape(-1)[0])


@FAMILY.op("If", traits={"bodies"})
def if_(cond: Array, *captured: Any, then_branch: Body, else_branch: Body, captures: int = 0) -> tuple[Any, ...]:
    """Run one of two bodies on the captured values."""
    _split_captures("If", captured, captures)
    branch = then_branch if _truth("If", cond) else else_branch
    return tuple(branch(*captured))


@FAMILY.op("Loop", traits={"bodies", "output_count"})
def loop(
    trip_count: Array | None = None,
    cond: Array | None = None,
    *inputs: Any,
    body: Body,
    captures: int = 0,
    output_types: ResultTypes = _no_types,
    outputs: int = 1,
) -> tuple[Any, ...]:
    """Repeat ``body(iteration, condition, *carried, *captured) -> (condition, *carried, *scanned)``.

    Args:
        trip_count: Number of trips; None for no limit.
        cond: Whether to start at all; None for yes.
        *inputs: Initial carried values, then captured ones.
        body: The body.
        captures: How many trailing inputs are captured.
        output_types: Gives the types of the body's outputs, for a loop without trips.
        outputs: Number of outputs of the node: carried values, then scanned ones.

    Returns:
        The carried values after the last trip, then each scanned output stacked along a new first axis.

    Raises:
        ExecutionError: If the body returns a wrong number of values, or scanned values of differing shapes.
    """
    carried, captured = _split_captures("Loop", inputs, captures)
    count = len(carried)
    scanned: list[list[Array]] = [[] for _ in range(outputs - count)]
    limit = None if trip_count is None else int(trip_count.reshape(-1)[0])
    going = cond is None or _truth("Loop", cond)
    trip = kept = 0
    while going and (limit is None or trip < limit):
        results = body(np.array(trip, dtype=np.int64), np.array(True), *carried, *captured)
        _check_count("Loop", results, 1 + count + len(scanned))
        going = _truth("Loop", results[0])
        carried = list(results[1 : 1 + count])
        for rows, value in zip(scanned, results[1 + count :], strict=True):
            rows.append(value)
        kept = _kept("Loop", kept, results[1 + count :], trip)
        trip += 1
    declared = () if trip else output_types(np.array(0), np.array(True), *inputs)[1 + count :]
    return (*carried, *(_stack("Loop", rows, i, declared) for i, rows in enumerate(scanned)))


def _check_count(op: str, results: Sequence[Any], expected: int) -> None:
    if len(results) != expected:
        raise ExecutionError(
            f"{op}: the body returned a wrong number of values", expected=str(expected), found=str(len(results))
        )


def _stack(op: str, rows: list[Array], index: int, declared: Sequence[DeclaredType], axis: int = 0) -> Array:
    if not rows:
        return _no_rows(op, index, declared, axis)
    shapes = {row.shape for row in rows}
    if len(shapes) > 1:
        raise ExecutionError(
            f"{op}: scan output {index} changes its shape between trips",
            expected="one shape",
            found=str(sorted(shapes)),
        )
    reserve_bytes(sum(row.nbytes for row in rows), op)
    return np.stack(rows, axis=fix_axis(axis, rows[0].ndim + 1, op))


def _no_rows(op: str, index: int, declared: Sequence[DeclaredType], axis: int) -> Array:
    if index >= len(declared) or declared[index][1] is None:
        raise ExecutionError(
            f"{op}: scan output {index} has no rows and no declared type",
            expected="a body whose outputs have known types",
            hint="Run shape inference on the model first.",
        )
    name, shape = declared[index]
    dims = [dim if isinstance(dim, int) else 0 for dim in shape or ()]
    dims.insert(fix_axis(axis, len(dims) + 1, op), 0)
    return np.zeros(dims, numpy_dtype(name))


def _per_item(op: str, name: str, values: Sequence[int] | None, count: int) -> list[int]:
    if not values:
        return [0] * count
    if len(values) != count:
        raise ModelError(f"{op}: {name} has the wrong length", expected=str(count), found=str(len(values)))
    return list(values)


def _scan_once(
    op: str,
    states: list[Any],
    sequences: list[Array],
    captured: list[Any],
    body: Body,
    scan_outputs: int,
    backwards: Sequence[int],
) -> tuple[list[Any], list[list[Array]]]:
    """Run the body over the first axis of the sequences; return final states and the rows of each scan output."""
    lengths = {len(s) for s in sequences}
    if len(lengths) > 1:
        raise ExecutionError(f"{op}: scan inputs differ in length", expected="one length", found=str(sorted(lengths)))
    count = len(states)
    rows: list[list[Array]] = [[] for _ in range(scan_outputs)]
    kept = 0
    for t in range(lengths.pop() if lengths else 0):
        slices = [s[-1 - t if back else t] for s, back in zip(sequences, backwards, strict=True)]
        results = body(*states, *(np.asarray(s) for s in slices), *captured)
        _check_count(op, results, count + scan_outputs)
        states = list(results[:count])
        for row, value in zip(rows, results[count:], strict=True):
            row.append(value)
        kept = _kept(op, kept, results[count:], t)
    return states, rows


def _kept(op: str, kept: int, values: Sequence[Array], trip: int) -> int:
    """Count the bytes of scan outputs after another trip, and see that the budget has them."""
    kept += sum(value.nbytes + _OBJECT_BYTES for value in values)
    if values:
        reserve_bytes(kept, op, f"the scan outputs of {trip + 1} trips")
    return kept


def _split_scan(op: str, inputs: Sequence[Any], captures: int, scans: int) -> tuple[list[Any], list[Array], list[Any]]:
    own, captured = _split_captures(op, inputs, captures)
    if not 1 <= scans <= len(own):
        raise ModelError(
            f"{op}: num_scan_inputs is out of range", expected=f"a number in [1, {len(own)}]", found=str(scans)
        )
    cut = len(own) - scans
    return own[:cut], own[cut:], captured


@FAMILY.op("Scan", traits={"bodies", "output_count"})
def scan_8(
    sequence_lens: Array | None = None,
    *inputs: Any,
    body: Body,
    directions: Sequence[int] | None = None,
    num_scan_inputs: int,
    captures: int = 0,
    output_types: ResultTypes = _no_types,
    outputs: int = 1,
) -> tuple[Any, ...]:
    """Scan with a batch axis: every operand is (batch, …), scan inputs and outputs (batch, sequence, …).

    Scan outputs of a sequence shorter than the longest one end with zeros.
    """
    op = "Scan"
    states, sequences, captured = _split_scan(op, inputs, captures, num_scan_inputs)
    backwards = _per_item(op, "directions", directions, num_scan_inputs)
    batch, longest = sequences[0].shape[:2]
    lengths = [longest] * batch if sequence_lens is None else [int(n) for n in sequence_lens]
    if len(lengths) != batch or not all(0 <= n <= longest for n in lengths):
        raise ExecutionError(
            f"{op}: bad sequence_lens", expected=f"{batch} lengths in [0, {longest}]", found=str(lengths[:8])
        )
    scans = outputs - len(states)
    finals, stacked = [], []
    for b, n in enumerate(lengths):
        cut = [s[b, :n] for s in sequences]
        final, rows = _scan_once(op, [s[b] for s in states], cut, captured, body, scans, backwards)
        finals.append(final)
        slices = [np.empty(s.shape[2:], s.dtype) for s in sequences]
        declared = () if n else output_types(*(s[b] for s in states), *slices, *captured)[len(states) :]
        stacked.append([_pad_rows(_stack(op, r, i, declared), longest) for i, r in enumerate(rows)])
    whole = [*zip(*finals, strict=True), *zip(*stacked, strict=True)]
    return tuple(np.stack([np.asarray(item) for item in items]) for items in whole)


def _pad_rows(x: Array, count: int) -> Array:
    return x if len(x) == count else np.concatenate([x, np.zeros((count - len(x), *x.shape[1:]), dtype=x.dtype)])


@FAMILY.op("Scan", since=9, traits={"bodies", "output_count"})
def scan(
    *inputs: Any,
    body: Body,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
    captures: int = 0,
    output_types: ResultTypes = _no_types,
    outputs: int = 1,
) -> tuple[Any, ...]:
    """Run ``body(*states, *slices, *captured) -> (*states, *rows)`` along an axis of each scan input.

    Args:
        *inputs: Initial states, scan inputs, captured values.
        body: The body.
        num_scan_inputs: Number of scan inputs.
        scan_input_axes: Axis of each scan input that is scanned; 0 by default.
        scan_input_directions: 1 for each scan input that runs backwards.
        scan_output_axes: Axis along which each scan output is stacked; 0 by default.
        scan_output_directions: 1 for each scan output that is filled from its end.
        captures: How many trailing inputs are captured.
        output_types: Gives the types of the body's outputs, for a scan of length 0.
        outputs: Number of outputs of the node: states, then scan outputs.

    Returns:
        The final states, then the scan outputs.

    Raises:
        ExecutionError: If scan inputs differ in length, or the body returns a wrong number of values.
    """
    op = "Scan"
    states, sequences, captured = _split_scan(op, inputs, captures, num_scan_inputs)
    axes = _per_item(op, "scan_input_axes", scan_input_axes, num_scan_inputs)
    backwards = _per_item(op, "scan_input_directions", scan_input_directions, num_scan_inputs)
    scans = outputs - len(states)
    out_axes = _per_item(op, "scan_output_axes", scan_output_axes, scans)
    from_end = _per_item(op, "scan_output_directions", scan_output_directions, scans)
    moved = [np.moveaxis(s, fix_axis(a, s.ndim, op), 0) for s, a in zip(sequences, axes, strict=True)]
    final, rows = _scan_once(op, states, moved, captured, body, scans, backwards)
    slices = [np.empty(s.shape[1:], s.dtype) for s in moved]
    declared = () if len(moved[0]) else output_types(*states, *slices, *captured)[len(states) :]
    ordered = [r[::-1] if back else r for r, back in zip(rows, from_end, strict=True)]
    return (*final, *(_stack(op, r, i, declared, out_axes[i]) for i, r in enumerate(ordered)))


@FAMILY.op("SequenceMap", traits={"bodies", "output_count"})
def sequence_map(
    input_sequence: Sequence[Any], *inputs: Any, body: Body, captures: int = 0, outputs: int = 1
) -> tuple[list[Any], ...]:
    """Apply a body to each element of a sequence; further inputs are sequences of the same length, or tensors.

    Raises:
        ExecutionError: If the sequences differ in length.
    """
    op = "SequenceMap"
    others, captured = _split_captures(op, inputs, captures)
    results: tuple[list[Any], ...] = tuple([] for _ in range(outputs))
    for other in others:
        if isinstance(other, list | tuple) and len(other) != len(input_sequence):
            raise ExecutionError(
                f"{op}: the sequences differ in length", expected=str(len(input_sequence)), found=str(len(other))
            )
    for i, element in enumerate(input_sequence):
        arguments = [other[i] if isinstance(other, list | tuple) else other for other in others]
        values = body(element, *arguments, *captured)
        _check_count(op, values, outputs)
        for result, value in zip(results, values, strict=True):
            result.append(value)
    return results


FAMILY.trait("control_flow", "If", "Loop", "Scan", "SequenceMap")
FAMILY.trait("stacking", "Loop", "Scan")
FAMILY.trait("checked", "Loop")
