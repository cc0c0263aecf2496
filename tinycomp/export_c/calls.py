"""What an exported project has to do: the kernel calls of a compiled module in order, with all that they need.

Weights are packed while exporting, as the C runtime packs them for an instruction set; what is left for the project is
to call kernels with parameters, pointers and packed weights that never change. All memory of a run is planned as one
piece: the buffers of every region, what lies between regions, and what each call needs while it runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set

import numpy as np

from tinycomp.errors import UnsupportedError
from tinycomp.export_c.actions import ABSENT, Action, Calls, Copy, Place, Source, placed
from tinycomp.export_c.ethos_u import result_bytes, source_of
from tinycomp.export_c.processors import Processor
from tinycomp.export_c.region import Parts, Region
from tinycomp.export_c.sized import Dims, Ranges
from tinycomp.export_c.weights import Weights
from tinycomp.index import named
from tinycomp.runtime.blob import BlobRegion
from tinycomp.runtime.csource.region import SCRATCH_ALIGNMENT, CRegion
from tinycomp.runtime.csource.source import CSource
from tinycomp.runtime.module import Module
from tinycomp.runtime.native.program import Program
from tinycomp.runtime.plan import FIRST_FREE, Plan, Step
from tinycomp.runtime.regions import NativeRegion
from tinycomp.runtime.spec import TensorSpec, array_dtype
from tinycomp.symbolic import Size, product, size

_SAME_BYTES = frozenset({"Identity", *named("view")})
"""Operators of the host whose result has the bytes of their first operand."""


def calls_of(module: Module, processor: Processor) -> Calls:
    """Find out what a project has to do.

    Args:
        module: A compiled module.
        processor: What weights are packed for.

    Raises:
        UnsupportedError: If something of it has no form in C; it names the node.
    """
    plan = module.plan
    ranges = _require(module, plan)
    parts = Parts(processor, ranges, Weights(processor))
    project = _Project(plan, parts)
    steps = project.steps()
    has_sources = any(source.scratch_bytes for source in project.sources)
    memory = parts.memory.plan(SCRATCH_ALIGNMENT if has_sources else processor.alignment)
    return Calls(
        plan.inputs, module.outputs, ranges.given, tuple(ranges.found), *project.ports(),
        placed(tuple(steps), memory), bytes(parts.weights.data), tuple(project.sources), memory, parts.work,
        processor.cache,
    )  # fmt: skip


def _require(module: Module, plan: Plan) -> Ranges:
    """Refuse what has no form in C, before anything is written; return the sizes that a run chooses."""
    ranges = Ranges({}, {})
    for spec in (*plan.inputs, *module.outputs):
        dtype = spec.numpy_dtype
        if dtype is None or dtype.kind == "O" or spec.shape is None:
            raise UnsupportedError(
                "values of this type have no form in C", where=f'"{spec.name}"', expected="a tensor of numbers",
                found=str(spec),
            )  # fmt: skip
    for spec in plan.inputs:
        for dim in [dim for dim in spec.shape or () if not isinstance(dim, int)]:
            least, most = module.bounds.get(dim or "", (0, None))
            if dim is None or most is None:
                raise UnsupportedError(
                    "a dimension has no bound", where=f'"{spec.name}"', expected="numbers, or sizes with bounds",
                    found=str(spec), hint="Give sizes or bounds, such as --shape image=1..8,3,224,224.",
                )  # fmt: skip
            ranges.given[dim] = least, most
    for step in plan.steps:
        if isinstance(step.run, CRegion):
            _require_source(step, step.run.source)
        elif not isinstance(step.run, NativeRegion):
            if step.op in _SAME_BYTES or _is_npu(step):
                continue
            raise UnsupportedError(
                f"{step.op} has no form in C", where=_where(step),
                expected="nodes that the target c computes, or a target that generates C, or ethos_u",
                found=f"a node of the {step.tier} tier", hint="tinycomp report MODEL --why NODE says why.",
            )  # fmt: skip
        elif step.run.program.texts is not None:
            raise UnsupportedError(
                "texts have no form in C", where=_where(step), expected="tensors of numbers",
                found="a region that takes or gives texts",
            )  # fmt: skip
        else:
            given = {index for index, slot in enumerate(step.writes) if slot in plan.output_slots}
            for program in step.run.program.walk():
                _require_program(step, program, given if program is step.run.program else set())
    return ranges


def _require_source(step: Step, source: CSource) -> None:
    needed = [name for name in source.libraries if name != "m"] + list(source.include_dirs)
    if needed:
        raise UnsupportedError(
            "the code of another target needs more than a project has", where=_where(step),
            expected="C that stands alone", found=", ".join(needed),
        )  # fmt: skip


def _require_program(step: Step, program: Program, given: Set[int]) -> None:
    """Refuse what a program does that has no form; the outputs ``given`` are the model's, whose sizes are known."""
    if program.is_symbolic:
        assert isinstance(step.run, NativeRegion)
        element = next((program.inputs[i].name for i, axis in program.sources.values() if axis < 0), None)
        flow = next((call for call in program.instructions if call.control is not None), None)
        if program is not step.run.program or flow is not None or element is not None:
            what = "the sizes in control flow depend on" if element is None else f'elements of "{element}" are'
            raise UnsupportedError(
                f"{what} sizes of the run", where=_where(step) if flow is None else ", ".join(flow.source),
                expected="sizes that are numbers, or dimensions with bounds",
                found=", ".join((*program.symbols, *program.found)), hint="Fix sizes with --shape.",
            )  # fmt: skip
        return
    if program.arena_bytes and not program.blocks:
        raise UnsupportedError(
            "the module has no list of the buffers in its arena", where=_where(step), expected="its buffers",
            hint="Compile the model with this version of tinycomp.",
        )  # fmt: skip
    for call in program.instructions:
        results = () if call.control is None else call.control.results
        for number, nbytes in enumerate(results):
            operand = call.operands[len(call.operands) - len(results) + number]
            assert call.control is not None
            if nbytes is not None or (operand.index in given and number >= call.control.carried):
                continue
            raise UnsupportedError(
                f"how large a result of control flow ({call.kernel}) is depends on data",
                where=", ".join(call.source) or _where(step), expected="sizes that are numbers",
            )  # fmt: skip


def _is_npu(step: Step) -> bool:
    return isinstance(step.run, BlobRegion) and step.run.blob.target == "ethos_u"


def _where(step: Step) -> str:
    return f"node {', '.join(step.sources[:4]) or step.label} ({step.op})"


class _Project:
    """Collects what a plan does, with places in buffers whose offsets are found out at last."""

    def __init__(self, plan: Plan, parts: Parts) -> None:
        self.plan, self.parts = plan, parts
        self.sources: list[CSource] = []
        self._slots: dict[int, Place] = {}
        self._bytes: dict[int, Size] = {}
        self._dims: dict[int, Dims] = {}
        for slot, value in enumerate(plan.slots):
            if isinstance(value, np.ndarray):
                self._slots[slot] = Place("weights", 0, parts.weights.constant(value))
                self._bytes[slot], self._dims[slot] = value.nbytes, value.shape
        for index, (slot, spec) in enumerate(zip(plan.input_slots, plan.inputs, strict=True)):
            self._slots[slot], self._dims[slot] = Place("input", index), _dims(spec)
            self._bytes[slot] = _nbytes(spec, self._dims[slot])

    def steps(self) -> list[Action]:
        """Return what the plan does."""
        outputs = [*enumerate(zip(self.plan.output_slots, self.plan.outputs, strict=True))]
        for index, (slot, spec) in outputs:
            self._slots.setdefault(slot, Place("output", index))
            if spec.is_static:
                self._bytes.setdefault(slot, _nbytes(spec, _dims(spec)))
        steps: list[Action] = []
        for number, step in enumerate(self.plan.steps):
            if isinstance(step.run, NativeRegion):
                steps += self._region(number, step, step.run.program)
            elif isinstance(step.run, CRegion):
                for slot, (dtype, shape) in zip(step.writes, step.run.results, strict=True):
                    self._dims[slot] = shape
                    self._make(slot, math.prod(shape) * dtype.itemsize, step)
                steps.append(self._source(step, step.run.source))
            elif isinstance(step.run, BlobRegion):
                for slot, nbytes in zip(step.writes, result_bytes(step.run.blob), strict=True):
                    self._make(slot, nbytes, step)
                steps.append(self._source(step, source_of(step.run.blob, f"npu_{len(self.sources)}")))
            else:
                same = self._bytes[step.reads[0]]
                self._make(step.writes[0], same, step)
                self._keep(step.reads[:1], step.writes[:1])
                steps.append(Copy(self._of(step.writes[0]), self._of(step.reads[0]), same))
                self.parts.memory.tick(step.op, step.sources)
        for index, (slot, _) in outputs:
            if self._slots[slot] != Place("output", index):
                steps.append(Copy(Place("output", index), self._slots[slot], self._bytes[slot]))
        return steps

    def _region(self, number: int, step: Step, program: Program) -> list[Action]:
        """Return what a region on the target c does."""
        missing = [slot for slot in step.reads if slot >= FIRST_FREE and slot not in self._dims]
        if missing and program.is_symbolic:
            raise UnsupportedError("the shape of an operand is known only in a run", where=_where(step))
        dims = [self._dims.get(slot, ()) for slot in step.reads]
        region = Region(self.parts, program, [*map(self._of, step.reads)], dims, number, _where(step))
        for slot, spec in zip(step.writes, program.outputs, strict=True):
            if program.is_symbolic or slot not in self._bytes:
                self._dims[slot] = region.dims(spec)
                self._make(slot, region.nbytes(spec), step)
        return region.steps([*map(self._of, step.writes)], [self._bytes.get(slot, 0) for slot in step.writes])

    def ports(self) -> tuple[tuple[tuple[Dims, ...], tuple[Dims, ...]], tuple[tuple[int, ...], tuple[int, ...]]]:
        """Return the dimensions of inputs and outputs, and how many bytes they have at most."""
        shapes, most = [], []
        for slots, specs in ((self.plan.input_slots, self.plan.inputs), (self.plan.output_slots, self.plan.outputs)):
            pairs = [*zip(slots, specs, strict=True)]
            shapes.append(tuple([_dims(spec) if spec.is_static else self._dims[slot] for slot, spec in pairs]))
            ranges, sizes = self.parts.ranges, self._bytes
            most.append(tuple([ranges.most(sizes[slot], "it", f'"{spec.name}"') for slot, spec in pairs]))
        return (shapes[0], shapes[1]), (most[0], most[1])

    def _make(self, slot: int, nbytes: Size, step: Step) -> None:
        """Give a value between steps a buffer, unless it has a place."""
        if slot >= FIRST_FREE:
            self._bytes[slot] = nbytes
            if slot not in self._slots:
                most = self.parts.ranges.most(nbytes, "a result", _where(step))
                self._slots[slot] = Place("buffer", self.parts.memory.add(most, f"result of {step.label}"))

    def _of(self, slot: int) -> Place:
        return ABSENT if slot < FIRST_FREE else self._slots[slot]

    def _keep(self, *slots: Sequence[int]) -> None:
        self.parts.keep(self._of(slot) for some in slots for slot in some)

    def _source(self, step: Step, source: CSource) -> Source:
        self._keep(step.reads, step.writes)
        constants = [Place("weights", 0, self.parts.weights.constant(constant)) for constant in source.constants]
        scratch = self.parts.scratch(source.scratch_bytes)
        self.parts.memory.tick(step.label, step.sources)
        self.sources.append(source)
        inputs, outputs = tuple(map(self._of, step.reads)), tuple(map(self._of, step.writes))
        return Source(len(self.sources) - 1, inputs, outputs, tuple(constants), scratch, step.sources)


def _dims(spec: TensorSpec) -> Dims:
    """Return the dimensions of an input or of a result of known shape."""
    return tuple([size(dim or 0) for dim in spec.shape or ()])


def _nbytes(spec: TensorSpec, dims: Dims) -> Size:
    return product(dims) * array_dtype(spec.dtype).itemsize
