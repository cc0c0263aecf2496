"""Define the arguments that several commands share, and say what they mean."""

from __future__ import annotations

import math
import re
import typing
from argparse import Action, ArgumentParser, ArgumentTypeError, Namespace, _ArgumentGroup
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tinycomp.arguments import fits, hints_of
from tinycomp.cli.exits import UsageError
from tinycomp.driver.options import CompileOptions, options_by_name
from tinycomp.driver.targets import ALL
from tinycomp.frontend import Given
from tinycomp.target import lookup
from tinycomp.target.placement import Which
from tinycomp.target.policy import Policy, read_policy

Shape = tuple[Given, ...]


def add_model(parser: ArgumentParser, *, saved: bool = False, optional: bool = False) -> None:
    """Add the model argument; ``saved`` says that a ``.tcm`` file will do, ``optional`` that it may be left out."""
    kinds = ".onnx, .tir or .tcm file" if saved else ".onnx or .tir file"
    model = parser.add_argument(
        "model",
        nargs="?" if optional else None,
        help=f"{kinds}; digits and digits-int8 are the models that come with tinycomp",
    )
    complete_with(model, _models)


def complete_with(action: Action, complete: Callable[[str], Iterable[str]]) -> None:
    """Say how a shell completes the values of an argument: with what ``complete`` makes of their beginning."""
    action.completer = lambda prefix, **_: complete(prefix)  # type: ignore[attr-defined]  # what argcomplete looks for


def _models(prefix: str) -> list[str]:
    """Return the models and folders whose paths begin like this, and the models that come with tinycomp."""
    folder = Path(prefix).parent if prefix and not prefix.endswith("/") else Path(prefix or ".")
    head = prefix[: prefix.rfind("/") + 1]
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    paths = [f"{head}{path.name}{'/' if path.is_dir() else ''}" for path in found]
    kept = [path for path in paths if path.endswith(("/", ".onnx", ".tir", ".tcm")) and not path.startswith(f"{head}.")]
    return [name for name in (*kept, "digits", "digits-int8") if name.startswith(prefix)]


def add_options(parser: ArgumentParser | _ArgumentGroup, *names: str) -> None:
    """Add options of :func:`tinycomp.compile` by their names."""
    for name in names:
        about, hint, default = options_by_name()[name], hints_of(CompileOptions)[name], getattr(CompileOptions(), name)
        choices = [each for part in typing.get_args(hint) for each in typing.get_args(part) if isinstance(each, str)]
        taken: dict[str, Any] = {"choices": choices} if choices else {"action": f"store_{default is not True}".lower()}
        if about.many:
            taken = {"metavar": about.metavar, "action": "append", "default": []}
        elif about.metavar:
            taken = {"metavar": about.metavar, "type": positive if fits(1, hint) else None}
        action = parser.add_argument(*about.flags, dest=name, help=about.help, **taken)
        if name == "target":
            complete_with(action, lambda prefix: [n for n in ("host", *lookup.names()) if n.startswith(prefix)])


def add_compilation(parser: ArgumentParser, *own: str) -> None:
    """Add what decides how a model is compiled, and options of their ``own`` that commands ask for."""
    group = parser.add_argument_group("compiling", "for example: -t npu_sim -t c --place Softmax=host --threads 4")
    add_options(group, *(name for name, about in options_by_name().items() if about.flags and not about.own), *own)


def given_options(options: Namespace) -> dict[str, Any]:
    """Return the options of :func:`tinycomp.compile` as they were given, by name.

    Raises:
        TinycompError: If one cannot be read.
    """
    given = {name: getattr(options, name) for name in options_by_name() if hasattr(options, name)}
    return given | {name: read(options) for name, read in _READ.items()}


def settled() -> dict[str, Any]:
    """Return those options of :func:`add_compilation` that a saved module has settled already, as if not given."""
    shared = {name: about for name, about in options_by_name().items() if about.flags and not about.own}
    del shared["threads"]
    return {name: [] if about.many else getattr(CompileOptions(), name) for name, about in shared.items()}


def chosen(options: Namespace) -> list[str]:
    """Return those of the :func:`settled` options that were given."""
    return [options_by_name()[name].flags[-1] for name, usual in settled().items() if getattr(options, name) != usual]


def add_feeds(parser: ArgumentParser, *, default: str) -> None:
    """Add where the inputs come from; ``default`` says what happens without them."""
    group = parser.add_argument_group(
        "inputs", "for example: --input image=photo.npy, or --input all.npz, or --random 0"
    )
    group.add_argument(
        "--input", action="append", default=[], metavar="NAME=FILE.npy",
        help=f"one input, or all of them in one FILE.npz; {default}",
    )  # fmt: skip
    group.add_argument(
        "--random", type=natural, metavar="SEED",
        help="make up the inputs that are not given, the same for the same seed",
    )  # fmt: skip


def targets_of(options: Namespace) -> list[str]:
    """Return target names in priority order."""
    given: list[str] = options.target or ["c"]
    return given


def place_of(options: Namespace) -> dict[Which, str] | None:
    """Return the placement given with ``--place``, or None if there is none.

    Raises:
        UsageError: If an entry is not of the form ``nodes=target``.
    """
    place: dict[Which, str] = {}
    for text in options.place:
        which, target = assigned(text, "a place", "--place", "NODES=TARGET, such as encoder/*=npu")
        place.setdefault(which, target)
    return place or None


def assigned(text: str, what: str, where: str, expected: str) -> tuple[str, str]:
    """Return what stands before and behind the last ``=``.

    Raises:
        UsageError: If there is none, or nothing before it.
    """
    name, equals, value = text.rpartition("=")
    if not equals or not name:
        raise UsageError(f"cannot read {what}", where=where, expected=expected, found=text)
    return name, value


def policies_of(options: Namespace) -> dict[str, Policy] | None:
    """Return the policies given with ``--policy`` by target, ``"*"`` for all; None if there are none.

    Raises:
        OptionError: If one cannot be read.
    """
    texts: dict[str, list[str]] = {}
    for text in options.policy:
        head, colon, rest = text.partition(":")
        of_one = bool(colon) and "=" not in head
        texts.setdefault(head if of_one else ALL, []).append(rest if of_one else text)
    return {name: read_policy(",".join(parts), f"--policy, {name}") for name, parts in texts.items()} or None


def shapes_of(options: Namespace) -> dict[str, Shape] | None:
    """Return the shapes given with ``--shape``, or None if there are none.

    Raises:
        UsageError: If one is not of the form ``name=1,3,N``.
    """
    shapes: dict[str, Shape] = {}
    for text in options.shapes:
        name, dims = assigned(text, "a shape", "--shape", "INPUT=DIMS, such as image=1,3,224,224")
        shapes[name] = tuple(_dim(part.strip(), text) for part in dims.split(",")) if dims else ()
    return shapes or None


def _dim(text: str, whole: str) -> Given:
    bounds = re.fullmatch(r"(?:(\w+):)?(\d+)\.\.(\d+)", text)
    if bounds is not None:
        name, least, most = bounds[1], int(bounds[2]), int(bounds[3])
        return (least, most) if name is None else (name, least, most)
    if text.isdecimal():
        return int(text)
    if text == "?":
        return None
    if text.isidentifier():
        return text
    raise UsageError(
        "cannot read a dimension", where="--shape", expected="a size, a name, 1..512, name:1..512, or ? for unknown",
        found=f'"{text}" in {whole}',
    )  # fmt: skip


_READ: Mapping[str, Callable[[Namespace], Any]] = MappingProxyType(
    {"target": targets_of, "shapes": shapes_of, "place": place_of, "policy": policies_of}
)
"""Options whose texts are read all together, and by what."""


def natural(text: str) -> int:
    """Read a number from 0 on, for argparse."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"expected a whole number, 0 or above, found {text}")
    return int(text)


def finite(text: str) -> float:
    """Read a number that is not infinite, for argparse."""
    value = float(text)
    if not math.isfinite(value):
        raise ArgumentTypeError(f"expected a number, found {text}")
    return value


def amount(text: str) -> float:
    """Read a number from 0 on, for argparse."""
    value = finite(text)
    if value < 0:
        raise ArgumentTypeError(f"expected a number from 0 on, found {text}")
    return value


def positive(text: str) -> int:
    """Read a number above 0, for argparse."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise ArgumentTypeError(f"expected a number above 0, found {text}")
    return value
