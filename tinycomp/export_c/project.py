"""Whole models as C: a folder with sources, build files, a test, and a page that says how to use it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal

import numpy as np

from tinycomp.arguments import checked
from tinycomp.checking import random_feeds
from tinycomp.errors import ExecutionError, FeedError, MemoryLimitError, UnsupportedError
from tinycomp.export_c import text
from tinycomp.export_c.calls import calls_of
from tinycomp.export_c.memory import MemoryMap
from tinycomp.export_c.names import names_of
from tinycomp.export_c.processors import Processor, processor_named
from tinycomp.export_c.sources import files_of
from tinycomp.records import asdict, dataclass, field, replace
from tinycomp.runtime.files import folder_named, make_folder, write_files
from tinycomp.runtime.module import Module
from tinycomp.runtime.spec import TensorSpec, bind_symbols, check_feed, order_feeds

Array = np.ndarray[Any, Any]
Weights = Literal["array", "binary", "pointer"]
"""How a project holds its weights."""
_ATTEMPTS = 5
"""Budgets that are tried before the fewest bytes are."""
_LARGEST_CASE = 1 << 16
"""Elements of inputs in a test at the largest sizes."""


@dataclass(frozen=True)
class Project:
    """The files of an exported model.

    Attributes:
        files: Their text, by path relative to the project's folder.
        binaries: The contents of those that are no text, likewise.
        name: In front of all that it exports.
        memory: What lies where in the memory of a run, and when.
        weights_bytes: Packed weights and constants.
        kernels: The kernels that it calls.
        processor: What it is for.
        flags: What compilers have to be told for single files.
    """

    files: Mapping[str, str]
    name: str
    processor: Processor
    memory: MemoryMap
    weights_bytes: int
    kernels: tuple[str, ...]
    binaries: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def memory_bytes(self) -> int:
        """Return the memory of a run, that is of values in between and of what kernels need while they run."""
        return self.memory.size

    @property
    def sources(self) -> list[str]:
        """Return the C files that make up the library."""
        return [name for name in self.files if name.endswith(".c") and "/" not in name and name != "test.c"]

    def write(self, folder: str | PathLike[str]) -> None:
        """Write all files into a folder, which is made if need be; files of other names in it are left alone.

        Raises:
            WriteError: If there is no space or permission.
        """
        root = folder_named(folder)
        for parent in sorted({(root / name).parent for name in self.files}):
            make_folder(parent)
        texts = {root / name: content.encode() for name, content in self.files.items()}
        write_files({**texts, **{root / name: content for name, content in self.binaries.items()}})

    def to_dict(self) -> dict[str, Any]:
        """Return what was exported, without the text."""
        return {
            "name": self.name,
            "cpu": self.processor.name,
            "memory_bytes": self.memory_bytes,
            "peak": None if self.memory.peak is None else asdict(self.memory.peak),
            "memory": self.memory.to_dict(),
            "weights_bytes": self.weights_bytes,
            "kernels": list(self.kernels),
            "files": [*self.files, *self.binaries],
        }


@checked(least={"seed": 0})
def to_c(
    module: Module, cpu: str = "generic", *, name: str = "model", feeds: Sequence[Array] | None = None, seed: int = 0,
    weights: Weights = "array",
) -> Project:  # fmt: skip
    """Turn a compiled module into a C project that needs neither Python nor a heap, threads or files.

    Args:
        module: Compiled for the target ``c``. Sizes that are no numbers must have bounds, for which there is memory;
            every run of the project chooses some within them.
        cpu: What it is for: ``"generic"``, ``"host"``, ``"x86-64-v3"``, ``"armv8-a"``, ``"cortex-m4"`` and the like.
        name: In front of all that it exports; an identifier.
        feeds: Inputs of the project's test, in order; by default random ones, of several sizes where there is a choice.
        seed: Of the random ones.
        weights: How the project holds weights: an ``"array"`` in C, a ``"binary"`` file that the assembler includes, or
            a binary file for which every run takes a ``"pointer"``.

    Raises:
        UnsupportedError: If a node has no form in C, or a size is known only in a run; it names the node and says why.
    """
    if not (name.isidentifier() and name.isascii() and name.islower()):
        raise UnsupportedError(
            "not a name for a project", where="name", expected="an identifier in lower case", found=name
        )
    processor = processor_named(cpu)
    calls = calls_of(module, processor)
    cases = _cases(module, calls.sizes, feeds, seed)
    names = names_of(calls, name, weights)
    files = text.texts_of(calls, names, processor, cases)
    parts = {f"{name}_part_{number}.c": source.flags for number, source in enumerate(calls.sources)}
    if calls.kernels:
        runtime = files_of(calls.kernels, processor.vocabulary, calls.is_sized)
        files |= {f"runtime/{path}": content for path, content in runtime.items()}
    flags = {part: ("-ffp-contract=off", *own) for part, own in parts.items()}
    binaries = {} if weights == "array" else {f"{name}_weights.bin": calls.weights or b"\0"}
    return Project(files, name, processor, calls.memory, len(calls.weights), calls.kernels, binaries, flags)


@checked(least={"nbytes": 0})
def to_c_within(build: Callable[[int | str], Module], nbytes: int, cpu: str = "generic", **options: Any) -> Project:
    """Turn a model into a project whose runs take so many bytes of memory at most, in as few calls as is found.

    Args:
        build: Compiles the model with a value of the option ``memory`` of the target ``c``.
        nbytes: How many bytes, with what kernels need while they run.
        cpu: As in :func:`to_c`.
        options: Likewise.

    Raises:
        MemoryLimitError: If no project is found that needs so few.
        UnsupportedError: As :func:`to_c` does.
    """
    project = to_c(build("fast"), cpu, **options)
    if project.memory_bytes <= nbytes:
        return project
    # What the planner is given is less than a run takes, by what kernels need beside it: the most that fits is sought.
    low, high, budget = 0, nbytes + 1, nbytes
    for _ in range(_ATTEMPTS):
        tried = to_c(build(budget), cpu, **options)
        if tried.memory_bytes <= nbytes:
            low, project = budget, tried
        else:
            high = budget
        budget = (low + high) // 2 if low else max(budget - (tried.memory_bytes - nbytes), 1)
        if high - low < 2:
            break
    if project.memory_bytes > nbytes:
        project = to_c(build("least"), cpu, **options)
    if project.memory_bytes > nbytes:
        peak = project.memory.peak
        where = "" if peak is None else f"{peak.kernel} ({', '.join(peak.sources)})"
        raise MemoryLimitError(
            "the model needs more memory", where=where, expected=f"at most {nbytes:,} bytes",
            found=f"{project.memory_bytes:,} bytes", hint="Most is in use in the step that is named.",
        )  # fmt: skip
    return project


def _cases(
    module: Module, sizes: Mapping[str, tuple[int, int]], feeds: Sequence[Array] | None, seed: int
) -> list[text.Case]:
    """Return the runs of a project's test: on the inputs given, or on random ones of some sizes."""
    if feeds is not None:
        ordered = order_feeds(module.plan.inputs, feeds, {}, {})
        arrays = [check_feed(spec, feed) for spec, feed in zip(module.plan.inputs, ordered, strict=True)]
        bound = bind_symbols(module.plan.inputs, arrays)
        return [_case(module, {name: bound[name] for name in sizes}, arrays)]
    cases, failed = [], None
    for chosen in _chosen(module.plan.inputs, sizes):
        specs = [
            replace(spec, shape=tuple(chosen[dim] if isinstance(dim, str) else dim for dim in spec.shape or ()))
            for spec in module.plan.inputs
        ]
        random = random_feeds(specs, seed)
        try:
            cases.append(_case(module, chosen, [np.asarray(random[spec.name]) for spec in specs]))
        except (FeedError, ExecutionError) as error:
            if not sizes:
                raise
            failed = error
    if not cases and failed is not None:
        raise failed
    return cases


def _case(module: Module, sizes: Mapping[str, int], arrays: Sequence[Array]) -> text.Case:
    feeds = {spec.name: array for spec, array in zip(module.plan.inputs, arrays, strict=True)}
    return text.Case(sizes, arrays, list(module.run(feeds).values()))


def _chosen(inputs: Sequence[TensorSpec], sizes: Mapping[str, tuple[int, int]]) -> list[dict[str, int]]:
    """Return the least sizes, some in between, and the greatest if the inputs are not too large then."""
    least, most = ({name: bounds[end] for name, bounds in sizes.items()} for end in (0, 1))
    between = [
        {name: min(high, low + step + 2 * place) for place, (name, (low, high)) in enumerate(sizes.items())}
        for step in (1, 4)
    ]
    elements = sum(
        math.prod(most[dim] if isinstance(dim, str) else dim or 0 for dim in spec.shape or ()) for spec in inputs
    )
    chosen = [least, *between, *([most] if elements <= _LARGEST_CASE else [])]
    return [each for number, each in enumerate(chosen) if each not in chosen[:number]]
