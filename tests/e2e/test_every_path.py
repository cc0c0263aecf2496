"""Every option of the command line and of the API that takes a path, with everything that may be there instead.

What is wrong gets an error of this package that names the path and says what is expected, or what was found, or what to
do: nothing crashes, nothing waits, nothing is taken for what it is not. A new option without a row here fails a test.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import shutil
import signal
import socket
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tinycomp
from tests.cases.case import make_model
from tests.driver.test_blobs import Device
from tests.driver.test_blobs import model as scaler
from tests.e2e.test_files_underfoot import without
from tests.generation.decoders import decoder as make_decoder
from tinycomp import errors
from tinycomp.cli import commands
from tinycomp.cli.entry import build_parser, main
from tinycomp.cli.exits import FAILED, OK, USAGE
from tinycomp.driver.dump import write_graph
from tinycomp.driver.options import CompileOptions
from tinycomp.errors import TinycompError
from tinycomp.frontend.loading import load_model
from tinycomp.frontend.onnx_import import import_model
from tinycomp.generation import perplexity
from tinycomp.generation.decoder import Decoder, read_config
from tinycomp.quantization.accuracy import compare_layers
from tinycomp.quantization.noise import noise
from tinycomp.runtime.archive import read_archive
from tinycomp.target_api import partitioned
from tinycomp.targets.c.tuning.log import TuningLog, applicable

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes and devices among the files")
PATIENCE = 20
"""Seconds until a case counts as one that waits."""


@dataclass(frozen=True)
class Way:
    """One place where a path is given.

    Attributes:
        option: The command and its option, or the function and its parameter.
        kind: The name of a file that is right there, or ``folder/`` for a folder.
        use: What is called with the path; or the arguments of a command, where ``@`` stands for it, and
            ``%`` for its folder.
        may: What may be there instead, without an error.
        writes: Whether it is written.
    """

    option: str
    kind: str
    use: Callable[[Path], Any] | str
    may: Sequence[str] = ()
    writes: bool = False

    def __str__(self) -> str:
        return f"{self.option}, {self.kind}{' written' if self.writes else ''}"


WRITTEN = ("/dev/zero", "a link to itself")
"""What any file may be written to, or instead of."""
LOG, MADE, ANYTHING = ("empty", "cut"), ("nothing",), ("nothing", "empty", "cut", "noise", "grows")
SIZES = {"x": (1, 4)}
COMMANDS = {
    "compile": "", "export-c": "-o out.c --shape x=1,4", "quantize": "-o out.onnx --weights int4",
    "tune": "--log out.jsonl --shape x=1,4", "run": "--random 0", "score": "in.parquet -o scored", "serve": "--port 0",
    "generate": "--tokens 1 --max-new-tokens 1", "bench": "--runs 1 --random 0", "report": "",
    "verify": "--against numpy", "opt": "-o out.tir",
}  # fmt: skip
"""The commands that take a model, and what else they need."""


def models() -> Iterator[Way]:
    for command, more in COMMANDS.items():
        stem, option = "decoder" if command == "generate" else "x", "models" if command == "serve" else "model"
        for suffix in (".onnx", *((".tir", ".tcm") if command in ("run", "report") else ())):
            yield Way(f"{command} {option}", stem + suffix, f"{command} @ {more}")
    yield Way("opt model", "x.tir", "opt @ -o out.tir")
    yield Way("report --against", "x.tcm", "report x.onnx --against @")
    yield Way("verify --layers", "x.onnx", "verify q.onnx --layers @ --data x.npy")


def other_files() -> Iterator[Way]:
    for option, command in (
        ("run --input", "run x.onnx"), ("bench --input", "bench x.onnx --runs 1"),
        ("report --input", "report x.onnx --profile"), ("verify --input", "verify x.onnx --against numpy"),
        ("quantize --calibration", "quantize x.onnx -o out.onnx"), ("verify --data", "verify q.onnx --layers x.onnx"),
    ):  # fmt: skip
        yield Way(option, "x.npy", f"{command} {option.split()[1]} @")
    yield Way("run --input", "x.npz", "run x.onnx --input @")
    yield Way("-t c:tuning=", "log.jsonl", "compile x.onnx -t c:tuning=@", LOG)
    yield Way("tune --log", "log.jsonl", "tune x.onnx --shape x=1,4 --log @", ("nothing", *LOG))
    yield Way("score files", "in.parquet", "score x.onnx @ -o scored")
    yield Way("generate model", "model.onnx", "generate % --tokens 1 --max-new-tokens 1")
    yield Way("generate model", "genai_config.json", "generate % --tokens 1 --max-new-tokens 1", ("nothing",))
    yield Way("generate model", "tokenizer.json", "generate % --tokens 1 --max-new-tokens 1", ("nothing",))


def written() -> Iterator[Way]:
    for option, kind, command in (
        ("compile --output", "x.tcm", "compile x.onnx -o @"),
        ("compile --dump", "folder/", "compile x.onnx --dump @"),
        ("export-c --output", "folder/", "export-c x.onnx --shape x=1,4 -o @"),
        ("quantize --output", "q.onnx", "quantize x.onnx --weights int4 -o @"),
        ("run --output", "x.npz", "run x.onnx --random 0 -o @"),
        ("score --output", "folder/", "score x.onnx in.parquet -o @"),
        ("bench --trace", "x.json", "bench x.onnx --runs 1 --random 0 --profile --trace @"),
        ("report --html", "x.html", "report x.onnx --html @"),
        ("verify --html", "x.html", "verify q.onnx --layers x.onnx --data x.npy --html @"),
        ("report --model-explorer", "folder/", "report x.onnx --model-explorer @"),
        ("opt --output", "x.onnx", "opt x.onnx -o @"),
    ):
        yield Way(option, kind, command, MADE if kind == "folder/" else ANYTHING, writes=True)
    yield Way("tune --log", "log.jsonl", "tune x.onnx --shape x=1,4 --log @", ("nothing", *LOG), writes=True)


def functions() -> Iterator[Way]:
    module, decoder = tinycomp.load("x.tcm"), tinycomp.load("decoder.tcm")
    tuned = partial(tinycomp.tune, "x.onnx", shapes=SIZES)
    blobs, x = tinycomp.compile(scaler(2.0), [Device().target]), np.load("x.npy")
    for option, use in {
        "compile(model)": tinycomp.compile, "load_graph(model)": tinycomp.from_onnx, "load_model(model)": load_model,
        "import_model(model)": import_model,
        "partitioned(model)": partial(partitioned, targets=[tinycomp.Target("none")]),
        "quantize(model)": partial(tinycomp.quantize, weights="int4"), "noise(model)": partial(noise, calibration=[x]),
        "tune(model)": partial(tinycomp.tune, log=TuningLog(), shapes=SIZES),
        "compare_layers(model)": lambda path: compare_layers(path, "q.onnx", [x]),
        "compare_layers(quantized)": lambda path: compare_layers("x.onnx", path, [x]),
    }.items():  # fmt: skip
        yield Way(option, "q.onnx" if "quantized" in option else "x.onnx", use)
    for option, use in (("load(source)", tinycomp.load), ("read_archive(source)", read_archive)):
        yield Way(option, "x.tcm", use)
    for option, use in {
        "generate(config)": lambda path: tinycomp.generate(decoder, [1], config=path),
        "read_config(config)": read_config,
        "Decoder.__init__(config)": lambda path: Decoder(decoder, capacity=3, config=path),
        "perplexity(config)": lambda path: perplexity(decoder, [1, 2], config=path),
    }.items():  # fmt: skip
        yield Way(option, "genai_config.json", use)
    yield Way("TuningLog.read(path)", "log.jsonl", TuningLog.read, LOG)
    yield Way("applicable(tuning)", "log.jsonl", lambda path: applicable(path, "avx2", 1), LOG)
    yield Way("tune(log)", "log.jsonl", tuned, ("nothing", *LOG))
    yield Way("tune(log)", "log.jsonl", tuned, ("nothing", *LOG), writes=True)
    if find_spec("pyarrow"):
        yield Way("score(model)", "x.onnx", lambda path: tinycomp.score(path, "in.parquet", f"{path}.out"))
        yield Way("score(files)", "in.parquet", lambda path: tinycomp.score("x.onnx", path, f"{path}.out"))
        yield Way("score(output)", "folder/", lambda path: tinycomp.score("x.onnx", "in.parquet", path), MADE, True)
    for option, kind, use in (
        ("Module.save(path)", "x.tcm", module.save),
        ("Profile.save_trace(path)", "x.json", module.profile(x).save_trace),
        ("Report.save_html(path)", "x.html", module.report().save_html),
        ("Report.save_model_explorer(folder)", "folder/", module.report().save_model_explorer),
        ("Project.write(folder)", "folder/", tinycomp.to_c(tinycomp.compile("x.onnx", shapes=SIZES)).write),
        ("compile(dump)", "folder/", lambda path: tinycomp.compile("x.onnx", dump=path)),
        ("export_ep_context(path)", "x.onnx", partial(tinycomp.to_ep_context, blobs)),
    ):  # fmt: skip
        yield Way(option, kind, use, MADE if kind == "folder/" else ANYTHING, writes=True)


INSIDE = {
    "Original.of(model)", "Original.again(model)", "compile(cache)", "map_path(path)",
    "opened(path)", "state_of(path)", "prepare(model)", "Quantizer.calibrated(model)", "quantize_weights(model)",
    "violations(model)", "compile_uncached(model)", "ModelSource.of(model)",
    "folder_named(path)",
}  # fmt: skip
"""What the rows reach; for caches, ``tests/driver/test_module_cache.py`` does."""
NO_PATHS = {
    "save", "target", "shapes", "place", "policy", "columns", "keep", "ray", "host", "name", "prompt", "keep_float",
    "why", "against_target", "passes", "print_after", "names",
}  # fmt: skip
"""Options that take a text of another kind; ``verify --save`` writes only where results differ."""


def test_every_option_that_takes_a_path_has_a_row() -> None:
    rows = {way.option for way in (*models(), *other_files(), *written())}
    missing = []
    for command in commands.SUMMARIES:
        for action in build_parser([command]).chosen._actions:
            is_text = action.type in (None, Path) and action.nargs != 0 and not action.choices
            name = max(action.option_strings, key=len, default=action.dest)
            if is_text and action.dest not in NO_PATHS and f"{command} {name}" not in rows:
                missing.append(f"{command} {name}")
    assert not missing


def promised() -> str:
    """Return what SECURITY.md says that has been tried."""
    read = sorted({f"`{way.option}`" for way in (*models(), *other_files())})
    write = sorted({f"`{way.option}`" for way in written()})
    faults = ", ".join(FAULTS)
    return f"""
  | | |
  |---|---|
  | in place of the file | {faults} |
  | read | {", ".join(read)} |
  | written | {", ".join(write)} |
  | of Python | every parameter whose type has paths in it |

"""


def test_the_list_of_what_is_promised() -> None:
    _, _, rest = (ROOT / "SECURITY.md").read_text("utf-8").partition("<!-- paths: begin -->\n")
    assert rest.partition("<!-- paths: end -->")[0] == promised()


def test_every_promise_stands_beside_its_test() -> None:
    text = (ROOT / "SECURITY.md").read_text("utf-8").partition("## How it is tested")[0]
    for promise in re.findall(r"^- (.*?)(?=^- |^#|^$|^\*\*)", text, re.MULTILINE | re.DOTALL):
        tests = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", promise)
        assert tests, promise
        for file, test in tests:
            assert not test or f"\ndef {test}(" in (ROOT / file).read_text("utf-8"), (promise, test)
            assert (ROOT / file).exists(), (promise, file)


def test_every_parameter_that_takes_a_path_has_a_row(place: Path) -> None:
    texts = [path.read_text("utf-8") for path in (ROOT / "tinycomp").rglob("*.py") if path.parent.name != "memory"]
    marks = {"PathLike", *re.findall(r"^(\w+)(?:: TypeAlias)? = .*PathLike", "\n".join(texts), re.MULTILINE)}
    trees = [ast.parse(text) for text in texts if marks & set(re.findall(r"\w+", text))]
    found = {
        f"{prefix}{node.name}({argument.arg})"
        for tree in trees
        for prefix, body in (
            ("", tree.body),
            *((f"{c.name}.", c.body) for c in tree.body if isinstance(c, ast.ClassDef)),
        )
        for node in body
        if isinstance(node, ast.FunctionDef) and (node.name == "__init__" or not node.name.startswith("_"))
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if argument.annotation is not None and marks & set(re.findall(r"\w+", ast.unparse(argument.annotation)))
    }
    kinds = {each.name: set(re.findall(r"\w+", str(each.type))) for each in fields(CompileOptions)}
    found |= {f"compile({name})" for name, words in kinds.items() if marks & words}
    if not find_spec("pyarrow"):
        found -= {"score(model)", "score(files)", "score(output)"}
    assert found == {way.option for way in functions()} | INSIDE


# What may be there instead --------------------------------------------------------------------------------------------


def linked(target: str) -> Callable[[Path, bytes], object]:
    return lambda path, good: path.symlink_to(target)


def a_socket(path: Path, good: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


def below_a_file(path: Path, good: bytes) -> None:
    shutil.rmtree(path.parent)
    path.parent.write_bytes(good)


FAULTS: dict[str, Callable[[Path, bytes], object]] = {
    "nothing": lambda path, good: None,
    "a file in place of its folder": below_a_file,
    "a folder": lambda path, good: (path / "inside").mkdir(parents=True),
    "a pipe": lambda path, good: os.mkfifo(path),
    "a socket": a_socket,
    "/dev/zero": linked("/dev/zero"),
    "/dev/full": linked("/dev/full"),
    "a link to itself": lambda path, good: path.symlink_to(path.name),
    "empty": lambda path, good: path.write_bytes(b""),
    "cut": lambda path, good: path.write_bytes(good[: len(good) // 2]),
    "noise": lambda path, good: path.write_bytes(np.random.default_rng(0).bytes(500)),
    "deep": lambda path, good: path.write_bytes(b"[" * 200_000),
    "grows": lambda path, good: path.write_bytes(good),
    "no permission": lambda path, good: path.write_bytes(good),
}
FOLDERS = ("a file in place of its folder", "a pipe", "a socket", "/dev/zero", "a link to itself", "empty")
"""What is tried in the place of a folder to write to."""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder with everything that the rows name, which the tests run in; other users may look into it."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        Path(name).chmod(0o755)
        make_files()
        yield Path(name)


def make_files() -> None:
    weights = np.random.default_rng(0).standard_normal((4, 32), np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"], "first"), helper.make_node("Tanh", ["t"], ["u"], "tanh"),
        helper.make_node("MatMul", ["u", "v"], ["y"], "second"),
    ]  # fmt: skip
    x, constants = np.ones((2, 4), np.float32), {"w": weights, "v": weights.T.copy()}
    onnx.save(make_model(nodes, {"x": x}, constants, ["y"], symbolic={"x": ["n", 4]}), "x.onnx")
    onnx.save(make_decoder("shared", capacity=8), "decoder.onnx")
    for name in ("x", "decoder"):
        tinycomp.compile(f"{name}.onnx").save(f"{name}.tcm")
        write_graph(Path(f"{name}.tir"), tinycomp.from_onnx(f"{name}.onnx"))
    np.save("x.npy", x)
    np.savez("x.npz", x=x)
    onnx.save(tinycomp.quantize("x.onnx", [x]), "q.onnx")
    tinycomp.tune("x.onnx", "log.jsonl", shapes=SIZES)
    shutil.copy("decoder.onnx", "model.onnx")
    Path("folder").mkdir()
    for name in ("x.html", "x.json"):
        Path(name).write_text("{}")
    Path("genai_config.json").write_text(json.dumps({"model": {"decoder": {"filename": "model.onnx"}}}))
    if find_spec("tokenizers"):
        import tokenizers

        tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a")).save("tokenizer.json")
    if find_spec("pyarrow"):
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"x": list(x)}), "in.parquet")


@contextlib.contextmanager
def growing(path: Path) -> Iterator[None]:
    """Let a file become longer all the time."""
    done = threading.Event()

    def grow() -> None:
        with path.open("ab") as file:
            while not done.wait(0.001):
                file.write(b"more" * 256)
                file.flush()

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Waited(BaseException):
    """A case has taken too long."""


def called(way: Way, path: Path) -> BaseException | dict[str, str] | None:
    """Return the error, or the description of it that a command prints; None where there is none."""
    if not isinstance(way.use, str):
        try:
            way.use(path)
        except Exception as error:
            return error
        return None
    words = [word.replace("@", str(path)).replace("%", str(path.parent)) for word in way.use.split()]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        code = main([*words, "--json"])
    if code in (OK, FAILED):
        return None
    shown: dict[str, str] = json.loads(out.getvalue())["error"]
    return shown if code == USAGE else {**shown, "type": "a fault of our own"}


def finding(way: Way, fault: str, path: Path) -> str:
    """Return what is wrong with how a case ends; nothing if it is an error that tells enough, or may be none."""
    try:
        signal.alarm(PATIENCE)
        error = called(way, path)
    except Waited:
        return "waits"
    finally:
        signal.alarm(0)
    if error is None:
        return "" if fault in (*way.may, "grows", *(WRITTEN if way.writes and way.may != MADE else ())) else "silent"
    if fault in way.may and fault != "grows" and not (fault == "nothing" and way.writes):
        return f"refused: {error}"
    parts = {name: getattr(error, name, "") for name in PARTS} if isinstance(error, BaseException) else error
    if not isinstance(error, TinycompError) and parts.get("type") not in OURS:
        return f"crashes: {error!r}"
    told = " ".join(parts.get(name, "") for name in PARTS)
    if path.name not in told or not (parts["expected"] or parts["found"] or parts["hint"]):
        return f"unclear: {told}"
    return ""


OURS = {"UsageError"} | {name for name, kind in vars(errors).items() if isinstance(kind, type)}
PARTS = ("message", "where", "expected", "found", "hint")


def tried(way: Way, place: Path) -> tuple[int, list[str]]:
    """Return how many cases there are in a row, and what is wrong with them."""
    good = b"" if way.kind.endswith("/") else (place / way.kind).read_bytes()
    faults = [*FOLDERS] if way.kind.endswith("/") else [*FAULTS]
    if way.writes and not way.kind.endswith("/"):
        faults.remove("deep")
    if way.option.startswith("serve"):
        faults.remove("grows")  # it would serve
    found = []
    for fault in faults:
        with tempfile.TemporaryDirectory(dir=place) as name:
            folder = Path(name, "folder")
            folder.mkdir(mode=0o755)
            Path(name).chmod(0o755)
            path = folder / way.kind
            if isinstance(way.use, str) and "%" in way.use:
                if fault == "a file in place of its folder":
                    continue
                for other in ("model.onnx", "genai_config.json", "tokenizer.json"):
                    if other != way.kind and (place / other).exists():
                        shutil.copy(place / other, folder)
            if (store := place / f"{path.stem}.tca").exists() and path.suffix == ".tir":
                shutil.copy(store, folder)
            FAULTS[fault](path, good)
            with growing(path) if fault == "grows" else without(path) if fault == "no permission" else nullcontext():
                wrong = finding(way, fault, path)
        if wrong:
            found.append(f"{way}, {fault}: {wrong}")
    return len(faults), found


@pytest.mark.long
@pytest.mark.parametrize("rows", [models, other_files, written, functions])
def test_what_may_be_in_the_place_of_a_file(rows: Callable[[], Iterator[Way]], place: Path) -> None:
    def waited(*_: Any) -> None:
        raise Waited

    before, cases, found = signal.signal(signal.SIGALRM, waited), 0, list[str]()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for way in rows():
                if ("score" in way.option and not find_spec("pyarrow")) or not (place / way.kind).exists():
                    continue
                count, wrong = tried(way, place)
                cases, found = cases + count, found + wrong
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not found, f"{len(found)} of {cases}:\n" + "\n".join(found)
