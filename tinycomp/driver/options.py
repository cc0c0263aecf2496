"""The options of :func:`tinycomp.compile`: each stands here once, with all that is known of it.

A field has the type, the default and, in the docstring, the meaning of an option. What it is made with says whether it
decides what compiling makes, and so belongs to the key of a module in the cache, and how the command line takes it.
This file imports little, because a module that is found in the cache needs no more.
"""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

from tinycomp.arguments import fitting, refuse_unknown
from tinycomp.errors import OptionError, TinycompWarning
from tinycomp.memory.budget import check_positive
from tinycomp.records import dataclass, field, fields

if TYPE_CHECKING:
    from dataclasses import KW_ONLY

    from numpy.typing import NDArray

    from tinycomp.driver.devices import Devices, Faults
    from tinycomp.driver.models import Model
    from tinycomp.driver.targets import AnyTarget
    from tinycomp.frontend import Shapes
    from tinycomp.passes.base import Pass
    from tinycomp.runtime.module import Module
    from tinycomp.target import Policy
    from tinycomp.target.placement import Which

_P = ParamSpec("_P")


@dataclass(frozen=True)
class Option:
    """What is known of an option beside its type, its default and its meaning.

    Attributes:
        flags: Its names on the command line, if it has any; that of what is on by default turns it off.
        help: What the command line says of it.
        metavar: What a value is called there; empty for a switch, or where the values are known.
        many: Whether it may be given several times there.
        own: Whether only commands have it that ask for it, instead of all that compile.
        in_key: Whether it decides what is made, and stands in the key of a cached module by its value.
        uncached: Why a module from the cache cannot give what it asks for; empty if it can.
        typed: Whether its value must be of its type; else who uses it looks at it.
    """

    flags: tuple[str, ...] = ()
    help: str = ""
    metavar: str = ""
    many: bool = False
    own: bool = False
    in_key: bool = True
    uncached: str = ""
    typed: bool = True


def _option(default: Any, *flags: str, **about: Any) -> Any:
    return field(default=default, metadata={"about": Option(flags, **about)})


@dataclass(frozen=True)
class CompileOptions:
    """What is said of a compilation beside the model.

    Attributes:
        target: Name of a target, a Target, or several in order of priority; ``"host"`` for none.
        shapes: Shapes of inputs, in place of the declared ones, for example ``{"image": (1, 3, 224, 224)}``. A
            dimension is a size, a name, or None for unknown. It may have bounds, which every run must respect:
            ``(1, 512)``, or ``("seq", 1, 512)`` with a name.
        threads: Threads that a run may use; by default as many as the process's affinity and cgroup allow.
        strict: Raise if a node runs on the host, unless it only packs or unpacks sequences and optionals at the
            border of the model.
        passes: A pipeline instead of the default one: passes, or a text such as ``"simplify,fold-constants"``.
        dump: A folder to write the graph to after every pass.
        verify: Check structure and numbers after every pass, and every region against the numpy kernels; inputs by name
            to do so with, or True for random ones, in sizes that the conditions of the model's operators allow.
        memory_limit: Bytes that the values of a run may take together, not counting weights; by default the memory
            that the machine has available. A model that is known to need more is refused here; if only a run shows
            it, the run is refused before it allocates.
        policy: The conditions on regions of every target, or a dict of policies by target name. A policy in the dict
            replaces the target's own; the one under ``"*"`` holds for all targets. Ignored where ``passes`` are given.
        place: Where nodes run, as in ``{"encoder/*": "npu", "Softmax": "host"}``. A key is a source name, an operator,
            a glob for either, or a predicate on the node; a value is the name of a target or ``"host"``. The first key
            that fits decides.
        options: Options of the targets by target name, for example ``{"c": {"winograd": False}}``: a dict, or an
            instance of the class that declares them. ``tinycomp targets NAME`` lists them;
            :class:`tinycomp.targets.c.options.COptions` describes those of the target ``c``.
        specialize: Build regions with dynamic dimensions anew for each set of sizes, and keep the last 16, instead of
            building one program for all sizes. It pays off where a few sizes keep coming back.
        optimize: Simplify the graph before it is partitioned; without it, the targets are asked about the nodes of the
            model as they stand. Ignored where ``passes`` are given.
        precision: The number format of products. ``"bf16"`` and ``"f16"`` round weights of 1 MB and more, which halves
            their memory and nearly halves the time of products with few rows. With ``"bf16"``, the target ``c`` also
            rounds all factors of products and convolutions to bfloat16 where the processor multiplies these faster.
            Sums stay in float32. The report says what was rounded and, with ``verify``, how much the results for
            random inputs change. By default, only factors that the model itself has in bfloat16 are rounded.
        timeout: Seconds that compiling may take; no pass, folded node or region is begun after that.
        devices: How many devices of a target the module uses, or which: a number, a list of indices, or a list of open
            devices; with several such targets, a dict by target name. Requests are spread over them. One by default.
        faults: What to do when a device fails: a :class:`tinycomp.FaultPolicy`, or a dict of them by symbol of a
            region, source name, target, or a glob for these. The first key that fits decides.
        cache: A folder for compiled modules, or True for the one in the user's cache. The next process with the same
            model and options loads the module from there instead of compiling it, as its ``cache_file`` then shows.
    """

    target: AnyTarget | Sequence[AnyTarget] = _option(
        "c", "-t", "--target", metavar="NAME[:OPTION=VALUE,…]", many=True, in_key=False,
        help="target, with options as in c:winograd=never (tinycomp targets NAME lists them); several times in order"
        ' of priority; "host" for none (default: c)',
    )  # fmt: skip
    if TYPE_CHECKING:
        _: KW_ONLY
    shapes: Shapes | None = _option(
        None, "--shape", metavar="INPUT=DIMS", many=True,
        help="shape of an input: image=1,3,224,224; with bounds: ids=batch,1..512",
    )  # fmt: skip
    threads: int | None = _option(None, "--threads", metavar="N", help="threads of a run (default: all it may use)")
    strict: bool = _option(False, "--strict", own=True, help="fail if any node is left to the host")
    passes: str | Sequence[Pass] | None = _option(None)
    dump: str | os.PathLike[str] | None = _option(
        None, "--dump", metavar="DIR", own=True, in_key=False, help="write the graph there after every pass",
        uncached="the graph is written after every pass, so the passes have to run",
    )  # fmt: skip
    verify: bool | Mapping[str, NDArray[Any]] = _option(
        False, "--verify", own=True, in_key=False, help="check numbers after every pass and in every region",
        uncached="what is verified is compiling itself",
    )  # fmt: skip
    memory_limit: int | None = _option(
        None, "--memory-limit", metavar="BYTES", help="refuse models that need more memory"
    )
    policy: Policy | Mapping[str, Policy] | None = _option(
        None, "--policy", metavar="[TARGET:]FIELD=VALUE,…", many=True,
        help="what regions must fulfil, of one target or of all: npu:min_nodes=2,exclude=Softmax+head/*",
    )  # fmt: skip
    place: Mapping[Which, str] | None = _option(
        None, "--place", metavar="NODES=TARGET", many=True, typed=False,
        help="where nodes run, by name, operator or a glob for either: 'encoder/*=npu', Softmax=host; the first fits",
    )  # fmt: skip
    options: Mapping[str, Any] | None = _option(None, in_key=False, typed=False)  # with its targets, they are in keys
    specialize: bool = _option(False)
    optimize: bool = _option(
        True, "--no-optimize", help="partition the model as it stands, without simplifying it first"
    )
    precision: Literal["f32", "bf16", "f16"] | None = _option(None, "--precision", help="what products compute with")
    timeout: float | None = _option(None, in_key=False)
    devices: Devices = _option(None)
    faults: Faults = _option(None)
    cache: bool | str | os.PathLike[str] | None = _option(
        None, "--cache", own=True, in_key=False,
        help="keep the compiled model in the cache folder (tinycomp cache), and load it from there the next time",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_positive("memory_limit", self.memory_limit, "bytes")
        check_positive("timeout", self.timeout, "seconds")
        if self.passes is None:
            return
        if self.precision not in (None, "f32"):
            raise OptionError(
                "weights are rounded by the default passes only", where="precision", found="passes",
                hint=f"Put round-weights{{precision={self.precision}}} among the passes.",
            )  # fmt: skip
        if isinstance(self.place, Mapping) and self.place:
            raise OptionError(
                "nodes are placed by the default passes only", where="place", found="passes",
                hint="Leave out one of the two.",
            )  # fmt: skip

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> CompileOptions:
        """Return options that a caller has given by name.

        Raises:
            OptionError: If there is none of this name, or one does not take its value.
        """
        known = options_by_name()
        refuse_unknown("compile", given, ("model", *known), OptionError)
        return cls(**{**given, **fitting(cls, {name: value for name, value in given.items() if known[name].typed})})

    def in_key(self) -> dict[str, Any]:
        """Return the options that decide what is made, by name, but those that name and describe targets."""
        return {name: getattr(self, name) for name, about in options_by_name().items() if about.in_key}


@functools.cache
def options_by_name() -> Mapping[str, Option]:
    """Return what is known of each option, by its name."""
    return {each.name: each.metadata["about"] for each in fields(CompileOptions)}


if TYPE_CHECKING:  # for type checkers, the model and the options are the arguments of one call

    @dataclass(frozen=True)
    class _Model:
        model: Model

    @dataclass(frozen=True)
    class Call(CompileOptions, _Model):
        """The arguments of :func:`tinycomp.compile`."""
else:
    Call = CompileOptions


def taking_options(
    _: Callable[_P, object],
) -> Callable[[Callable[[Any, CompileOptions], Module]], Callable[_P, Module]]:
    """Make a function take the options as keywords, which its signature and its docstring then name.

    Args:
        _: What type checkers shall take its arguments for, which is :class:`Call`.
    """

    def decorate(function: Callable[[Any, CompileOptions], Module]) -> Callable[_P, Module]:
        @functools.wraps(function)
        def call(model: Any, target: Any = "c", **given: Any) -> Module:
            return function(model, CompileOptions.read(_without_deprecated({"target": target, **given})))

        kinds = inspect.Parameter
        first, *others = inspect.signature(CompileOptions).parameters.values()
        model = kinds("model", kinds.POSITIONAL_OR_KEYWORD, annotation="Model")
        keywords = [each.replace(kind=kinds.KEYWORD_ONLY) for each in others]
        made = inspect.Signature([model, first, *keywords], return_annotation="Module")
        call.__signature__ = made  # type: ignore[attr-defined]
        _, _, meanings = (CompileOptions.__doc__ or "").partition("Attributes:\n")
        call.__doc__ = (function.__doc__ or "").replace(_OPTIONS, meanings.strip())
        return call  # type: ignore[return-value]  # whose arguments Python has checked

    return decorate


_OPTIONS = "options: Those of :class:`CompileOptions`."
"""What a docstring has where the options shall be described."""
_DEPRECATED = ("winograd", "requantize", "tuning")
"""Options of the target ``c`` that :func:`tinycomp.compile` still takes as keywords, for one release."""


def _without_deprecated(keywords: dict[str, Any]) -> dict[str, Any]:
    """Return keywords with the deprecated ones among the options of the target ``c``."""
    moved = {name: keywords.pop(name) for name in _DEPRECATED if name in keywords}
    if not moved:
        return keywords
    target, options = keywords["target"], keywords.get("options")
    old = ", ".join(f"{name}={value!r}" for name, value in moved.items())
    new = ", ".join(f'"{name}": {value!r}' for name, value in moved.items())
    warnings.warn(
        f'compile({old}) is deprecated: these are options of the target c; write options={{"c": {{{new}}}}}',
        TinycompWarning,
        stacklevel=3,
    )
    targets = target if isinstance(target, (list, tuple)) else (target,)
    names = [getattr(each, "name", str(each).partition(":")[0]) for each in targets]
    if "c" not in names or not isinstance(options or {}, Mapping):
        return {**keywords, "options": options}
    given = (options or {}).get("c", {})
    own = {**moved, **given} if isinstance(given, Mapping) else given
    return {**keywords, "options": {**(options or {}), "c": own}}
