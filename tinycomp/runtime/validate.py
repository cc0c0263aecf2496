"""What a saved module must fulfil beyond being readable: its parts agree, and nothing is read before it is written.

A file is plain data that anybody may have edited. The rules here are about what lies between programs. Each is a
function that returns nothing or raises :class:`~tinycomp.errors.ArtifactError` with the place, and is linear in the
size of what it looks at.

A module (:func:`check_module`):

- ``_check_names``: inputs have names of their own, and so have outputs.
- ``_check_interface``: the module takes and gives what its plan does.
- ``_check_defaults``: a default is of an input, and fits it.
- ``_check_bounds``: a size has bounds that some size fulfils.

What a module says of devices and their faults (:func:`check_devices`): targets have lists of different indices, and
policies the fields that they have, of their kinds.

A plan of native regions (:func:`check_plan`):

- ``_check_slots``: slots exist, and the two special ones hold no value that anybody needs.
- ``_check_flow``: a step reads slots that hold a value, writes those that hold none, and the outputs are there at last.
- ``_check_types``: what lies in a slot is of the dtype and shape that the program behind it reads.

Of programs the C runtime checks everything when it reads them: counts, indices, parameters, that operands lie within
their buffers, and (``runtime_c/src/initialised.h``) that every byte that a run reads has been written in the same run,
or is cleared before it. It refuses calls that take more work than their operands' bytes can explain, and ends a run
whose ``timeout=`` is up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NoReturn

import numpy as np

from tinycomp.errors import ArtifactError
from tinycomp.runtime.forms import DAMAGED
from tinycomp.runtime.native.program import BufferSpec, Program
from tinycomp.runtime.plan import DISCARD, FIRST_FREE
from tinycomp.runtime.spec import TensorSpec
from tinycomp.symbolic import Expression, Size, size, solved, substitute

Slots = Sequence[int]
"""Numbers of slots, in order."""
Link = tuple[str, Program, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""A step of a plan: label, program, and the slots that are read, written and freed."""
_Type = tuple[str, "tuple[Size | None, ...] | None"]


def _refuse(problem: str, where: str, expected: str = "", found: str = "") -> NoReturn:
    raise ArtifactError(problem, where=where, expected=expected, found=found, hint=DAMAGED)


def check_module(
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    plan: tuple[Sequence[TensorSpec], Sequence[TensorSpec]],
    defaults: Mapping[str, Any],
    bounds: Mapping[str, tuple[int, int | None]],
) -> None:
    """Check the description that a saved module has of itself.

    Args:
        inputs: What it takes.
        outputs: What it gives.
        plan: Inputs and outputs of its plan.
        defaults: Values of inputs that may be left out.
        bounds: The least and the most that sizes may be, by symbol.

    Raises:
        ArtifactError: If a rule is broken.
    """
    for kind, specs, others in (("input", inputs, plan[0]), ("output", outputs, plan[1])):
        _check_names(kind, specs)
        _check_interface(kind, specs, others)
    _check_defaults(inputs, defaults)
    _check_bounds(inputs, bounds)


def check_devices(devices: Mapping[str, Sequence[int]], faults: Mapping[str, Mapping[str, Any]]) -> None:
    """Check the devices and the fault policies of a saved module.

    Args:
        devices: Indices by target.
        faults: Fields of a :class:`tinycomp.runtime.device.interface.FaultPolicy` by what a region is called.

    Raises:
        ArtifactError: If a rule is broken.
    """
    for name, picks in devices.items():
        if not 0 < len(picks) == len(set(picks)):
            _refuse("these are no devices of a target", f"devices.{name}", "different indices from 0 on", repr(picks))
    for name, policy in faults.items():
        if policy["timeout"] is not None and not policy["timeout"] > 0:
            _refuse("not a policy for faults", f"faults.{name}", "a timeout above 0, or none", repr(policy["timeout"]))


def check_plan(
    inputs: tuple[Sequence[TensorSpec], Slots],
    outputs: tuple[Sequence[TensorSpec], Slots],
    constants: Mapping[int, np.ndarray[Any, Any]],
    slots: int,
    steps: Sequence[Link],
) -> None:
    """Check a plan of native regions, before any of them is built.

    Args:
        inputs: What it takes, and in which slots.
        outputs: What it gives, and from which slots.
        constants: Arrays by slot.
        slots: How many there are.
        steps: What it does.

    Raises:
        ArtifactError: If a rule is broken.
    """
    _check_slots(inputs[1], outputs[1], constants, slots, steps)
    _check_flow(inputs[1], outputs[1], constants, steps)
    _check_types(inputs, outputs, constants, steps)


def check_operands(
    where: str, program: Program, inputs: Sequence[TensorSpec | None], outputs: Sequence[TensorSpec | None]
) -> None:
    """Check that a program fits the region that it is for, whose sizes may be those of other runs.

    Args:
        where: What the region is called.
        program: What it became.
        inputs: Its operands; None for what is no tensor.
        outputs: Its results, likewise.

    Raises:
        ArtifactError: If numbers or types of operands or results differ.
    """
    for kind, specs, buffers in (("operand", inputs, program.operands), ("result", outputs, program.results)):
        if len(specs) != len(buffers):
            _refuse(f"the program has another number of {kind}s", where, str(len(specs)), str(len(buffers)))
        for index, (spec, buffer) in enumerate(zip(specs, buffers, strict=True)):
            if spec is not None and spec.dtype != buffer.dtype:
                _refuse(f"{kind} {index} of the program is of another dtype", where, spec.dtype, buffer.dtype)
            if spec is not None:
                is_result = kind == "result"
                found = _result_type(buffer, program, _names(program.operands)) if is_result else _buffer_type(buffer)
                _check_fit(f"{where}, {kind} {index}", _type(spec), found, whole=is_result)


def _check_names(kind: str, specs: Sequence[TensorSpec]) -> None:
    names = [spec.name for spec in specs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        _refuse(f"two {kind}s have one name", f'{kind} "{twice}"')


def _check_interface(kind: str, specs: Sequence[TensorSpec], planned: Sequence[TensorSpec]) -> None:
    if len(specs) != len(planned):
        _refuse(f"the plan has another number of {kind}s", "the description", str(len(specs)), str(len(planned)))
    for spec, other in zip(specs, planned, strict=True):
        if spec != other:
            _refuse("the plan is for another one", f'{kind} "{spec.name}"', str(spec), str(other))


def _check_defaults(inputs: Sequence[TensorSpec], defaults: Mapping[str, Any]) -> None:
    specs = {spec.name: spec for spec in inputs}
    for name, value in defaults.items():
        where = f'default of "{name}"'
        if name not in specs:
            _refuse("there is no input of this name", where, f"one of {', '.join(specs)}", name)
        if value.dtype != specs[name].numpy_dtype or not specs[name].admits(value.shape):
            _refuse("it does not fit the input", where, str(specs[name]), f"{value.dtype}{list(value.shape)}")


def _check_bounds(inputs: Sequence[TensorSpec], bounds: Mapping[str, tuple[int, int | None]]) -> None:
    symbols = {dim for spec in inputs for dim in spec.shape or () if isinstance(dim, str)}
    for symbol, (least, most) in bounds.items():
        if symbol not in symbols:
            _refuse("no input has a dimension of this name", f'bounds of "{symbol}"')
        if least < 0 or (most is not None and most < least):
            _refuse("no size fulfils them", f'bounds of "{symbol}"', "from 0 on, and in order", f"{least} to {most}")


def _check_slots(
    inputs: Slots, outputs: Slots, constants: Mapping[int, object], count: int, steps: Sequence[Link]
) -> None:
    places: list[tuple[str, Slots, int]] = [
        ("the inputs", inputs, FIRST_FREE), ("the outputs", outputs, FIRST_FREE),
        ("the constants", [*constants], FIRST_FREE),
    ]  # fmt: skip
    for label, _, reads, writes, frees in steps:
        places += [(f"step {label}", reads, FIRST_FREE), (f"step {label}", writes, DISCARD)]
        places.append((f"step {label}", frees, FIRST_FREE))
    for where, slots, least in places:
        for slot in slots:
            if not least <= slot < count:
                _refuse("there is no such slot", where, f"{least} to {count - 1}", str(slot))


def _check_flow(inputs: Slots, outputs: Slots, constants: Mapping[int, object], steps: Sequence[Link]) -> None:
    alive = set(constants)

    def write(where: str, slots: Slots) -> None:
        for slot in slots:
            if slot in alive:
                _refuse("a slot is written while it holds a value", where, found=f"slot {slot}")
            if slot != DISCARD:
                alive.add(slot)

    def read(where: str, slots: Slots) -> None:
        for slot in slots:
            if slot not in alive:
                _refuse("a slot is read while it holds no value", where, found=f"slot {slot}")

    write("the inputs", inputs)
    for label, _, reads, writes, frees in steps:
        where = f"step {label}"
        read(where, reads)
        write(where, writes)
        for slot in frees:
            if slot not in alive:
                _refuse("a slot is freed while it holds no value", where, found=f"slot {slot}")
            alive.remove(slot)
    read("the outputs", outputs)


def _check_types(
    inputs: tuple[Sequence[TensorSpec], Slots],
    outputs: tuple[Sequence[TensorSpec], Slots],
    constants: Mapping[int, np.ndarray[Any, Any]],
    steps: Sequence[Link],
) -> None:
    for kind, (specs, slots) in (("input", inputs), ("output", outputs)):
        if len(specs) != len(slots):
            _refuse(f"the plan has another number of {kind}s", "the plan", str(len(specs)), f"{len(slots)} slots")
    types: dict[int, _Type] = {slot: (array.dtype.name, array.shape) for slot, array in constants.items()}
    types |= {slot: _type(spec) for spec, slot in zip(*inputs, strict=True)}
    told = _names(inputs[0])
    for label, program, reads, writes, _ in steps:
        for kind, buffers, slots in (("operand", program.operands, reads), ("result", program.results, writes)):
            if len(buffers) != len(slots):
                where = f"step {label}"
                _refuse(f"the program has another number of {kind}s", where, str(len(slots)), str(len(buffers)))
        for index, (buffer, slot) in enumerate(zip(program.operands, reads, strict=True)):
            _check_fit(f"step {label}, operand {index}", types[slot], _buffer_type(buffer))
        results = [_result_type(buffer, program, told) for buffer in program.results]
        types |= dict(zip(writes, results, strict=True))
    for spec, slot in zip(*outputs, strict=True):
        _check_fit(f'output "{spec.name}"', _type(spec), types[slot], whole=True)


def _check_fit(where: str, expected: _Type, found: _Type, whole: bool = False) -> None:
    """Compare the known parts of two types while loading; every run checks the other sizes against its arrays.

    Args:
        where: For messages.
        expected: What is wanted.
        found: What is there.
        whole: Whether a size that is wanted must be that of the program, where sizes of the inputs tell it.
    """
    same = expected[0] == found[0]
    if same and expected[1] is not None and found[1] is not None:
        same = len(expected[1]) == len(found[1]) and all(
            a == b or not isinstance(a, int) or b is None or not (whole or isinstance(b, int))
            for a, b in zip(expected[1], found[1], strict=True)
        )
    if not same:
        _refuse("a value is of another type than the one that is wanted", where, _text(expected), _text(found))


def _type(spec: TensorSpec) -> _Type:
    return spec.dtype, None if spec.shape is None else tuple([None if d is None else size(d) for d in spec.shape])


def _buffer_type(buffer: BufferSpec) -> _Type:
    return buffer.dtype, buffer.shape


def _names(specs: Iterable[TensorSpec | BufferSpec]) -> set[str]:
    """Return the names that sizes of inputs are made of."""
    sizes = [size(dim) if isinstance(dim, str) else dim for spec in specs for dim in spec.shape or ()]
    return {name for each in sizes if isinstance(each, Expression) for name in each.symbols}


def _result_type(buffer: BufferSpec, program: Program, told: Set[str]) -> _Type:
    """Return the type of a result, with the sizes that the conditions of its program leave; None where data decide."""
    if all(isinstance(size, int) for size in buffer.shape):
        return _buffer_type(buffer)
    known = dict(filter(None, [solved(condition.value, 0) for condition in program.conditions]))
    try:
        sizes = [substitute(size, known) for size in buffer.shape]
    except ZeroDivisionError:
        return _buffer_type(buffer)
    return buffer.dtype, tuple([s if isinstance(s, int) or s.symbols <= told else None for s in sizes])


def _text(of: _Type) -> str:
    return of[0] if of[1] is None else f"{of[0]}[{', '.join('?' if d is None else str(d) for d in of[1])}]"
