"""Arguments that several commands share, and what they mean."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tinycomp.cli.exits import UsageError
from tinycomp.target.options import Winograd

Shape = tuple[int | str | None, ...]
WINOGRAD: Mapping[str, Winograd] = MappingProxyType({"never": False, "auto": "auto", "always": True})
"""What the words of ``--winograd`` stand for."""


def add_model(parser: ArgumentParser, *, saved: bool = False, optional: bool = False) -> None:
    """Add the model argument; ``saved`` says that a ``.tcm`` file will do, ``optional`` that it may be left out."""
    kinds = ".onnx, .tir or .tcm file" if saved else ".onnx or .tir file"
    parser.add_argument(
        "model",
        nargs="?" if optional else None,
        help=f"{kinds}; digits and digits-int8 are the models that come with tinycomp",
    )


def add_shape(parser: ArgumentParser) -> None:
    """Add the shapes of inputs."""
    parser.add_argument(
        "--shape", action="append", default=[], metavar="INPUT=DIMS", help="shape of an input: image=1,3,224,224"
    )


def add_compilation(parser: ArgumentParser) -> None:
    """Add what decides how a model is compiled."""
    parser.add_argument(
        "-t", "--target", action="append", metavar="NAME",
        help='target, several times in order of priority; "host" for none (default: c)',
    )  # fmt: skip
    add_shape(parser)
    parser.add_argument("--threads", type=positive, metavar="N", help="threads of a run (default: all it may use)")
    parser.add_argument(
        "--winograd", choices=tuple(WINOGRAD), metavar="WHEN",
        help="compute 3x3 convolutions by Winograd's algorithm: never, always, or where it pays (default: auto)",
    )  # fmt: skip
    parser.add_argument(
        "--requantize", choices=("float", "fixed_point"),
        help="round the sums of quantised layers by a float scale as ONNX does, or as TFLite (default: float)",
    )  # fmt: skip
    parser.add_argument("--memory-limit", type=positive, metavar="BYTES", help="refuse models that need more memory")
    parser.add_argument("--tuning", metavar="FILE", help="choose kernels by what tinycomp tune has measured")


def choices_of(options: Namespace) -> dict[str, Any]:
    """Return the options of :func:`tinycomp.compile` that choose how to compute, and at what cost."""
    return {
        "winograd": WINOGRAD[options.winograd or "auto"],
        "requantize": options.requantize or "float",
        "memory_limit": options.memory_limit,
    }


def chosen(options: Namespace) -> list[str]:
    """Return those options of :func:`add_compilation` that were given and that a saved module has settled already."""
    names = ("--target", "--shape", "--winograd", "--requantize", "--memory-limit", "--tuning")
    return [name for name in names if getattr(options, name[2:].replace("-", "_"))]


def add_feeds(parser: ArgumentParser, *, default: str) -> None:
    """Add where the inputs come from; ``default`` says what happens without them."""
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=FILE.npy",
        help=f"one input, or all of them in one FILE.npz; {default}",
    )  # fmt: skip
    parser.add_argument(
        "--random", type=natural, metavar="SEED",
        help="make up the inputs that are not given, the same for the same seed",
    )  # fmt: skip


def targets_of(options: Namespace) -> list[str]:
    """Return target names in priority order."""
    given: list[str] = options.target or ["c"]
    return given


def shapes_of(options: Namespace) -> dict[str, Shape] | None:
    """Return the shapes given with ``--shape``, or None if there are none.

    Raises:
        UsageError: If one is not of the form ``name=1,3,N``.
    """
    shapes: dict[str, Shape] = {}
    for text in options.shape:
        name, equals, dims = text.rpartition("=")
        if not equals or not name:
            raise UsageError(
                "cannot read a shape", where="--shape", expected="INPUT=DIMS, such as image=1,3,224,224", found=text
            )
        shapes[name] = tuple(_dim(part.strip(), text) for part in dims.split(",")) if dims else ()
    return shapes or None


def _dim(text: str, whole: str) -> int | str | None:
    if text.isdecimal():
        return int(text)
    if text == "?":
        return None
    if text.isidentifier():
        return text
    raise UsageError(
        "cannot read a dimension", where="--shape", expected="a size, a name, or ? for unknown",
        found=f'"{text}" in {whole}',
    )  # fmt: skip


def natural(text: str) -> int:
    """Read a number from 0 on, for argparse."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"expected a whole number, 0 or above, found {text}")
    return int(text)


def positive(text: str) -> int:
    """Read a number above 0, for argparse."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise ArgumentTypeError(f"expected a number above 0, found {text}")
    return value
