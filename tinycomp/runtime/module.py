"""Modules: compiled models that can be run, bound, profiled and saved."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from tinycomp.arguments import checked
from tinycomp.errors import FeedError, did_you_mean, shown
from tinycomp.lazy import cached_property
from tinycomp.memory.budget import Limits, current, limited
from tinycomp.memory.locks import Lock
from tinycomp.records import dataclass, field
from tinycomp.runtime.binding import (
    Binding,
    bind_plan,
    check_bindable,
    copied_into,
    direct_call,
    direct_program,
    direct_start,
)  # fmt: skip
from tinycomp.runtime.native.direct import Direct, call_within
from tinycomp.runtime.plan import Plan, device_sets
from tinycomp.runtime.spec import TensorSpec, bind_symbols, check_feed, check_results, order_feeds

if TYPE_CHECKING:
    from tinycomp.runtime.blob import Blob
    from tinycomp.runtime.diagram import Diagram
    from tinycomp.runtime.profile import Profile
    from tinycomp.runtime.report import Report
    from tinycomp.runtime.requests import Requests, RunFuture

Pack = Callable[[], bytes]
"""Returns the bytes of a saved module."""


@dataclass
class ModuleParts:
    """Hold everything that a module needs; functions make what only some users ask for.

    Attributes:
        inputs: The inputs of the plan; a symbolic dimension may have any size.
        outputs: The outputs.
        plan: The plan that a run executes.
        report: Makes the report for given sizes by symbol, as far as they are known.
        graph: Makes a copy of the partitioned graph.
        defaults: Values of inputs that may be left out.
        pack: Makes the bytes of a saved module.
        threads: Threads that a run may use.
        memory_limit: Bytes that the values of a run may take; None for the memory that the machine has available.
        bounds: The least and the most that sizes may be, by symbol.
        diagram: Makes the data of a picture from the partitioned graph, the plan and sizes by symbol.
        cache_file: The file in the cache of compiled modules that the module was loaded from, if it was.
        interface: All inputs in the model's order, where the plan has constants for those that may be left out, or
            relies on sizes that only the model declares.
        general: Makes the module that does neither, likewise.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    plan: Plan
    report: Callable[[Mapping[str, int]], Report]
    graph: Callable[[], Any]
    pack: Pack
    threads: int
    defaults: Mapping[str, Any] = field(default_factory=dict)
    memory_limit: int | None = None
    bounds: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    diagram: Callable[[Any, Plan, Mapping[str, int]], Diagram] | None = None
    cache_file: Path | None = None
    interface: tuple[TensorSpec, ...] = ()
    general: Callable[[], Module] | None = None


class Module:
    """Run a compiled model. Safe to call from many threads at once; can be pickled.

    Example:
        >>> import numpy as np, tinycomp
        >>> from tinycomp.data import digits, digits_model
        >>> module = tinycomp.compile(digits_model())
        >>> images, labels = digits()
        >>> probabilities = module(images[:4])
        >>> probabilities.shape
        (4, 10)
    """

    def __init__(self, parts: ModuleParts) -> None:
        self._parts = parts
        self._report: Report | None = None
        self._graph: Any = None
        self._input_names = tuple(spec.name for spec in parts.inputs)
        self._names = tuple(spec.name for spec in parts.outputs)
        self._known_names = frozenset(self._names)
        self._compares_sizes = bool(parts.bounds) or _has_repeated_symbol(parts.inputs)
        self._direct = direct_call(parts.plan, is_limited=parts.memory_limit is not None)
        if self._direct is None and parts.memory_limit is None and not self._compares_sizes:
            self._direct = direct_start(parts.plan, parts.outputs)
        self._single = len(parts.outputs) == 1
        self._input_set = frozenset(self._input_names)
        self._requests: Requests | None = None
        self._in_flight: int | None = None
        self._lock = Lock()

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return names, dtypes and shapes of the inputs."""
        return self._parts.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Return names, dtypes and shapes of the outputs."""
        return self._parts.outputs

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Return the values of the inputs that may be left out."""
        return self._parts.defaults

    @property
    def general(self) -> Module:
        """Return the module that assumes nothing of what the model says beside its operators.

        In it, inputs that have a default are values of each run, and what only the model declares of sizes is not
        believed. Other modules have the defaults as constants, rely on such sizes, and use this one where a run
        shows something else.
        """
        return self

    @property
    def graph(self) -> Any:
        """Return the partitioned graph, a :class:`tinycomp.Graph`; ``str`` gives its text.

        It is a copy, the same one at every call, and changing it does not change the module. In the text, large
        constants are hashes; ``compile(dump=…)`` writes text that can be read back. A saved module that is native
        throughout holds its large constants in packed form only: once loaded, its graph has their types and hashes, and
        cannot be compiled.
        """
        if self._graph is None:
            self._graph = self._parts.graph()
        return self._graph

    @property
    def plan(self) -> Plan:
        """Return the steps of a run and the programs of its regions, for tools that inspect them."""
        return self._parts.plan

    @property
    def bounds(self) -> Mapping[str, tuple[int, int | None]]:
        """Return the least and the most that sizes may be, by symbol; every run is checked against them."""
        return self._parts.bounds

    @property
    def blobs(self) -> dict[str, Blob]:
        """Return the compiled blobs by the symbols of their regions, without those built for each set of sizes."""
        from tinycomp.runtime.blob import BlobRegion  # imported here, because few modules have blobs

        return {step.op: step.run.blob for step in self._parts.plan.steps if isinstance(step.run, BlobRegion)}

    @property
    def cache_file(self) -> Path | None:
        """Return the file that ``compile(cache=…)`` has found and loaded; None for a module that was compiled."""
        return self._parts.cache_file

    @property
    def threads(self) -> int:
        """Return how many threads a run may use."""
        return self._parts.threads

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run the model on arrays in input order, or by name.

        Returns:
            One array, or a tuple of them if the model has several outputs.

        Raises:
            FeedError: If an input is missing or does not fit.
            ExecutionError: If a step fails on these values.
            MemoryLimitError: If a value would be larger than the budget allows.
        """
        if self._direct is None or (named and (args or len(named) != len(self._input_names))):
            results = None
        else:
            results = self._direct([*map(named.get, self._input_names)] if named else args)
        if results is None:
            results = self._run(args, named)
        return results[0] if self._single else tuple(results)

    def run(
        self, feeds: Mapping[str, Any], *, outputs: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        """Run the model on arrays by input name and return the results by output name.

        Args:
            feeds: The inputs.
            outputs: Contiguous arrays for results, of the exact dtype and shape, by name; other results get new arrays.
                Where regions run on devices, these and the inputs may be a :class:`tinycomp.DeviceBuffer`. An array may
                share memory with inputs: if the model extends a cache in place, the array of the cache may be given as
                input and as output, and nothing is copied.
            timeout: Seconds after which the run is stopped, before the next step, loop iteration, or piece of a native
                kernel call; a host kernel is never interrupted. None for no limit.

        Raises:
            FeedError: If an input is missing, unknown, or does not fit, or if an array for a result does not fit.
            ExecutionError: If a step fails on these values, or the timeout is over.
            DeviceFault: If a device fails, and the policy for its faults has no remedy.
            MemoryLimitError: If a value would be larger than the budget allows, or a device is out of memory.
        """
        if type(feeds) is not dict and not isinstance(feeds, Mapping):  # the check of the abstract class is slow
            raise FeedError(
                "not a dict of inputs",
                expected=f"arrays by name: {', '.join(self._input_names)}",
                found=type(feeds).__name__,
                hint="Pass arrays by position to the module itself: module(x).",
            )
        if outputs is not None and not isinstance(outputs, Mapping):
            raise FeedError("not a dict of arrays", where="outputs", expected="arrays by name", found=shown(outputs))
        results, direct = None, None if timeout is not None else self._direct
        if direct is not None and (limits := current()).may_end:
            direct = self._within(limits, direct)
        if direct is not None and len(feeds) == len(self._input_names):
            arrays = [*map(feeds.get, self._input_names)]
            results = direct(arrays) if outputs is None else direct(arrays, self._targets(outputs))
        if results is None:
            if outputs is not None:
                results = self._run_into(feeds, outputs, timeout)
            elif feeds.keys() == self._input_set:  # the usual case, which needs fewer checks
                results = self._run([feeds[name] for name in self._input_names], {}, timeout)
            else:
                results = self._run((), feeds, timeout)
        return dict(zip(self._names, results, strict=True))

    def bind(self, inputs: Any, outputs: Any = None) -> Binding:
        """Fix the arrays that the model reads and writes, so that a call neither checks, allocates nor copies.

        Args:
            inputs: Contiguous arrays of the exact dtype and shape: by name, in order, or the only one. Fill them in
                place between calls.
            outputs: Contiguous arrays for the results, in the same forms; by default they are allocated once. If the
                model extends a cache in place, its array may be both an input and an output, and nothing is copied.

        Returns:
            A function without arguments that runs the model and returns the output arrays.

        Raises:
            FeedError: If an array does not fit, is not contiguous, or an output shares memory with another array.

        Example:
            >>> import numpy as np, tinycomp
            >>> from tinycomp.data import digits, digits_model
            >>> module, image = tinycomp.compile(digits_model()), np.zeros((1, 1, 8, 8), np.float32)
            >>> classify = module.bind(image)
            >>> image[...] = digits()[0][:1]
            >>> bool(classify().argmax() == digits()[1][0])
            True
        """
        specs = self._parts.inputs
        arrays = order_feeds(specs, *as_arguments(inputs), self._parts.defaults)
        if self._parts.plan.on_devices:
            from tinycomp.runtime.device.binding import bind_devices  # imported here: few modules have devices

            return bind_devices(self._parts.plan, arrays, _in_order(self._names, outputs), self._check_sizes)
        for spec, value in zip(specs, arrays, strict=True):
            check_bindable(spec, value, "input")
        self._check_sizes(arrays)
        return bind_plan(self._parts.plan, [*map(np.asarray, arrays)], _in_order(self._names, outputs))

    def report(self) -> Report:
        """Return the report: where every node runs, and why; after :meth:`profile` with times, for its sizes."""
        if self._report is None:
            self._report = self._made_report({})
        if not self._device_sets:
            return self._report
        rows = tuple(member.row() for devices in self._device_sets for member in devices.opened())
        return dataclasses.replace(self._report, copies=getattr(self._parts.plan, "copies", ()), devices=rows)

    @cached_property
    def _device_sets(self) -> tuple[Any, ...]:
        """The devices of each target."""
        return device_sets(self._parts.plan)

    @property
    def devices(self) -> tuple[Any, ...]:
        """Return the devices that the module was given or has opened; it opens devices when it first runs."""
        return tuple(member.device for devices in self._device_sets for member in devices.opened())

    def _within(self, limits: Limits, direct: Direct) -> Direct | None:
        """Return the short way of runs that may have to end before they are done."""
        native = direct_program(self._parts.plan)
        return None if native is None else functools.partial(call_within, limits, native, direct)

    @property
    def in_flight(self) -> int:
        """The most runs of :meth:`run_async` at the same time; by default two for each device, and at least two."""
        return self._in_flight or max(2, 2 * sum(map(len, self._device_sets)))

    @in_flight.setter
    @checked(least={"in_flight": 1})
    def in_flight(self, in_flight: int) -> None:
        from tinycomp.runtime.requests import Requests  # imported here: asyncio takes long to import

        old, self._requests = self._requests, Requests(in_flight)
        self._in_flight = in_flight
        if old is not None:
            old.close(wait=False)

    @checked("feeds")
    def run_async(
        self, feeds: Mapping[str, Any], *, outputs: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> RunFuture:
        """Start a run, and return a future of the results of :meth:`run`.

        The future is a ``concurrent.futures.Future`` that may also be awaited. Up to :attr:`in_flight` runs are in
        progress at once; further calls wait. On the thread of a running event loop, the call never waits: it returns at
        once, and the run waits for its turn. ``cancel()``, or the end of a task that awaits the future, also ends a run
        that has begun, where a timeout would; its result is an error then. Ctrl-C is seen at once while a result is
        waited for; a call of :meth:`run` sees it once the region at hand has ended.

        Args:
            feeds: The inputs by name; they must not change before the run has ended.
            outputs: Arrays for results, as for :meth:`run`.
            timeout: Seconds that the run may take from its start.

        Example:
            >>> import tinycomp
            >>> from tinycomp.data import digits, digits_model
            >>> module, images = tinycomp.compile(digits_model()), digits()[0]
            >>> name = module.inputs[0].name
            >>> futures = [module.run_async({name: images[i : i + 2]}) for i in range(4)]
            >>> [next(iter(future.result().values())).shape for future in futures]
            [(2, 10), (2, 10), (2, 10), (2, 10)]
            >>> module.close()
        """
        with self._lock:
            if self._requests is None or self._requests.process != os.getpid():  # threads do not survive a fork
                from tinycomp.runtime.requests import Requests  # imported here: see in_flight

                self._requests = Requests(self.in_flight)
            requests = self._requests
        return requests.begin(lambda: self.run(feeds, outputs=outputs, timeout=timeout))

    def close(self) -> None:
        """Wait for the runs in progress, and close the devices that the module has opened.

        A module without references does so by itself. A module without devices may be used again.
        """
        requests, self._requests = self._requests, None
        if requests is not None:
            requests.close(wait=True)
        for devices in self._device_sets:
            devices.close()

    def __enter__(self) -> Module:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _made_report(self, sizes: Mapping[str, int]) -> Report:
        report, describe = self._parts.report(sizes), self._parts.diagram
        if describe is None:
            return report
        diagram = functools.cache(lambda: describe(self.graph, self._parts.plan, sizes))
        return dataclasses.replace(report, diagram=diagram)

    @checked("feeds", least={"runs": 1})
    def profile(self, feeds: Mapping[str, Any] | Sequence[Any] | Any, runs: int = 20) -> Profile:
        """Time every step and, inside native regions, every kernel call.

        Args:
            feeds: Inputs by name, in order, or the only one.
            runs: How often to run; the profile holds medians.

        Returns:
            The profile; from now on, :meth:`report` shows its times, and is for these sizes.

        Raises:
            FeedError: If the inputs do not fit.
            OptionError: If ``runs`` is not a number from 1 on.
        """
        from tinycomp.runtime.profile import profile_plan  # imported here: few modules are profiled

        args, named = as_arguments(feeds)
        arrays = self._check(args, named)
        profile = profile_plan(self._parts.plan, arrays, runs)
        sizes = bind_symbols(self._parts.inputs, arrays)
        report = self._made_report(sizes).with_seconds(profile.by_position())
        self._report = dataclasses.replace(report, profile=profile)
        return profile

    @checked()
    def save(self, path: str | PathLike[str]) -> None:
        """Write the module to a file for :func:`tinycomp.load`; an existing file is replaced atomically.

        Raises:
            WriteError: If there is no space or permission.
        """
        from tinycomp.runtime.files import write_file  # imported here: most programs write nothing

        write_file(Path(path), self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the bytes that :meth:`save` writes; :func:`tinycomp.load` takes them as well."""
        return self._parts.pack()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the bytes of a saved module."""
        return _unpickle, (self.to_bytes(),)

    def _run(
        self, args: Sequence[Any], named: Mapping[str, Any], timeout: float | None = None,
        buffers: Mapping[int, Any] = MappingProxyType({}),
    ) -> list[Any]:  # fmt: skip
        arrays, plan = self._check(args, named), self._parts.plan
        run: Callable[[Sequence[Any]], list[Any]] = plan.run
        if buffers:
            from tinycomp.runtime.device.binding import run_into  # imported here: few modules have devices

            run = functools.partial(run_into, plan, outputs=buffers)
        if timeout is None and self._parts.memory_limit is None:
            results = run(arrays)
        else:
            with limited(self._parts.memory_limit, timeout):
                results = run(arrays)
        check_results(self._parts.outputs, results)
        return results

    def _run_into(self, feeds: Mapping[str, Any], outputs: Mapping[str, Any], timeout: float | None) -> list[Any]:
        """Run with arrays or buffers for some results, and return all results."""
        if not self._parts.plan.on_devices:
            results = self._run((), feeds, timeout)
            self._targets(outputs)
            return copied_into(self._parts.outputs, results, outputs)
        from tinycomp.runtime.device.binding import buffers_in  # imported here: few modules have devices

        buffers = buffers_in(self._parts.outputs, self._targets(outputs))
        results = self._run((), feeds, timeout, buffers)
        arrays = {name: array for name, array in outputs.items() if self._names.index(name) not in buffers}
        return copied_into(self._parts.outputs, results, arrays)

    def _targets(self, outputs: Mapping[str, Any]) -> list[Any]:
        """Return the arrays for results in order of the outputs, None for those without one."""
        if not self._known_names.issuperset(outputs):
            unknown = next(str(name) for name in outputs if name not in self._known_names)
            raise FeedError(
                "not an output of the model", where=f'output "{unknown}"', expected=f"any of {', '.join(self._names)}",
                found=", ".join(map(str, outputs)), hint=did_you_mean(unknown, self._names),
            )  # fmt: skip
        return [*map(outputs.get, self._names)]

    def _check(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        specs = self._parts.inputs
        if named or len(args) != len(specs):
            args = order_feeds(specs, args, named, self._parts.defaults)
        if self._parts.plan.on_devices:
            from tinycomp.runtime.device.binding import (
                check_device_feed as check,
            )  # imported here: few modules have devices
        else:
            check = check_feed
        arrays = [check(spec, value) for spec, value in zip(specs, args, strict=True)]
        if self._compares_sizes:
            self._check_sizes(arrays)
        return arrays

    def _check_sizes(self, arrays: Sequence[Any]) -> None:
        """Refuse arrays whose sizes disagree or are out of bounds."""
        sizes = bind_symbols(self._parts.inputs, arrays)
        for symbol, (least, most) in self._parts.bounds.items():
            if not least <= sizes.get(symbol, least) <= (sizes.get(symbol, least) if most is None else most):
                where = next(
                    f'input "{spec.name}", dimension {spec.shape.index(symbol)}'
                    for spec in self._parts.inputs
                    if spec.shape is not None and symbol in spec.shape
                )
                raise FeedError(
                    "a size is not within its bounds", where=where, expected=f"{symbol} from {least} to {most}",
                    found=f"{symbol} = {sizes[symbol]}", hint="Compile with other bounds in shapes=.",
                )  # fmt: skip

    def _repr_html_(self) -> str:
        """Return the display of a notebook: inputs and outputs, and the report in its small form."""
        from tinycomp.runtime.picture.notebook import module_html  # imported here, because only notebooks need it

        return module_html(self.inputs, self.outputs, self.report()._repr_html_())

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        return f"<Module ({inputs}) -> ({outputs})>"


def with_parts(module: Module, **parts: Any) -> Module:
    """Return a module that is made of the same as another one, which has not run yet, but for some parts."""
    return type(module)(dataclasses.replace(module._parts, **parts))


def as_arguments(feeds: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return inputs that are given by name, in order, or as the only one, as arguments in order and by name."""
    if isinstance(feeds, Mapping):
        return (), feeds
    if isinstance(feeds, (np.ndarray, memoryview)) or hasattr(feeds, "__dlpack__"):  # also tensors of other libraries
        return (feeds,), {}
    if not isinstance(feeds, Iterable):
        raise FeedError("not inputs", expected="arrays by name, in order, or the only one", found=shown(feeds))
    return tuple(feeds), {}


def _in_order(names: Sequence[str], outputs: Any) -> Sequence[Any] | None:
    """Return arrays in the order of ``names``; they are given by name, in order, or as the only one."""
    if not isinstance(outputs, Mapping):
        return None if outputs is None else as_arguments(outputs)[0]
    for name in (*names, *outputs):
        if name not in outputs or name not in names:
            raise FeedError(
                "not the outputs of the model",
                where=f'output "{name}"',
                expected=", ".join(names),
                found=", ".join(map(str, outputs)),
                hint="Bind every output.",
            )
    return [outputs[name] for name in names]


def _unpickle(data: bytes) -> Module:
    """Rebuild a pickled module.

    The loader lives above this layer, so it is looked up by its public name. Unpickling runs code of the pickle anyway,
    so the saved module is trusted as well.
    """
    import importlib

    module: Module = importlib.import_module("tinycomp").load(data, trusted=True)
    return module


def _has_repeated_symbol(specs: Sequence[TensorSpec]) -> bool:
    """Tell whether a symbol occurs more than once, so that sizes may disagree."""
    symbols = [dim for spec in specs for dim in spec.shape or () if isinstance(dim, str)]
    return len(set(symbols)) < len(symbols)
