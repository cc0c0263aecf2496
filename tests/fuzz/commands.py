"""Command lines with a wrong value for one or two options, made from the parser; none of them is a fault of our own."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import random
import tempfile
from argparse import Action
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import onnx
import onnx.parser

from tests.fuzz.harness import Harness, WrongError, generators
from tinycomp.cli import exits
from tinycomp.cli.commands import SUMMARIES
from tinycomp.cli.entry import build_parser, main
from tinycomp.errors import OptionError

BASES: dict[str, list[str]] = {
    "bench": ["digits", "--runs", "1"],
    "cache": ["list"],
    "compile": ["digits", "-o", "out.tcm"],
    "export-c": ["digits", "--shape", "image=1,1,8,8", "-o", "project"],
    "generate": ["digits", "--tokens", "1"],
    "opt": ["digits", "--passes", "simplify"],
    "quantize": ["digits", "--data", "digits", "-o", "out.onnx"],
    "report": ["digits"],
    "run": ["digits", "--random", "0"],
    "score": ["digits", "-o", "out"],
    "serve": ["digits", "--port", "0"],
    "targets": [],
    "tune": ["small.onnx"],
    "verify": ["digits", "--shape", "image=1,1,8,8"],
}
"""A command line that is quick; ``doctor`` takes no value, ``demo`` runs for half a minute."""
SMALL = '<ir_version: 9, opset_import: ["": 17]> g (float[2, 2] image) => (y) { y = MatMul(image, image) }'
TEXTS = (
    "", " ", "0", "-1", "1", "3.5", "nan", "inf", "-inf", "1e308", "1e-320", "9" * 30, "9" * 5000, "-" + "9" * 400,
    "0x10", "1_000", "\u0661\u0662", "\u00b2", "true", "None", "a", "a b", "a" * 3000, "\u00e9\u4e2d", "\udc80",
    "a\x1b[31mb", "a\nb", "a\u202eb", "=", "a=", "=a", "a=b=c", ":", "a:b", ",", ",,", "a,b", "*", "?", "[", "%s",
    "{0}", "'",
    '"', "\\", "$HOME", "~", "c", "host", "c:winograd=never", "c:winograd=x", "c:memory=-1", "c:memory=" + "9" * 30,
    "npu_sim", "tosa", "image=", "image=1,1,8,8", "image=-1,1,8,8", "image=1,1,8", "image=0,1,8,8", "image=1..0,1,8,8",
    f"image={'9' * 25},1,8,8", "image=n:1..4,1,8,8", "image=nan", "nothing=1", "Relu=host", "Conv=nowhere",
    "min_nodes=2", "min_nodes=-1", "min_nodes=nan", "c:min_macs=1e400", "bandwidth=0", "simplify", "simplify{x=1}",
    "simplify,", "image=missing.npy", "missing.npz", "1,2", "1,-2", "1,a", "9" * 25 + ",1",
)  # fmt: skip
LASTING = {"--seconds", "--runs", "--max-new-tokens", "--random"}
"""What goes on for as long as it is told to."""


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tinycomp-fuzz-"))
    os.environ["XDG_CACHE_HOME"] = str(folder)
    onnx.save(onnx.parser.parse_model(SMALL), folder / "small.onnx")
    return folder


@contextlib.contextmanager
def _serving_nobody() -> Iterator[None]:
    """Let servers listen, and end then."""
    from tinycomp.serving import server  # imported here: it needs packages of its own

    listen = server.listen

    def end(host: str, port: int) -> None:
        listen(host, port).close()
        raise OptionError("enough")

    with mock.patch.object(server, "listen", end):
        yield


@functools.cache
def _actions(command: str) -> list[Action]:
    """Return the arguments of a command that take a value."""
    chosen = getattr(build_parser([command]), "chosen", None)
    assert chosen is not None, command
    return [action for action in chosen._actions if action.nargs != 0]


@functools.cache
def cases() -> list[tuple[str, int, str]]:
    """Return all that may be wrong, in an order of chance: a command, one of its arguments, a value."""
    every = [
        (command, at, text)
        for command in SUMMARIES
        if command in BASES
        for at, action in enumerate(_actions(command))
        for text in TEXTS
        if not (LASTING & {*action.option_strings} and len(text) > 4)
    ]
    random.Random("commands").shuffle(every)
    return every


def case(seed: int) -> list[str]:
    """Return the command line of a seed: all that may be wrong in turn, then two at a time."""
    every = cases()
    rng, _ = generators("commands", seed)
    wrong = [every[seed]] if seed < len(every) else [rng.choice(every)]
    if seed >= len(every):
        wrong.append(rng.choice([each for each in every if each[0] == wrong[0][0]]))
    command = wrong[0][0]
    line = [*BASES[command]]
    for _, at, text in wrong:
        action = _actions(command)[at]
        if action.option_strings:
            line.append(f"{action.option_strings[-1]}={text}" if action.option_strings[-1].startswith("--") else text)
        else:
            line = [text, *line[1:]]
    return [command, *line]


def check(seed: int) -> Counter[str]:
    """Run the command line of a seed."""
    line, before, out, err = case(seed), Path.cwd(), io.StringIO(), io.StringIO()
    os.chdir(_folder())
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(out))
            stack.enter_context(contextlib.redirect_stderr(err))
            if line[0] == "serve":
                stack.enter_context(_serving_nobody())
            code = main(line)
    finally:
        os.chdir(before)
    if code not in (exits.OK, exits.FAILED, exits.USAGE) or "Traceback" in err.getvalue():
        raise WrongError(f"{line} ends with {code}: {err.getvalue()[-1000:]}")
    return Counter({f"exit {code}": 1})


def save(seed: int, folder: Path, stem: str) -> None:
    """Write the command line."""
    (folder / f"{stem}.line.txt").write_text(f"{case(seed)}\n", encoding="utf-8")


HARNESS = Harness("commands", check, save, seconds=30.0)
