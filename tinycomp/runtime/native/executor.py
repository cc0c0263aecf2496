"""Run programs on this machine: packed weights, thread pools and execution contexts."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, cast

import numpy as np

from tinycomp.errors import DeclaredShapeError, ExecutionError, FeedError, TargetError, TinycompError, shown
from tinycomp.memory.budget import SMALL, Limits, check_time, current, reserve_bytes, time_is_up
from tinycomp.memory.mapped import mapping_of
from tinycomp.records import dataclass
from tinycomp.runtime.native.encoder import encoded
from tinycomp.runtime.native.library import address, ffi, lib, raise_error
from tinycomp.runtime.native.processor import default_threads
from tinycomp.runtime.native.program import ALGORITHMS, Array, BufferSpec, Instruction, Program
from tinycomp.runtime.spec import array_dtype


class Weights:
    """Packed weights that the programs of one model share, so that another batch size does not pack them again.

    They are looked up by the arrays that they were packed from, and freed when no program uses them any more.
    """

    def __init__(self) -> None:
        error, out = ffi.new("tc_error *"), ffi.new("tc_weights **")
        if lib.tc_weights_create(out, error):
            raise_error(error, "packed weights")
        self.handle = ffi.gc(out[0], lib.tc_weights_destroy)

    @property
    def nbytes(self) -> int:
        """The number of bytes that are shared now."""
        return int(lib.tc_weights_bytes(self.handle))


# Bound once: these are on the path of every run.
tc_run, from_buffer, BYTES = lib.tc_run, ffi.from_buffer, ffi.typeof("char[]")

_INSTRUCTION = r"instruction (\d+) \(([^)]*)\): "
_CONDITION = r"condition (\d+)\Z"
_INPUT = r"input (\d+)(?: is .*, not (\[.*\])\Z)?"

MOST_THREADS = 1024
"""The largest pool that the C runtime makes."""


class Pool:
    """Threads that share the work of a run, the calling thread among them.

    One run at a time uses them. A run that another thread starts meanwhile uses only that thread, with bit-identical
    results. So does every run in a forked child, where the threads do not exist.

    Args:
        threads: The number of threads, including the caller; by default as many as the process may use.

    Raises:
        TargetError: If it is not a number from 1 to 1024.
    """

    def __init__(self, threads: int | None = None) -> None:
        error, out = ffi.new("tc_error *"), ffi.new("tc_pool **")
        wanted = default_threads() if threads is None else threads
        if not isinstance(wanted, int) or not 1 <= wanted <= MOST_THREADS:
            raise TargetError(
                "not a number of threads", where="threads", expected=f"a whole number from 1 to {MOST_THREADS}",
                found=shown(wanted),
            )  # fmt: skip
        if lib.tc_pool_create(wanted, out, error):
            raise_error(error, "thread pool")
        self.threads = wanted
        self.handle = ffi.gc(out[0], lib.tc_pool_destroy)


_Result = TypeVar("_Result")


class _Context:
    """The memory of one run at a time: arena, scratch, and reusable argument arrays.

    Args:
        handle: The program in the C runtime.
        program: The program.
        threads: The most threads of a run.
        beside: Bytes that a run needs in addition to the program's memory, for the memory budget.
    """

    def __init__(self, handle: Any, program: Program, threads: int, beside: int) -> None:
        self.error = ffi.new("tc_error *")
        out = ffi.new("tc_context **")
        if lib.tc_context_create(handle, threads, out, self.error):
            raise_error(self.error, program.name)
        self.handle = ffi.gc(out[0], lib.tc_context_destroy)
        self.address = address(self.handle)
        self.arguments = ffi.new("tc_argument[]", max(len(program.inputs), 1))
        self.inputs = ffi.new("void *[]", max(len(program.inputs), 1))
        self.outputs = ffi.new("void *[]", max(len(program.outputs), 1))
        self._where, self.beside = f"region {program.name}", beside
        if any(call.control is not None for call in program.instructions):
            self._self = ffi.new_handle(self)
            lib.tc_context_supervise(self.handle, lib.tc_python_permits, self._self)

    def within(self, limits: Limits, run: Callable[..., _Result], arguments: Sequence[Any]) -> _Result:
        """Return what a run in the context does, which ends when the limits say."""
        cancellation = limits.cancellation
        if limits.deadline is not None:
            lib.tc_context_end_after(self.handle, max(limits.remaining or 0.0, _AT_ONCE))
        cancellation.add(self._end)
        try:
            return run(*arguments)
        finally:
            cancellation.remove(self._end)
            lib.tc_context_end_after(self.handle, 0.0)

    def _end(self) -> None:
        lib.tc_context_end_after(self.handle, _AT_ONCE)

    def permits(self, nbytes: int) -> bool:
        """Tell whether a run may continue whose loops hold this many bytes.

        Raises:
            ExecutionError: If its timeout is over.
            MemoryLimitError: If that is more than the memory budget allows.
        """
        check_time(current(), self._where)
        reserve_bytes(self.beside + nbytes, self._where, "the values of its loops")
        return True


_AT_ONCE = 1e-9
"""Seconds after which a run is to end that has no time left."""
_BEYOND = 1 << 48
"""More bytes than any machine has, for sizes that the runtime calls too large."""
_refusals = threading.local()


def _keep_refusal(kind: Any, refusal: BaseException, traceback: Any) -> None:
    """Keep an exception that was raised during a callback from the C runtime, until the run has ended."""
    _refusals.last = refusal


@ffi.def_extern(error=False, onerror=_keep_refusal)  # type: ignore[untyped-decorator]  # cffi has no types
def tc_python_permits(owner: Any, nbytes: int) -> bool:
    """Let control flow in the C runtime ask its context whether it may use more memory."""
    context: _Context = ffi.from_handle(owner)
    return context.permits(nbytes)


@dataclass(frozen=True, slots=True)
class Work:
    """Hold the work of one kernel call by its definition; an exponential or a comparison counts as one operation.

    Attributes:
        flops: Operations on floating-point numbers.
        integer_operations: Operations on all other numbers.
        read: Bytes of the elements that it must read, each counted once.
        written: Bytes of the elements that it must write.
        done: Operations of the algorithm in use, which may be fewer (Winograd); otherwise all operations.
        algorithm: The name of the algorithm, if there are several.
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
    """A finished program in the C runtime, with the bodies of its control flow, for which contexts can be created.

    Args:
        program: The program.
        isa: An instruction set, or None for the default. It may be one that this machine lacks, to inspect the calls
            and the packed weights.
        weights: Packed weights, shared with programs that use the same constants.
        cache: The size of the second-level cache in bytes; 0 for that of this machine.

    Raises:
        TargetError: If the program is not valid; the message names the instruction.
    """

    def __init__(
        self, program: Program, isa: str | None = None, weights: Weights | None = None, cache: int = 0
    ) -> None:
        error, out = ffi.new("tc_error *"), ffi.new("tc_program **")
        data, buffers = encoded(program), [_buffer(array, False) for array in program.constants]
        arrays = ffi.new("tc_array[]", [
            (buffer, array.nbytes, mapping_of(array) is not None)
            for buffer, array in zip(buffers, program.constants, strict=True)
        ])  # fmt: skip
        name = ffi.NULL if isa is None else ffi.new("char[]", isa.encode())
        making = ffi.new("tc_making *", (name, cache, ffi.NULL if weights is None else weights.handle))
        if lib.tc_program_read(from_buffer(data), len(data), arrays, len(buffers), making, out, error):
            raise_error(error, program.name)
        end = lib.tc_program_destroy

        def destroy(handle: Any) -> None:  # perhaps when the interpreter ends, and this module has no names any more
            end(handle)
            buffers.clear()  # only now: shared weights are found by the addresses of the constants

        self.program, self.handle = program, ffi.gc(out[0], destroy)

    @property
    def bodies(self) -> Sequence[LoadedBody]:
        """The bodies of its control flow, in the order of their instructions."""
        return _bodies(self.program, self.handle)


@dataclass(frozen=True)
class LoadedBody:
    """Hold a body of control flow in the C runtime, which lives as long as the program around it.

    Attributes:
        program: The body.
        handle: What the runtime calls it.
    """

    program: Program
    handle: Any

    @property
    def bodies(self) -> Sequence[LoadedBody]:
        """The bodies of its own control flow."""
        return _bodies(self.program, self.handle)


def _bodies(program: Program, handle: Any) -> list[LoadedBody]:
    return [
        LoadedBody(body, lib.tc_program_body(handle, index, number))
        for index, call in enumerate(program.instructions) if call.control is not None
        for number, body in enumerate(call.control.bodies)
    ]  # fmt: skip


class NativeProgram:
    """A program that is ready to run on this machine; immutable, and safe to run from many threads at once.

    Args:
        program: The program. Its constants must not change from here on.
        pool: Threads that share the work; by default the calling thread does all of it.
        isa: An instruction set from :func:`available_isas`; by default that of the environment variable
            ``TINYCOMP_ISA``, or else the best one.
        weights: Packed weights, shared with programs that use the same constants.
        beside: Bytes that a run needs in addition to the memory of this program, for the memory budget.
        cache: The size of the second-level cache that kernels assume, in bytes; 0 for that of this machine.

    Raises:
        TargetError: If the program is not valid; the message names the instruction.
        UnsupportedError: If this machine does not run the instruction set.
        MemoryError: If there is no memory for the packed weights.
        MemoryLimitError: If a run would need more than the memory budget allows.
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
        self._loaded = LoadedProgram(program, isa, weights, cache)
        self.handle = self._loaded.handle
        self._inputs = tuple([array_dtype(spec.dtype) for spec in program.inputs])
        self._outputs = tuple([array_dtype(spec.dtype) for spec in program.outputs])
        self._profiled: _Context | None = None
        self.profiled_sizes: Mapping[str, int] = {}
        """The sizes of the last profile, by symbol."""
        self.pool_handle = pool.handle if pool is not None else ffi.NULL
        self.contexts = [self.new_context()]
        if program.is_symbolic and not program.symbols:  # the inputs have known sizes: what they need is asked for now
            self._prepare(self.contexts[0], lib.tc_context_resize, ffi.new("int64_t[1]"), ())

    def stand_beside(self, nbytes: int) -> None:
        """Say how many bytes a run needs in addition to the memory of this program, before it has run.

        Raises:
            MemoryLimitError: If that is more than the memory budget allows.
        """
        self._beside = nbytes
        if not self.program.is_symbolic:
            self._reserve_context()
        for context in self.contexts:
            context.beside = nbytes

    @property
    def without_asking(self) -> int:
        """The bytes that a run may have without asking for them, if there is no budget."""
        return max(SMALL - self._beside, 0)

    @property
    def bodies(self) -> Sequence[LoadedBody]:
        """The bodies of its control flow, in the order of their instructions."""
        return self._loaded.bodies

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
        """Bytes that one run at a time needs: the arena, and the scratch memory of all threads.

        It is 0 for a program with symbols, whose memory comes with the sizes of a run.
        """
        if self.program.is_symbolic:
            return 0
        return int(lib.tc_program_context_bytes(self.handle, self._threads))

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run the program on contiguous arrays, writing the outputs in place.

        Raises:
            FeedError: If an array does not have the dtype, shape or memory layout that the program expects.
            ExecutionError: If a kernel refused its data, for example an index out of range.
        """
        context = self.taken()
        try:
            self._fit(context, inputs)
            self._place(context, outputs)
            if self._start(context):
                self._raise_run(context.error)
            self._give_grown(context, outputs)
        finally:
            self.contexts.append(context)

    def _start(self, context: _Context) -> int:
        """Run in a context until it ends, or has to, and return the status."""
        arguments = self.handle, context.handle, self.pool_handle, context.inputs, context.outputs, context.error
        limits = current()
        return int(context.within(limits, tc_run, arguments) if limits.may_end else tc_run(*arguments))

    def taken(self) -> _Context:
        """Return a context, for :attr:`contexts` to get back; ``pop`` and ``append`` are atomic and need no lock."""
        try:
            return self.contexts.pop()
        except IndexError:
            return self.new_context()

    def _grown(self, context: _Context, index: int) -> Array:
        """Return a copy of an output whose size the last run in a context has determined.

        Raises:
            ExecutionError: If its bytes do not agree with its dimensions.
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
        """Copy the outputs whose sizes the last run in a context has determined.

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
        """Run the program on contiguous arrays, and return its outputs in new arrays.

        Raises:
            FeedError: If an array does not have the dtype, shape or memory layout that the program expects.
            ExecutionError: If a kernel refused its data, for example an index out of range.
        """
        context = self.taken()
        try:
            self._fit(context, inputs)
            outputs = [self._made(context, index) for index in range(len(self.program.outputs))]
            self._place(context, outputs)
            if self._start(context):
                self._raise_run(context.error)
            for index in self.program.grown:
                outputs[index] = self._grown(context, index)
            return outputs
        finally:
            self.contexts.append(context)

    def _fit(self, context: _Context, inputs: Sequence[Array]) -> None:
        """Prepare a context for these arrays, and set the pointers to them.

        Raises:
            FeedError: If they are of other types, or the program does not work for their sizes.
            MemoryLimitError: If they need more memory than the budget allows.
        """
        self._check_count(inputs, self._inputs)
        kept = []
        for index, (array, dtype) in enumerate(zip(inputs, self._inputs, strict=True)):
            if array.dtype is not dtype and array.dtype != dtype:
                raise self._misfit(self.program.inputs[index], index, array)
            kept.append(ffi.new("int64_t[]", array.shape))
            context.inputs[index] = data = _buffer(array, False)
            context.arguments[index] = data, kept[-1], array.ndim
        self._prepare(context, lib.tc_context_fit, context.arguments, inputs)

    def _prepare(self, context: _Context, fit: Callable[..., int], given: Any, inputs: Sequence[Array]) -> None:
        """Prepare a context for what is given, and grant it the memory that it needs for that."""
        error, is_limited = context.error, current().memory is not None
        if not fit(context.handle, given, 0 if is_limited else self.without_asking, error):
            return
        if error.code == lib.TC_LIMIT:
            needed = int(lib.tc_context_needed_bytes(context.handle))
            what = f"the values alive there ({self._beside}), the arena, the threads' scratch and results ({needed})"
            reserve_bytes(self._beside + needed, f"region {self.program.name}", what)
            ahead = 0 if is_limited else needed // 8  # sizes that grow ask seldom
            if not fit(context.handle, given, needed + ahead, error):
                return
        self._raise_misfit(context, inputs)

    def _raise_misfit(self, context: _Context, inputs: Sequence[Array]) -> NoReturn:
        """Raise the error that says why a context cannot be prepared for arrays."""
        error, where = context.error, self.program.name
        if error.code == lib.TC_NO_MEMORY:
            raise_error(error, where)
        if error.code == lib.TC_TOO_LARGE:
            reserve_bytes(_BEYOND, f"region {where}", "the sizes that its inputs ask for, or more")
        message = ffi.string(error.message).decode("utf-8", "replace")
        argument = re.match(_INPUT, message)
        if argument is not None:
            index = int(argument[1])
            raise self._misfit(self.program.inputs[index], index, inputs[index], argument[2])
        called, failed = re.match(_INSTRUCTION, message), re.match(_CONDITION, message)
        condition = None if failed is None else self.program.conditions[int(failed[1])]
        if condition is not None:
            where += f", node {condition.node}"
            message = condition.text
        elif called is not None:
            call = self.program.instructions[int(called[1])]
            where += f", node {' + '.join(call.source) or call.kernel} ({call.kernel})"
            message = message[called.end() :]
        found = ", ".join(f"{name} = {size}" for name, size in self._shown(context).items())
        kind: type[TinycompError] = FeedError
        if condition is not None and condition.is_declared:
            kind = DeclaredShapeError
        elif any(axis < 0 for _, axis in self.program.sources.values()):  # elements are no part of types
            kind = ExecutionError
        raise kind(f"the model does not work for these sizes: {message}", where=where, found=found)

    def _shown(self, context: _Context) -> dict[str, int]:
        """Return the sizes that the last arrays have shown, by symbol."""
        symbols = lib.tc_context_symbols(context.handle)
        return {name: int(symbols[i]) for i, name in enumerate(self.program.symbols)}

    def _shape(self, context: _Context, index: int) -> tuple[int, ...] | None:
        """Return the shape of an output at the sizes of a context; None for one that only a run measures."""
        dims = ffi.new("int64_t **")
        rank = lib.tc_context_result(context.handle, index, dims)
        return None if rank < 0 else tuple(ffi.unpack(dims[0], rank)) if rank else ()

    def _made(self, context: _Context, index: int) -> Array:
        """Return an array for an output: of zeros, unless a run writes every byte for certain."""
        shape, dtype = self._shape(context, index), self._outputs[index]
        if shape is None:
            return np.empty(0)
        nbytes = math.prod(shape) * dtype.itemsize
        is_whole = lib.tc_context_written_bytes(context.handle, index) >= nbytes
        return np.empty(shape, dtype) if is_whole else np.zeros(shape, dtype)

    def _place(self, context: _Context, outputs: Sequence[Array]) -> None:
        """Set the pointers to arrays for the outputs.

        Raises:
            FeedError: If one does not have the dtype, shape or memory layout of its output.
        """
        self._check_count(outputs, self._outputs)
        for index, (array, dtype) in enumerate(zip(outputs, self._outputs, strict=True)):
            shape = self._shape(context, index)
            if shape is None:
                continue
            if array.shape != shape or array.dtype != dtype:
                raise self._misfit(self.program.outputs[index], index, array, str([*shape]))
            context.outputs[index] = _buffer(array, True)

    def _check_count(self, arrays: Sequence[Array], expected: Sequence[object]) -> None:
        if len(arrays) != len(expected):
            counts = {"expected": str(len(expected)), "found": str(len(arrays))}
            raise FeedError("wrong number of arrays", where=self.program.name, **counts)

    def _misfit(self, spec: BufferSpec, index: int, array: Array, shape: str | None = None) -> FeedError:
        known = shape or f"[{', '.join(map(str, spec.shape))}]"
        return FeedError(
            f'array {index} ("{spec.name}") does not fit', where=self.program.name,
            expected=f"{array_dtype(spec.dtype)}{known}",
            found=f"{array.dtype}{list(array.shape)}",
        )  # fmt: skip

    def bound(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], None]:
        """Return a function that runs the program on these arrays; their memory must not move.

        Raises:
            FeedError: If an array does not have the dtype, shape or memory layout that the program expects.
        """
        context = self.new_context()
        self._fit(context, inputs)
        self._place(context, outputs)
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
        self._fit(context, inputs)
        self._place(context, outputs)
        self.profiled_sizes = self._shown(context)
        if lib.tc_run_profiled(
            self.handle, context.handle, self.pool_handle, context.inputs, context.outputs, seconds, context.error
        ):
            self._raise_run(context.error)
        self._give_grown(context, outputs)
        return [seconds[i] for i in range(len(self.program.instructions))]

    def work(self, instruction: int) -> Work:
        """Return the work of an instruction, as its kernel states it.

        If it depends on sizes, it is for those of the last profile, or else for typical ones.

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

    def new_context(self) -> _Context:
        """Return the memory of one more concurrent run.

        Raises:
            MemoryLimitError: If it is more than the budget allows.
        """
        if not self.program.is_symbolic:  # else its memory comes with the first sizes
            self._reserve_context()
        return _Context(self.handle, self.program, self._threads, self._beside)

    def _reserve_context(self) -> None:
        own, arena = self.context_bytes, self.program.arena_bytes
        what = f"the values alive there ({self._beside}), the arena ({arena}) and the threads' scratch ({own - arena})"
        reserve_bytes(self._beside + own, f"region {self.program.name}", what)

    def _raise_run(self, error: Any) -> NoReturn:
        if error.code == lib.TC_LIMIT:
            refusal = _refusals.__dict__.pop("last", None)
            if refusal is None:  # the runtime itself has seen that the time is up
                raise time_is_up(current(), f"region {self.program.name}")
            raise cast(BaseException, refusal)
        message = ffi.string(error.message).decode("utf-8", "replace")
        failed = re.match(_CONDITION, message)
        if failed is not None:
            condition = self.program.conditions[int(failed[1])]
            kind = DeclaredShapeError if condition.is_declared else ExecutionError
            raise kind(condition.text, where=f"{self.program.name}, node {condition.node}")
        if error.code == lib.TC_INVALID:
            raise FeedError(message, where=self.program.name)
        call, message = _failed(self.program, message)
        if call is None or error.code != lib.TC_FAILED:
            raise_error(error, self.program.name)
        failed = re.match(_CONDITION, message)
        bodies = () if failed is None or call.control is None else call.control.bodies
        if failed is not None and bodies:  # of one of the bodies, which the runtime does not name
            broken = [body.conditions[int(failed[1])] for body in bodies if int(failed[1]) < len(body.conditions)]
            where = " or ".join([f"node {each.node}" for each in broken])
            raise ExecutionError(" or ".join([each.text for each in broken]), where=f"{self.program.name}, {where}")
        raise ExecutionError(
            message,
            where=f"{self.program.name}, node {' + '.join(call.source) or call.kernel} ({call.kernel})",
            found=f"operands {', '.join(map(str, call.operands))}",
            hint="Check the values that this node reads, indices above all.",
        )


def _failed(program: Program, message: str) -> tuple[Instruction | None, str]:
    """Return the instruction that a message of the runtime names, in a body if that is where it is, and the rest."""
    call: Instruction | None = None
    bodies: tuple[Program, ...] = (program,)
    while bodies and (called := re.match(_INSTRUCTION, message)) is not None:
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
