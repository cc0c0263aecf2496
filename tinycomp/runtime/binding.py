"""The short ways through a module: plans of one native region called straight in C, and modules bound to arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from tinycomp.errors import FeedError
from tinycomp.memory.budget import current
from tinycomp.runtime.native.direct import Direct, make_direct
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.runtime.native.program import Array
from tinycomp.runtime.plan import Plan, run_step
from tinycomp.runtime.regions import NativeRegion
from tinycomp.runtime.spec import TensorSpec, check_results, misfit, refuse_masked


def direct_program(plan: Plan) -> NativeProgram | None:
    """Return the program of a plan that is just one native region, with the same inputs and outputs in any order."""
    if len(plan.steps) != 1:
        return None
    step = plan.steps[0]
    whole = sorted(step.reads) == sorted(plan.input_slots) and sorted(step.writes) == sorted(plan.output_slots)
    if not isinstance(step.run, NativeRegion) or step.run.program.texts is not None or not whole:
        return None
    return step.run.native


def direct_call(plan: Plan, *, is_limited: bool = False) -> Direct | None:
    """Return the short way through ``plan``, or None if it is longer than one native region.

    Args:
        plan: The plan.
        is_limited: Whether there is a budget for the memory of all calls.
    """
    native = direct_program(plan)
    if native is None:
        return _direct_of_texts(plan)
    reads, writes = (map(of.index, to) for of, to in (
        (plan.input_slots, plan.steps[0].reads), (plan.output_slots, plan.steps[0].writes)
    ))  # fmt: skip
    return make_direct(native, [*reads], [*writes], is_limited=is_limited)


def _direct_of_texts(plan: Plan) -> Direct | None:
    """Return the short way through a plan of one region that takes texts, in the order of its operands."""
    step = plan.steps[0] if len(plan.steps) == 1 else None
    if step is None or not isinstance(step.run, NativeRegion) or step.run.program.texts is None:
        return None
    if sorted(step.reads) != sorted(plan.input_slots) or sorted(step.writes) != sorted(plan.output_slots):
        return None
    short = step.run.short
    if step.reads == plan.input_slots and step.writes == plan.output_slots:
        return short
    taken = [plan.input_slots.index(slot) for slot in step.reads]
    given = [step.writes.index(slot) for slot in plan.output_slots]

    def reordered(operands: Sequence[Any], wanted: Sequence[Any] | None = None) -> list[Array] | None:
        if len(operands) != len(taken):
            return None
        results = short([operands[i] for i in taken], wanted)
        return None if results is None else [results[i] for i in given]

    return reordered


def direct_start(plan: Plan, outputs: Sequence[TensorSpec]) -> Direct | None:
    """Return the short way through a plan that begins with a native region which takes all inputs.

    The region looks at the arrays itself; the other steps follow as in every run.

    Args:
        plan: The plan.
        outputs: What its results are held to.
    """
    if plan.on_devices or not plan.steps:
        return None
    first, others = plan.steps[0], plan.steps[1:]
    if not isinstance(first.run, NativeRegion) or first.run.program.texts is not None:
        return None
    if sorted(first.reads) != sorted(plan.input_slots):
        return None
    whole = _direct_to_objects(plan, first.run.native, outputs)
    if whole is not None:
        return whole
    call = make_direct(first.run.native, [*map(plan.input_slots.index, first.reads)], range(len(first.writes)))
    if call is None:
        return None

    read = {slot for step in others for slot in step.reads} | set(plan.output_slots)
    kept = [(place, slot) for place, slot in enumerate(plan.input_slots) if slot in read]
    made_later = [i for i, slot in enumerate(plan.output_slots) if slot not in first.writes]
    checked = [i for i in made_later if not outputs[i].is_open]
    silent = all(step.silent for step in others)

    def follow(slots: list[Any]) -> None:
        for step in others:
            step.keep(run_step(step, slots), slots)

    def start(operands: Sequence[Any], wanted: Sequence[Any] | None = None) -> list[Any] | None:
        found = call(operands) if wanted is None and not current().may_end else None
        if found is None:
            return None
        slots = list(plan.slots)
        for place, slot in kept:
            slots[slot] = operands[place]
        for slot, result in zip(first.writes, found, strict=True):
            slots[slot] = result
        if silent:
            follow(slots)
        else:
            with np.errstate(all="ignore"):
                follow(slots)
        results = plan.results(slots, operands)
        if checked:
            check_results([outputs[i] for i in checked], [results[i] for i in checked])
        return results

    return start


def _direct_to_objects(plan: Plan, native: NativeProgram, outputs: Sequence[TensorSpec]) -> Direct | None:
    """Return a direct call for a plan whose later steps only turn results of the first one into Python objects.

    Nothing is left of a run to look at: every result is made in it, and of a size that is the model's.
    """
    first, others = plan.steps[0], plan.steps[1:]
    specs = {slot: spec.shape for slot, spec in zip(first.writes, native.program.outputs, strict=True)}
    slots = [*plan.output_slots]
    if len({*slots}) < len(slots) or not {*slots} <= {*first.writes, *[step.writes[0] for step in others]}:
        return None
    for slot in (*first.writes, *[step.writes[0] for step in others]):
        if slot not in slots:
            slots.append(slot)
    objects = []
    for step in others:
        read = [slot for slot in step.reads if plan.slots[slot] is None]
        if step.make_objects is None or len(read) != 1 or len(step.writes) != 1 or read[0] not in specs:
            return None
        to = slots.index(step.writes[0])
        if to < len(outputs) and not _has_shape(outputs[to], specs[read[0]]):
            return None
        objects.append((step.make_objects, slots.index(read[0]), to))
    reads, writes = map(plan.input_slots.index, first.reads), map(slots.index, first.writes)
    return make_direct(native, [*reads], [*writes], objects, len(outputs))


def _has_shape(spec: TensorSpec, shape: Sequence[Any]) -> bool:
    """Tell whether an output certainly is as the model says if it is of this shape."""
    if spec.is_open:
        return True
    return spec.shape is not None and len(spec.shape) == len(shape) and all(
        not isinstance(said, int) or said == size for said, size in zip(spec.shape, shape, strict=True)
    )  # fmt: skip


class Binding:
    """Run a module on arrays that :meth:`tinycomp.runtime.module.Module.bind` was given: the outputs hold the results.

    The inputs are read anew at every call, so fill them in place. One call at a time: bind once per thread.

    Attributes:
        inputs: The arrays that are read, in the module's order.
        outputs: The arrays that are written, in the module's order.
    """

    def __init__(self, run: Callable[[], None], inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        self._run = run
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._written = tuple(output for output in outputs if isinstance(output, np.ndarray))
        self._answer = self.outputs[0] if len(self.outputs) == 1 else self.outputs

    def __call__(self) -> Any:
        """Run the model and return the output array, or a tuple of them: the same objects every time.

        Raises:
            ExecutionError: If a step fails on these values.
            FeedError: If an output has been made read-only meanwhile.
        """
        for array in self._written:
            if not array.flags.writeable:
                at = next(i for i, output in enumerate(self.outputs) if output is array)
                raise FeedError(
                    "the bound array can no longer be written", where=f"output {at}", expected="writeable memory",
                    found="writeable=False", hint="Bind another array.",
                )  # fmt: skip
        self._run()
        return self._answer


def bind_plan(plan: Plan, inputs: Sequence[Any], outputs: Sequence[Any] | None) -> Binding:
    """Bind a plan to arrays.

    Args:
        plan: A plan for the shapes of the inputs.
        inputs: One array per input, which passed :func:`check_bindable`.
        outputs: One array per output, or None to allocate them.

    Raises:
        FeedError: If an output does not fit, or shares memory with another array; it may be the memory of a cache that
            it extends, where that is all the plan reads the cache for.
    """
    results = _allocate(plan, inputs) if outputs is None else list(outputs)
    if len(results) != len(plan.outputs):
        counts = {"expected": str(len(plan.outputs)), "found": str(len(results))}
        raise FeedError("wrong number of outputs", **counts)
    for spec, value in zip(plan.outputs, results, strict=True):
        check_bindable(spec, value, "output")
    region = _only_region(plan)
    if region is None:
        _check_apart(plan, inputs, results, frozenset())
    else:
        native, reads, writes = region
        _check_apart(plan, inputs, results, {(reads[i], writes[o]) for i, o in native.program.in_place})
        return Binding(native.bound([inputs[i] for i in reads], [results[o] for o in writes]), inputs, results)
    return Binding(lambda: _run_into(plan, inputs, results), inputs, results)


def _only_region(plan: Plan) -> tuple[NativeProgram, list[int], list[int]] | None:
    """Return the program that is all of a plan, and which of its inputs and outputs that takes and gives, in order."""
    if len(plan.steps) != 1:
        return None
    step = plan.steps[0]
    whole = set(step.reads) <= set(plan.input_slots) and sorted(step.writes) == sorted(plan.output_slots)
    if not isinstance(step.run, NativeRegion) or step.run.program.texts is not None or not whole:
        return None
    reads, writes = (
        [slots.index(slot) for slot in of]
        for slots, of in ((plan.input_slots, step.reads), (plan.output_slots, step.writes))
    )
    return step.run.native, reads, writes


def _allocate(plan: Plan, inputs: Sequence[Any]) -> list[Any]:
    """Make the outputs; where the plan does not know a shape, a run shows it."""
    if all(spec.is_static and spec.numpy_dtype is not None for spec in plan.outputs):
        return [np.zeros(spec.shape, spec.numpy_dtype) for spec in plan.outputs]
    return plan.run(inputs)


def _run_into(plan: Plan, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    for spec, target, result in zip(plan.outputs, outputs, plan.run(inputs), strict=True):
        if result.shape != target.shape:
            raise FeedError(
                "the result does not fit the bound array",
                where=f'output "{spec.name}"',
                expected=f"shape {target.shape}, as bound",
                found=f"shape {result.shape}",
                hint="The shape depends on the values of the inputs: call the module itself.",
            )
        np.copyto(target, result)


def copied_into(specs: Sequence[TensorSpec], results: Sequence[Any], outputs: Mapping[str, Any]) -> list[Any]:
    """Copy results into the arrays that are given for them, and return those in their places.

    Raises:
        FeedError: If one cannot hold its result.
    """
    held = list(results)
    for i, (spec, result) in enumerate(zip(specs, results, strict=True)):
        target = outputs.get(spec.name)
        if target is None:
            continue
        check_bindable(spec, target, "output")
        if result.shape != target.shape:
            raise FeedError(
                "does not fit the result", where=f'output "{spec.name}"', expected=f"shape {result.shape}",
                found=f"shape {target.shape}", hint="Give an array of this shape, or none: results are fresh then.",
            )  # fmt: skip
        np.copyto(target, result)
        held[i] = target
    return held


def check_bindable(spec: TensorSpec, value: Any, kind: str) -> None:
    """Refuse an array that a call would have to convert or copy: the caller would fill or read another one.

    Args:
        spec: What the module takes or gives.
        value: What the caller wants to bind.
        kind: ``"input"``, or ``"output"`` for one that will be written.

    Raises:
        FeedError: If it is not an array, or has another dtype or shape, or its memory cannot be used as it is.
    """
    if spec.numpy_dtype is None or not isinstance(value, np.ndarray):
        raise misfit(spec, "only arrays can be bound", type(value).__name__, kind=kind)
    refuse_masked(spec, value, kind)
    if value.dtype != spec.numpy_dtype or not spec.admits(value.shape):
        raise misfit(spec, "does not fit", f"{value.dtype.str} with shape {value.shape}", kind=kind)
    flags = value.flags
    if not (flags.c_contiguous and flags.aligned and (flags.writeable or kind == "input")):
        raise FeedError(
            "cannot be bound",
            where=f'{kind} "{spec.name}"',
            expected="contiguous, aligned memory" + (" that may be written" if kind == "output" else ""),
            found=f"strides {value.strides}, aligned={flags.aligned}, writeable={flags.writeable}",
            hint="Bind numpy.ascontiguousarray(array), and fill that one.",
        )


def _check_apart(plan: Plan, inputs: Sequence[Any], outputs: Sequence[Any], in_place: Set[tuple[int, int]]) -> None:
    """Refuse an output that would be written while something else is read from the same memory."""
    specs = (*plan.inputs, *plan.outputs)
    arrays = (*inputs, *outputs)
    for index in range(len(inputs), len(arrays)):
        for other in range(index):
            if np.may_share_memory(arrays[index], arrays[other]):
                if (other, index - len(inputs)) in in_place and _is_same(arrays[index], arrays[other]):
                    continue
                raise FeedError(
                    "shares its memory with another array",
                    where=f'output "{specs[index].name}"',
                    expected="memory of its own",
                    found=f'memory of "{specs[other].name}"',
                    hint="Bind another array, or let bind() allocate the outputs.",
                )


def _is_same(a: Array, b: Array) -> bool:
    """Tell whether two contiguous arrays of one dtype are the same memory."""
    return a.shape == b.shape and bool(a.ctypes.data == b.ctypes.data)
