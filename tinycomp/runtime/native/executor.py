"""Programs made ready for this machine, and how they run: packed weights, thread pools and contexts."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import numpy as np

from tinycomp.errors import ExecutionError, FeedError, TargetError, did_you_mean
from tinycomp.memory.budget import check_time, current, reserve_bytes, time_is_up
from tinycomp.memory.mapped import mapping_of
from tinycomp.runtime.native.library import Kernel, address, codes, ffi, kernel_named, lib, raise_error
from tinycomp.runtime.native.processor import default_threads
from tinycomp.runtime.native.program import (
    ALGORITHMS,
    CONTROL_FLOW,
    SPACES,
    Array,
    BufferSpec,
    Control,
    Instruction,
    Operand,
    Program,
)
from tinycomp.runtime.spec import array_dtype
from tinycomp.symbolic import FARTHEST, Expression, Formulas, Size, expected_sizes, expecting, product, symbol, typical


class Weights:
    """Packed weights that the programs of one model share: what a change of batch size need not make anew.

    Programs over the same arrays find each other's packed weights here; what no program uses any more is freed.
    """

    def __init__(self) -> None:
        error, out = ffi.new("tc_error *"), ffi.new("tc_weights **")
        if lib.tc_weights_create(out, error):
            raise_error(error, "packed weights")
        self.handle = ffi.gc(out[0], lib.tc_weights_destroy)

    @property
    def nbytes(self) -> int:
        """Bytes that the programs alive share."""
        return int(lib.tc_weights_bytes(self.handle))


# Bound once: these are on the path of every run.
tc_run, from_buffer, BYTES = lib.tc_run, ffi.from_buffer, ffi.typeof("char[]")

# Position, dtype and shape of an input or output array, and whether it will be written.
_Expected = tuple[int, np.dtype[Any], tuple[Size, ...], bool]

_INSTRUCTION = re.compile(r"instruction (\d+) \(([^)]*)\): ")
_CONDITION = re.compile(r"condition (\d+)\Z")
_SPACE_CODES = {name: getattr(lib, f"TC_{name.upper()}") for name in SPACES}

MOST_THREADS = 1024
"""The largest pool that the C runtime makes."""


class Pool:
    """Threads that share the work of a run, the calling thread among them.

    One run at a time uses them; a run that comes from another thread meanwhile proceeds on that thread alone, with the
    same bits. In a forked child, whose threads are gone, every run proceeds that way.

    Args:
        threads: How many, counting the caller; by default what the process may use.

    Raises:
        TargetError: If that is not a number from 1 to 1024.
    """

    def __init__(self, threads: int | None = None) -> None:
        error, out = ffi.new("tc_error *"), ffi.new("tc_pool **")
        wanted = default_threads() if threads is None else threads
        if not isinstance(wanted, int) or not 1 <= wanted <= MOST_THREADS:
            raise TargetError(
                "not a number of threads", where="threads", expected=f"a whole number from 1 to {MOST_THREADS}",
                found=repr(wanted),
            )  # fmt: skip
        if lib.tc_pool_create(wanted, out, error):
            raise_error(error, "thread pool")
        self.threads = wanted
        self.handle = ffi.gc(out[0], lib.tc_pool_destroy)


class _Context:
    """The memory of one run at a time: arena, scratch, and reusable argument arrays.

    Args:
        handle: The program in the C runtime.
        program: The program.
        threads: The most that a run uses.
        beside: Bytes that a run needs beside the program's memory, for the budget in force.
    """

    def __init__(self, handle: Any, program: Program, threads: int, beside: int) -> None:
        self.error = ffi.new("tc_error *")
        out = ffi.new("tc_context **")
        if lib.tc_context_create(handle, threads, out, self.error):
            raise_error(self.error, "execution context")
        self.handle = ffi.gc(out[0], lib.tc_context_destroy)
        self.address = address(self.handle)
        self.inputs = ffi.new("void *[]", max(len(program.inputs), 1))
        self.outputs = ffi.new("void *[]", max(len(program.outputs), 1))
        self._where, self._beside = f"region {program.name}", beside
        if any(call.control is not None for call in program.instructions):
            self._self = ffi.new_handle(self)
            lib.tc_context_supervise(self.handle, lib.tc_python_permits, self._self)

    def permits(self, nbytes: int) -> bool:
        """Tell whether a run may go on whose loops hold so many bytes.

        Raises:
            ExecutionError: If its time is up.
            MemoryLimitError: If that is more than the budget in force allows.
        """
        check_time(current(), self._where)
        reserve_bytes(self._beside + nbytes, self._where, "what its loops hold")
        return True


_BEYOND = 1 << 48
"""Bytes that no machine has: what the runtime calls too large."""
_refusals = threading.local()


def _keep_refusal(kind: Any, refusal: BaseException, traceback: Any) -> None:
    """Keep what was raised while the C runtime asked, an interrupt perhaps, until the run has ended."""
    _refusals.last = refusal


@ffi.def_extern(error=False, onerror=_keep_refusal)  # type: ignore[untyped-decorator]  # cffi has no types
def tc_python_permits(owner: Any, nbytes: int) -> bool:
    """Let control flow in the C runtime ask its context."""
    context: _Context = ffi.from_handle(owner)
    return context.permits(nbytes)


@dataclass(frozen=True, slots=True)
class Work:
    """Hold what one kernel call has to do by its definition, an exponential or a comparison counting as one operation.

    Attributes:
        flops: Operations on floating-point numbers.
        integer_operations: Operations on all other numbers.
        read: Bytes of the elements that it has to read, each once.
        written: Bytes of the elements that it has to write.
        done: Operations of the algorithm in use, where that gets by with fewer (Winograd); else all of both kinds.
        algorithm: The algorithm's name, where there is a choice.
    """

    flops: int
    integer_operations: int
    read: int
    written: int
    done: int
    algorithm: str = ""

    @property
    def operations(self) -> int:
        """Operations of both kinds."""
        return self.flops + self.integer_operations

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.read + self.written


class LoadedProgram:
    """A program in the C runtime, with the bodies of its control flow: finished, and ready for contexts.

    Args:
        program: The program.
        constants: Those of the program that everything is a part of.
        isa: An instruction set, or None for the default.
        weights: Where programs over the same constants find each other's packed weights.
        is_body: Whether it is a body, the sizes of whose results are asked for.
        cache: What the second-level cache holds, in bytes; 0 for what this machine's does.
    """

    def __init__(
        self, program: Program, constants: Sequence[Array], isa: str | None, weights: Weights | None = None,
        is_body: bool = False, cache: int = 0,
    ) -> None:  # fmt: skip
        self.program = program
        self._arrays = constants
        self._isa, self._weights = isa, weights
        self._constants: list[Any] = []
        self.bodies: list[LoadedProgram] = []
        self.handle = self._create(isa)
        if cache:
            lib.tc_program_assume_cache(self.handle, cache)
        self.sizes = _Sizes(program, self.handle) if program.is_symbolic else None
        if self.sizes is None:
            _refuse_sizes(program)
        for constant in constants:
            self._add_constant(constant)
        if self.sizes is not None:
            self.sizes.describe_buffers()
        for index, call in enumerate(program.instructions):
            self._append(index, call)
        error = ffi.new("tc_error *")
        if not 0 <= program.arena_bytes < 1 << 63:
            raise TargetError("not a size of an arena", where=program.name, found=f"{program.arena_bytes} bytes")
        if self.sizes is not None:
            self.sizes.settle(is_body)
        shared = ffi.NULL if weights is None else weights.handle
        if lib.tc_program_finish(self.handle, shared, program.arena_bytes, error):
            raise_error(error, program.name)

    def _create(self, isa: str | None) -> Any:
        error, out = ffi.new("tc_error *"), ffi.new("tc_program **")
        name = ffi.NULL if isa is None else isa.encode()
        if lib.tc_program_create(name, len(self.program.inputs), len(self.program.outputs), out, error):
            raise_error(error, self.program.name)
        constants = self._constants

        def destroy(handle: Any) -> None:
            lib.tc_program_destroy(handle)
            constants.clear()  # not before: shared weights are found by the addresses of these

        return ffi.gc(out[0], destroy)

    def _add_constant(self, constant: Array) -> None:
        buffer = _buffer(constant, False)
        self._constants.append(buffer)
        error = ffi.new("tc_error *")
        if lib.tc_program_add_constant(self.handle, buffer, constant.nbytes, mapping_of(constant) is not None, error):
            raise_error(error, self.program.name)

    def _append(self, index: int, call: Instruction) -> None:
        where = f"{self.program.name}, instruction {index} ({call.kernel})"
        if call.control is not None:
            self._append_control(call, call.control, where)
            return
        kernel = kernel_named(call.kernel, where)
        params = kernel.make_params({name: _known(value) for name, value in call.params.items()}, where)
        operands = [_place(operand, where) for operand in call.operands]
        error = ffi.new("tc_error *")
        size = ffi.sizeof(kernel.ctype)
        try:
            array = ffi.new("tc_operand[]", operands)
        except OverflowError as overflow:
            raise TargetError("an operand's index or offset does not fit", where=where, found=str(overflow)) from None
        if lib.tc_program_append(self.handle, kernel.index, array, len(operands), params, size, error):
            raise_error(error, self.program.name)
        if self.sizes is not None:
            self.sizes.describe_call(call, kernel)

    def extent(self, size: Size | None) -> tuple[int, int]:
        """Return a size as the runtime describes it: the number of a value, or else -1 and the size itself.

        Raises:
            TargetError: If it follows from sizes that the program does not know.
        """
        if size is None:
            return -1, -1
        if isinstance(size, int):
            return -1, size
        if self.sizes is None:
            raise TargetError(f"the size {size} follows from no input", where=self.program.name)
        return self.sizes.value(size), -1

    def _append_control(self, call: Instruction, control: Control, where: str) -> None:
        """Add control flow, whose bodies become programs of their own."""
        is_loop = call.kernel == "loop"
        specs = control.bodies[0].inputs[2 * is_loop :]
        if call.kernel not in CONTROL_FLOW or len(specs) != len(control.shapes):
            raise TargetError("operands that do not fit the bodies", where=where)
        read = [
            product(shape) * array_dtype(spec.dtype).itemsize for shape, spec in zip(control.shapes, specs, strict=True)
        ]
        nbytes = [*[8, 1][0 if is_loop else 1 :], *read, *control.results]
        kept: list[Any] = []  # what the description points to

        def array(kind: str, items: Sequence[Any]) -> Any:
            kept.append(ffi.new(f"{kind}[]", [*items] or 1))
            return kept[-1]

        bodies, growths = [], []
        for program in control.bodies:
            body = LoadedProgram(program, self._arrays, self._isa, self._weights, True)
            self.bodies.append(body)
            sources = () if body.sizes is None else body.sizes.sources
            first = [self.extent(control.shapes[i - 2 * is_loop][axis]) for i, axis in sources]
            following = [
                body.sizes.value(program.outputs[i - 1].shape[axis])
                if body.sizes is not None and is_loop and i < 2 + control.carried
                else -1
                for i, axis in sources
            ]
            outputs = [body.extent(product(o.shape) * array_dtype(o.dtype).itemsize) for o in program.outputs]
            bodies.append((
                body.handle, array("tc_extent", first), array("int64_t", following), array("tc_extent", outputs),
            ))  # fmt: skip
        for index, result in enumerate(control.results):
            if result is not None or not is_loop:
                growths.append((-1, ffi.NULL, ffi.NULL))
                continue
            dims = self.bodies[-1].program.outputs[1 + index].shape
            start = control.shapes[index] if index < control.carried else [d if isinstance(d, int) else 0 for d in dims]
            ends = [self.bodies[-1].extent(d) for d in dims]
            growths.append((
                len(dims), array("tc_extent", ends), array("tc_extent", [self.extent(d) for d in start]),
            ))  # fmt: skip
        description = (
            CONTROL_FLOW.index(call.kernel), control.carried, len(control.shapes) - control.carried,
            len(control.results), array("tc_operand", [_place(o, where) for o in call.operands]),
            array("tc_extent", [self.extent(n) for n in nbytes]), array("tc_body", bodies),
            array("tc_growth", growths),
        )  # fmt: skip
        error = ffi.new("tc_error *")
        if lib.tc_program_control(self.handle, array("tc_control", [description]), error):
            raise_error(error, self.program.name)
        if self.sizes is not None:
            self.sizes.describe_offsets(call)


class NativeProgram:
    """A program made ready for this machine; immutable, and safe to run from many threads at once.

    Args:
        program: What to run. Its constants must not change from here on.
        pool: Threads to share the work with; by default the calling thread does it all.
        isa: An instruction set from :func:`available_isas`; by default the environment variable ``TINYCOMP_ISA``, or
            else the best one.
        weights: Where programs over the same constants find each other's packed weights.
        beside: Bytes that a run needs beside the memory of this program, for the budget in force.
        cache: What kernels take the second-level cache to hold, in bytes; 0 for what this machine's does.

    Raises:
        TargetError: If the program is not valid; the message names the instruction.
        UnsupportedError: If this machine does not run the instruction set.
        MemoryError: If there is no memory for the packed weights.
        MemoryLimitError: If a run would need more than the budget in force.
    """

    def __init__(
        self,
        program: Program,
        pool: Pool | None = None,
        isa: str | None = None,
        weights: Weights | None = None,
        beside: int = 0,
        cache: int = 0,
    ) -> None:
        self.program = program
        self.pool = pool
        self._threads = pool.threads if pool is not None else 1
        self._beside = beside
        self._loaded = LoadedProgram(program, program.constants, isa, weights, False, cache)
        self.handle, self._sizes = self._loaded.handle, self._loaded.sizes
        self._inputs = self._expected(program.inputs, lib.tc_program_input_bytes, False)
        outputs = self._expected(program.outputs, lib.tc_program_output_bytes, True)
        self._outputs = tuple(each for each in outputs if each[0] not in program.grown)
        self._profiled: _Context | None = None
        self.profiled_sizes: Mapping[str, int] = {}
        """The sizes by symbol that were profiled last."""
        self.pool_handle = pool.handle if pool is not None else ffi.NULL
        self.contexts = [self.new_context()]
        if program.is_symbolic and not program.symbols:  # the inputs have known sizes
            self._ready(self.contexts[0], ())
        known = () if program.is_symbolic else self._outputs
        self._made = tuple([(_maker(self.contexts[0], each), each) for each in known])

    @property
    def dims(self) -> dict[Expression, int]:
        """The numbers of the values that dimensions of inputs and outputs are, where they are no numbers."""
        return {} if self._sizes is None else self._sizes.dims

    @property
    def sources(self) -> tuple[tuple[int, int], ...]:
        """Input and axis that show the size of each symbol, or -1 - i for the element i of the input."""
        return () if self._sizes is None else self._sizes.sources

    @property
    def isa(self) -> str:
        """The instruction set in use."""
        return str(ffi.string(lib.tc_program_isa(self.handle)).decode())

    @property
    def state_bytes(self) -> int:
        """Bytes of packed weights that the program owns alone."""
        return int(lib.tc_program_state_bytes(self.handle))

    @property
    def context_bytes(self) -> int:
        """Bytes that one run at a time needs: the arena, and the scratch memory of all threads."""
        return int(lib.tc_program_context_bytes(self.handle, self._threads))

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run the program on contiguous arrays, writing the outputs in place.

        Raises:
            FeedError: If an array does not have the dtype, shape or memory layout that the program expects.
            ExecutionError: If a kernel refused its data, for example an index out of range.
        """
        free = self.contexts
        # list.pop and list.append are atomic, so the free list needs no lock.
        try:
            context = free.pop()
        except IndexError:
            context = self.new_context()
        try:
            self._ready(context, inputs)
            self._bind(context.inputs, inputs, self._inputs_at(context))
            self._bind(context.outputs, outputs, self._outputs_at(context), len(self.program.grown))
            if self._start(context):
                self._raise_run(context.error)
            self._give_grown(context, outputs)
        finally:
            free.append(context)

    def _start(self, context: _Context) -> int:
        """Run in a context, until the time in force is up, and return the status."""
        arguments = self.handle, context.handle, self.pool_handle, context.inputs, context.outputs, context.error
        deadline = current().deadline
        if deadline is None:
            return int(tc_run(*arguments))
        lib.tc_context_end_after(context.handle, max(deadline - time.monotonic(), 1e-9))
        try:
            return int(tc_run(*arguments))
        finally:
            lib.tc_context_end_after(context.handle, 0.0)

    def _grown(self, context: _Context, index: int) -> Array:
        """Return a copy of an output whose size the last run in a context has shown.

        Raises:
            ExecutionError: If it does not have the bytes that its dimensions say.
        """
        grown, spec = ffi.new("tc_grown *"), self.program.outputs[index]
        rank = lib.tc_context_grown(context.handle, index, grown)
        shape, dtype = [grown.dims[d] for d in range(max(rank, 0))], array_dtype(spec.dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        if rank < 0 or min(shape, default=0) < 0 or nbytes != grown.bytes:
            raise ExecutionError(
                "a result does not have the size that its dimensions say",
                where=f'{self.program.name}, output "{spec.name}"',
                expected=f"{nbytes} bytes for {dtype}{shape}", found=f"{grown.bytes} bytes",
            )  # fmt: skip
        result = np.empty(shape, dtype)
        if result.nbytes:
            ffi.memmove(_buffer(result, True), grown.data, result.nbytes)
        return result

    def _give_grown(self, context: _Context, outputs: Sequence[Array]) -> None:
        """Copy the outputs whose size the last run in a context has shown.

        Raises:
            FeedError: If an array does not have that size.
        """
        for index in self.program.grown:
            result, target = self._grown(context, index), outputs[index]
            if (target.shape, target.dtype) != (result.shape, result.dtype):
                raise FeedError(
                    "the result does not fit the array", where=f'output "{self.program.outputs[index].name}"',
                    expected=f"{result.dtype}{list(result.shape)}", found=f"{target.dtype}{list(target.shape)}",
                    hint="The shape depends on the values of the inputs: call the module itself.",
                )  # fmt: skip
            target[...] = result

    def call(self, inputs: Sequence[Array]) -> list[Array]:
        """Run the program on contiguous arrays and return its outputs, fresh arrays.

        Raises:
            FeedError: If an array does not have the dtype, shape or memory layout that the program expects.
            ExecutionError: If a kernel refused its data, for example an index out of range.
        """
        if self._sizes is None and not self.program.grown:
            outputs = [make(shape, dtype) for make, (_, dtype, shape, _) in self._made]
            self.run(inputs, outputs)
            return outputs
        free = self.contexts
        try:
            context = free.pop()
        except IndexError:
            context = self.new_context()
        try:
            self._ready(context, inputs)
            self._bind(context.inputs, inputs, self._inputs_at(context))
            expected = self._outputs_at(context)
            outputs = [np.empty(0)] * len(self.program.outputs)
            for each in expected:
                outputs[each[0]] = _maker(context, each)(each[2], each[1])
            self._bind(context.outputs, outputs, expected, len(self.program.grown))
            if self._start(context):
                self._raise_run(context.error)
            for i in self.program.grown:
                outputs[i] = self._grown(context, i)
            return outputs
        finally:
            free.append(context)

    def _ready(self, context: _Context, inputs: Sequence[Array]) -> None:
        """Make a context ready for the sizes of these arrays.

        Raises:
            FeedError: If the program does not work for them.
            MemoryLimitError: If they need more memory than the budget in force allows.
        """
        if self._sizes is None:
            return
        symbols = self._sizes.read(inputs)
        error = context.error
        if not lib.tc_context_resize(context.handle, symbols, False, error):
            return
        if error.code == lib.TC_LIMIT:
            needed = int(lib.tc_context_needed_bytes(context.handle))
            what = f"the values alive there ({self._beside}), the arena, the threads' scratch and results ({needed})"
            reserve_bytes(self._beside + needed, f"region {self.program.name}", what)
            if not lib.tc_context_resize(context.handle, symbols, True, error):
                return
        if error.code == lib.TC_NO_MEMORY:
            raise_error(error, self.program.name)
        if error.code == lib.TC_TOO_LARGE:
            reserve_bytes(_BEYOND, f"region {self.program.name}", "the sizes that its inputs ask for, or more")
        message = ffi.string(error.message).decode("utf-8", "replace")
        called, failed = _INSTRUCTION.match(message), _CONDITION.match(message)
        where = self.program.name
        if failed is not None:
            condition = self.program.conditions[int(failed[1])]
            where += f", node {condition.node}"
            message = condition.text
        elif called is not None:
            call = self.program.instructions[int(called[1])]
            where += f", node {' + '.join(call.source) or call.kernel} ({call.kernel})"
            message = message[called.end() :]
        raise self._sizes.misfit(symbols, message, where)

    def _inputs_at(self, context: _Context) -> tuple[_Expected, ...]:
        return self._inputs if self._sizes is None else self._sizes.at(context, self._inputs)

    def _outputs_at(self, context: _Context) -> tuple[_Expected, ...]:
        return self._outputs if self._sizes is None else self._sizes.at(context, self._outputs)

    def bound(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], None]:
        """Return a function that runs the program on these arrays, whose memory stays where it is.

        Raises:
            FeedError: If an array does not have the dtype, shape or memory layout that the program expects.
        """
        context = self.new_context()
        self._ready(context, inputs)
        self._bind(context.inputs, inputs, self._inputs_at(context))
        self._bind(context.outputs, outputs, self._outputs_at(context), len(self.program.grown))
        kept = (*inputs, *outputs)
        arguments = (self.handle, context.handle, self.pool_handle, context.inputs, context.outputs, context.error)

        def run() -> None:
            if tc_run(*arguments):
                assert kept
                self._raise_run(context.error)
            self._give_grown(context, outputs)

        return run

    def profile(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> list[float]:
        """Run once and return the seconds that every instruction took."""
        context = self._profiled = self.new_context()
        seconds = ffi.new("double[]", max(len(self.program.instructions), 1))
        self._ready(context, inputs)
        numbers = () if self._sizes is None else self._sizes.numbers(inputs)
        self.profiled_sizes = dict(zip(self.program.symbols, numbers, strict=True))
        self._bind(context.inputs, inputs, self._inputs_at(context))
        self._bind(context.outputs, outputs, self._outputs_at(context), len(self.program.grown))
        if lib.tc_run_profiled(
            self.handle, context.handle, self.pool_handle, context.inputs, context.outputs, seconds, context.error
        ):
            self._raise_run(context.error)
        self._give_grown(context, outputs)
        return [seconds[i] for i in range(len(self.program.instructions))]

    def work(self, instruction: int) -> Work:
        """Return what an instruction has to do, as its kernel states it.

        Where that depends on sizes, it is for those that were profiled last, or else for typical ones.

        Raises:
            IndexError: If there is no such instruction.
        """
        work = ffi.new("tc_work *")
        if self._profiled is None:
            known = lib.tc_program_work(self.handle, instruction, work)
        else:
            known = lib.tc_context_work(self._profiled.handle, instruction, work)
        if not known:
            raise IndexError(f"{self.program.name} has no instruction {instruction}")
        return Work(
            int(work.flops), int(work.integer_operations), int(work.read), int(work.written), int(work.done),
            ALGORITHMS.get(work.algorithm, ""),
        )  # fmt: skip

    def _expected(
        self, specs: Sequence[BufferSpec], touched: Callable[[Any, int], int], writable: bool
    ) -> tuple[_Expected, ...]:
        """Return what arrays must look like, having checked that the program stays inside them."""
        for index, spec in enumerate(specs):
            size = product(spec.shape) * array_dtype(spec.dtype).itemsize
            told = self._sizes is not None and not (writable and index in self.program.grown)
            if told or not isinstance(size, int):
                continue  # known to the runtime, which checks it for the sizes of every run
            needed = touched(self.handle, index)
            if needed > size:
                raise TargetError(
                    f'the program reaches past the end of "{spec.name}"',
                    where=self.program.name,
                    expected=f"at most {size} bytes",
                    found=f"{needed}",
                )
        return tuple((i, array_dtype(spec.dtype), spec.shape, writable) for i, spec in enumerate(specs))

    def new_context(self) -> _Context:
        """Return the memory for one more run at a time.

        Raises:
            MemoryLimitError: If it is more than the budget in force allows.
        """
        if self._sizes is not None:  # its memory comes with the first sizes
            return _Context(self.handle, self.program, self._threads, self._beside)
        own, arena = self.context_bytes, self.program.arena_bytes
        what = f"the values alive there ({self._beside}), the arena ({arena}) and the threads' scratch ({own - arena})"
        reserve_bytes(self._beside + own, f"region {self.program.name}", what)
        return _Context(self.handle, self.program, self._threads, self._beside)

    def _bind(self, pointers: Any, arrays: Sequence[Array], expected: tuple[_Expected, ...], grown: int = 0) -> None:
        """Point at the arrays, having checked them. Every run passes here: what is wrong is found out elsewhere."""
        if len(arrays) != len(expected) + grown:
            counts = {"expected": str(len(expected) + grown), "found": str(len(arrays))}
            raise FeedError("wrong number of arrays", where=self.program.name, **counts)
        for i, dtype, shape, writable in expected:
            array = arrays[i]
            if array.shape != shape or (array.dtype is not dtype and array.dtype != dtype):
                name = (self.program.outputs if writable else self.program.inputs)[i].name
                raise FeedError(
                    f'array {i} ("{name}") does not fit',
                    where=self.program.name,
                    expected=f"{dtype}{list(shape)}",
                    found=f"{array.dtype}{list(array.shape)}",
                )
            try:
                pointers[i] = from_buffer(BYTES, array, writable)
            except (BufferError, ValueError, TypeError):
                pointers[i] = _buffer(array, writable)

    def _raise_run(self, error: Any) -> NoReturn:
        if error.code == lib.TC_LIMIT:
            refusal = _refusals.__dict__.pop("last", None)
            if refusal is None:  # the runtime itself has seen that the time is up
                raise time_is_up(current(), f"region {self.program.name}")
            raise cast(BaseException, refusal)
        message = ffi.string(error.message).decode("utf-8", "replace")
        failed = _CONDITION.match(message)
        if failed is not None:
            condition = self.program.conditions[int(failed[1])]
            raise ExecutionError(condition.text, where=f"{self.program.name}, node {condition.node}")
        if error.code == lib.TC_INVALID:
            raise FeedError(message, where=self.program.name)
        call, message = _failed(self.program, message)
        if call is None or error.code != lib.TC_FAILED:
            raise_error(error, self.program.name)
        raise ExecutionError(
            message,
            where=f"{self.program.name}, node {' + '.join(call.source) or call.kernel} ({call.kernel})",
            found=f"operands {', '.join(map(str, call.operands))}",
            hint="Check the values that this node reads, indices above all.",
        )


def _maker(context: _Context, expected: _Expected) -> Callable[..., Array]:
    """Return what makes an array for a result: of zeros, unless a run writes every byte for certain."""
    index, dtype, shape, _ = expected
    nbytes = math.prod(cast(tuple[int, ...], shape)) * dtype.itemsize
    return np.zeros if lib.tc_context_written_bytes(context.handle, index) < nbytes else np.empty


def _failed(program: Program, message: str) -> tuple[Instruction | None, str]:
    """Return the instruction that a message of the runtime names, in a body if that is where it is, and the rest."""
    call: Instruction | None = None
    bodies: tuple[Program, ...] = (program,)
    while bodies and (called := _INSTRUCTION.match(message)) is not None:
        found = [
            body.instructions[int(called[1])]
            for body in bodies
            if int(called[1]) < len(body.instructions) and body.instructions[int(called[1])].kernel == called[2]
        ]
        if not found:
            break
        call, message = found[0], message[called.end() :]
        bodies = () if call.control is None else call.control.bodies
    return call, message


def _buffer(array: Array, writable: bool) -> Any:
    """Return the memory of a contiguous array as cffi sees it; it keeps the array alive."""
    try:
        return from_buffer(BYTES, array, writable)
    except (BufferError, ValueError, TypeError) as error:
        # Types that numpy did not define itself, such as bfloat16, have no buffer interface of their own.
        if array.dtype.isbuiltin != 1 and array.flags.c_contiguous:
            return from_buffer(BYTES, array.reshape(-1).view(np.uint8), writable)
        raise FeedError("an array is not contiguous or not writable", found=str(error)) from None


def _refuse_sizes(program: Program) -> None:
    """Refuse a program that shows no sizes and depends on some."""
    known = [spec for index, spec in enumerate(program.outputs) if index not in program.grown]
    for spec in (*program.inputs, *known):
        if any(isinstance(dim, Expression) for dim in spec.shape):
            raise TargetError(f"{spec} depends on sizes that are no dimension of an input", where=program.name)
    if program.arena or program.tables:
        raise TargetError("the arena or a table depends on sizes, and the program has no symbols", where=program.name)
    for index, call in enumerate(program.instructions):
        if call.depends_on_sizes:
            where = f"{program.name}, instruction {index} ({call.kernel})"
            raise TargetError("a part of the call depends on sizes, and the program has no symbols", where=where)


def _place(operand: Operand, where: str) -> tuple[int, int, int]:
    """Return an operand as the runtime describes it."""
    try:
        return _SPACE_CODES[operand.space], operand.index, int(_known(operand.offset))
    except KeyError:
        raise TargetError(
            f'there is no operand space "{operand.space}"', where=where, hint=did_you_mean(operand.space, SPACES)
        ) from None


def _known(value: float | Size) -> float:
    """Return a number as it is, and 0 for one that a run fills in."""
    return 0 if isinstance(value, Expression) else value


_FORMULA_CODES = {name.lower(): code for name, code in codes("tc_formula_operation", "TC_FORMULA_").items()}
_FORMULA_CODES["ifzero"] = _FORMULA_CODES.pop("if_zero")


class _Sizes:
    """The sizes of a program that only a run knows: what the C runtime is told of them, and how they are read.

    Args:
        program: A program with symbols.
        handle: The same in the C runtime, still empty.
    """

    def __init__(self, program: Program, handle: Any) -> None:
        self.program = program
        self.handle = handle
        self._formulas = Formulas((*program.symbols, *program.found))
        self._told = 0
        self._error = ffi.new("tc_error *")
        self._tell(lib.tc_program_symbols, len(program.symbols), len(program.found))
        self.sources = tuple(program.sources.values())
        """Of which dimension of which input each symbol is the size, or -1 - i for its element i."""

    def value(self, size: Size) -> int:
        """Return the number of the value that a size is in the C runtime."""
        try:
            number = self._formulas.add(size)
        except KeyError as unknown:
            raise TargetError(
                f"the size {size} follows from {unknown}, which is no dimension of an input", where=self.program.name
            ) from None
        except RecursionError:
            raise TargetError("a size is too deeply nested", where=self.program.name) from None
        for name, operands in self._formulas.operations[self._told :]:
            a, b, c = (*operands, 0, 0)[:3]
            self._tell(lib.tc_program_formula, _FORMULA_CODES[name], a, b, c)
        self._told = len(self._formulas.operations)
        return number

    def describe_buffers(self) -> None:
        """Say how large inputs, outputs and the pieces of the arena are, and which words of constants follow."""
        program = self.program
        for space, specs in ((lib.TC_INPUT, program.inputs), (lib.TC_OUTPUT, program.outputs)):
            for index, spec in enumerate(specs):
                if space == lib.TC_OUTPUT and index in program.grown:
                    continue
                value = self.value(product(spec.shape) * array_dtype(spec.dtype).itemsize)
                self._tell(lib.tc_program_buffer_size, space, index, value)
        for word in program.tables:
            self._tell(lib.tc_program_word, word.constant, word.word, self.value(word.value))
        for piece in program.arena:
            self._tell(lib.tc_program_piece, self.value(piece.nbytes), piece.above, len(piece.above))

    def describe_call(self, call: Instruction, kernel: Kernel) -> None:
        """Say what of the instruction appended last follows from sizes."""
        for name, value in call.params.items():
            if isinstance(value, Expression):
                if kernel.fields.get(name) is not int:
                    raise TargetError(f'the parameter "{name}" of {call.kernel} is no size', where=self.program.name)
                byte = ffi.offsetof(kernel.ctype, name)
                self._tell(lib.tc_program_parameter, byte, self.value(value))
        self.describe_offsets(call)
        if call.found is not None:
            found, most = self.value(symbol(call.found.symbol)), self.value(call.found.most)
            self._tell(lib.tc_program_finds, call.found.operand, found, most)

    def describe_offsets(self, call: Instruction) -> None:
        """Say which offsets of operands of the instruction appended last follow from sizes."""
        for index, operand in enumerate(call.operands):
            if isinstance(operand.offset, Expression):
                self._tell(lib.tc_program_offset, index, self.value(operand.offset))

    def settle(self, is_body: bool) -> None:
        """Give the sizes for which the program is checked and its weights are packed.

        Args:
            is_body: Whether all sizes of results become values.
        """
        with expecting(expected_sizes(spec.shape for spec in self.program.inputs)):
            sizes = [typical(symbol(name)) for name in self.program.symbols]
            sizes += [typical(call.found.most) for call in self.program.instructions if call.found is not None]
        self.dims = {
            dim: self.value(dim)
            for index, spec in enumerate((*self.program.outputs, *self.program.inputs))
            for dim in spec.shape
            if isinstance(dim, Expression) and index not in self.program.grown
        }
        """The values that dimensions of inputs and outputs are."""
        for dim in [dim for spec in self.program.outputs for dim in spec.shape] if is_body else ():
            self.value(dim)
        self._describe_left()
        self._describe_conditions()
        self._tell(lib.tc_program_setup, self.program.setup)
        self._tell(lib.tc_program_typical, sizes)

    def _describe_left(self) -> None:
        for left in self.program.left:
            spec = self.program.outputs[left.output]
            nbytes = self.value(product(spec.shape) * array_dtype(spec.dtype).itemsize)
            dims = [self.value(dim) for dim in spec.shape]
            place = [_place(left.place, self.program.name)]
            self._tell(lib.tc_program_leaves, left.output, place, nbytes, len(dims), dims)

    def _describe_conditions(self) -> None:
        values = [self.value(condition.value) for condition in self.program.conditions]
        code = _FORMULA_CODES["condition"]  # behind all other formulas, whose numbers they would shift
        for index, value in enumerate(values):
            self._tell(lib.tc_program_formula, code, value, index, 0)

    def read(self, arrays: Sequence[Array]) -> Any:
        """Return the symbols as the arrays give them, for the C runtime."""
        try:
            return ffi.new("int64_t[]", self.numbers(arrays))
        except IndexError:
            found = ", ".join(f"{a.dtype}{list(a.shape)}" for a in arrays)
            raise FeedError(
                "the arrays do not fit", where=self.program.name,
                expected=", ".join(map(str, self.program.inputs)), found=found,
            ) from None  # fmt: skip

    def numbers(self, arrays: Sequence[Array]) -> list[int]:
        """Return the numbers of the symbols, in their order.

        Raises:
            IndexError: If an array has too few dimensions, or is not the one whose elements are sizes.
        """
        return [
            arrays[index].shape[axis] if axis >= 0 else self._element(index, -1 - axis, arrays[index])
            for index, axis in self.sources
        ]

    def _element(self, index: int, place: int, array: Array) -> int:
        spec = self.program.inputs[index]
        if array.shape != spec.shape or array.dtype != array_dtype(spec.dtype):
            raise IndexError(spec.name)
        return max(-FARTHEST, min(int(array.reshape(-1)[place]), FARTHEST))

    def at(self, context: _Context, expected: tuple[_Expected, ...]) -> tuple[_Expected, ...]:
        """Return what arrays must look like at the sizes of a context."""
        value, handle = lib.tc_context_value, context.handle
        sized = tuple([
            (i, dtype, tuple([d if isinstance(d, int) else int(value(handle, self.dims[d])) for d in shape]), writable)
            for i, dtype, shape, writable in expected
        ])  # fmt: skip
        for _, _, shape, _ in sized:
            if min(shape, default=0) < 0:
                symbols = [value(handle, i) for i in range(len(self.sources))]
                raise self.misfit(symbols, f"an array would have the shape {list(shape)}", self.program.name)
        return sized

    def misfit(self, symbols: Sequence[int], message: str, where: str) -> FeedError | ExecutionError:
        """Return the error that says that the program does not work for these sizes; elements are no part of types."""
        found = ", ".join(f"{name} = {symbols[i]}" for i, name in enumerate(self.program.symbols))
        kind = ExecutionError if any(axis < 0 for _, axis in self.sources) else FeedError
        return kind(f"the model does not work for these sizes: {message}", where=where, found=found)

    def _tell(self, function: Callable[..., int], *arguments: Any) -> None:
        try:
            status = function(self.handle, *arguments, self._error)
        except OverflowError as overflow:
            raise TargetError(
                "a number of the program does not fit", where=self.program.name, found=str(overflow)
            ) from None
        if status:
            raise_error(self._error, self.program.name)
