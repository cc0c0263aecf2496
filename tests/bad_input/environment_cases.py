"""Classes 66 to 70: compilers, folders, saved modules, processes and threads; and unknown options, with class 10."""

from __future__ import annotations

import functools
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np

import tinycomp
from tests import records
from tests.bad_input.case import Case, doing
from tests.bad_input.models import relu, text
from tests.fuzz.artifact import _packed
from tests.runtime.csource.c_sources import X, doubling, times
from tests.threads import in_threads
from tinycomp.cli import main
from tinycomp.errors import ArtifactError, OptionError, PatternError, TargetError, TinycompError, TinycompWarning
from tinycomp.runtime.archive import FORMAT
from tinycomp.runtime.native.module_records import MEMBER

LIMIT = 60
"""Seconds for a process of its own; they take about two."""
ROOT = Path(__file__).resolve().parents[2]
PRELUDE = """
import os, signal, sys, threading, time
import numpy as np
import tinycomp
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits a shell's order to ignore it
from tests.bad_input.models import one, relu, text
from tests.bad_input.run_cases import loop
x = np.array([[-1, 0, 1], [2, -2, 3]], np.float32)
module = tinycomp.compile(relu(), threads=2)
assert module(x)[1, 2] == 3
"""


@contextmanager
def environment(**values: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def in_a_process(code: str, *, status: int = 0, output: str = "") -> Callable[[Path], None]:
    """Run code behind the prelude in a process of its own, which must end in time with this status and output."""

    def run(folder: Path) -> None:
        script = PRELUDE + code
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        assert done.returncode == status, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert output in done.stdout + done.stderr, done.stdout + done.stderr

    return run


@functools.cache
def saved() -> bytes:
    """The bytes of a saved module of one native region."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "relu.tcm"
        tinycomp.compile(relu()).save(path)
        return path.read_bytes()


def loading(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Load a saved module after a change to its bytes."""
    return lambda folder: use(tinycomp.load(change(saved())))


def use(module: Any) -> None:
    assert np.array_equal(module(X - 2), np.maximum(X - 2, 0))


def rewritten(change: Callable[[dict[str, bytes]], Mapping[str, bytes]]) -> Callable[[bytes], bytes]:
    """Change the members of the archive, with its checksums made right again."""

    def rewrite(data: bytes) -> bytes:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            members = {name: file.read(name) for name in file.namelist()}
        members = dict(change(members))
        return _packed(json.loads(members.pop("manifest.json")), members)

    return rewrite


def in_manifest(change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    def edit(members: dict[str, bytes]) -> dict[str, bytes]:
        manifest = json.loads(members["manifest.json"])
        change(manifest)
        return members | {"manifest.json": json.dumps(manifest).encode()}

    return rewritten(edit)


def in_record(kind: str, **fields: Any) -> Callable[[bytes], bytes]:
    """Set fields of the first record of a kind."""

    def edit(members: dict[str, bytes]) -> dict[str, bytes]:
        said = records.read(members[MEMBER])
        records.of_kind(said, kind)[0].update(fields)
        return members | {MEMBER: records.write(said)}

    return rewritten(edit)


def every_64th_byte_flipped(folder: Path) -> None:
    """A module with a flipped byte is refused with a typed error, or gives the right results."""
    data = saved()
    for place in range(0, len(data), 64):
        broken = bytearray(data)
        broken[place] ^= 0xFF
        try:
            module = tinycomp.load(bytes(broken))
        except TinycompError:
            continue
        else:
            use(module)


def pickled_instead(folder: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch {folder / 'ran'}",)

    try:
        tinycomp.load(pickle.dumps(Evil()))
    except ArtifactError:
        assert not (folder / "ran").exists()
        raise


def compile_c(**variables: str) -> Callable[[Path], None]:
    """Compile a region of generated C under these variables, with an empty cache; it must give right results."""

    def run(folder: Path) -> None:
        kept = {name: value.format(folder=folder) for name, value in variables.items()}
        with environment(**({"TINYCOMP_CACHE": str(folder / "kept")} | kept)):
            assert np.array_equal(tinycomp.compile(doubling(), times())(X), 2 * X)

    return run


def warned(does: Callable[[Path], None], part: str) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TinycompWarning)
            does(folder)
        assert any(part in str(w.message) for w in caught), [str(w.message) for w in caught]

    return run


def world_writable(folder: Path) -> None:
    kept = folder / "kept" / "c"
    kept.mkdir(parents=True)
    kept.chmod(0o777)
    compile_c()(folder)
    assert not any(kept.iterdir())


def damaged_cache(folder: Path) -> None:
    compile_c()(folder)
    for path in (folder / "kept").rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            path.write_bytes(b"not what it was")
    compile_c()(folder)


def eight_threads(
    model: Any, feeds: Callable[[int], dict[str, np.ndarray]], wanted: Callable[[int], np.ndarray]
) -> Any:
    """Eight threads call one module 50 times each; every result must be right."""

    def run(folder: Path) -> None:
        module = tinycomp.compile(model, threads=2)
        wrong: list[object] = []

        def call(thread: int) -> None:
            for i in range(50):
                try:
                    found = next(iter(module.run(feeds(thread + i)).values()))
                    if not np.array_equal(found, wanted(thread + i)):
                        wrong.append((thread, i))
                except Exception as error:
                    wrong.append(error)

        in_threads(call, range(8))
        assert not wrong, wrong[:3]

    return run


def timeouts_are_per_thread(folder: Path) -> None:
    """A thread whose time is up must not stop another one in the same module."""
    from tests.bad_input.run_cases import loop
    from tinycomp.errors import ExecutionError

    module = tinycomp.compile(loop())
    feeds = {"n": np.array(3), "x": np.ones(4, np.float32)}
    stopped: list[bool] = []

    def endless() -> None:
        try:
            module.run({**feeds, "n": np.array(1 << 62)}, timeout=0.3)
        except ExecutionError as error:
            stopped.append("the time is up" in str(error))

    thread = threading.Thread(target=endless)
    thread.start()
    for _ in range(100):
        assert module.run(feeds)["y"][0] == -1
    thread.join()
    assert stopped == [True]


def cli(*arguments: str, hint: str) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        errors = io.StringIO()
        with redirect_stderr(errors):
            assert main(list(arguments)) == 2
        assert hint in " ".join(errors.getvalue().split()), errors.getvalue()

    return run


def compiling(**options: Any) -> Callable[[Path], None]:
    return lambda folder: tinycomp.compile(relu(), **options) and None


CASES: list[Case] = [
    # 10 unknown options and names
    doing("10-option", compiling(tread=2), OptionError, 'compile has no option "tread"', 'Did you mean "threads"?'),
    doing("10-option-limit", compiling(memory=2), OptionError, 'no option "memory"', "expected one of"),
    doing("10-target", compiling(target="npu_sin"), TargetError, '"npu_sin"', 'Did you mean "npu_sim"?'),
    doing("10-target-object", compiling(target=7), TinycompError, "7"),
    doing("10-target-twice", compiling(target=["c", "c"]), TargetError, "two targets share a name"),
    doing("10-pass", compiling(passes="simplfy"), PatternError, 'there is no pass "simplfy"',
        'Did you mean "simplify"?'),
    doing("10-pass-option", compiling(passes="fold-constants{max-byte=3}"), PatternError, 'no option "max-byte"',
        'Did you mean "max-bytes"?'),
    doing("10-threads-zero", compiling(threads=0), TinycompError, "threads"),
    doing("10-threads-negative", compiling(threads=-1), TinycompError, "threads"),
    doing("10-shapes-name", compiling(shapes={"X": (2, 3)}), TinycompError, '"X"', 'Did you mean "x"?'),
    doing("10-shapes-rank", compiling(shapes={"x": (2,)}), TinycompError, "wrong rank; expected 2 dimensions"),
    doing("10-shapes-negative", compiling(shapes={"x": (2, -3)}), TinycompError, "a size of at least 0", "-3"),
    doing("10-command", cli("compil", hint='Did you mean "compile"?')),
    doing("10-flag", cli("compile", "digits", "--tread", "2", hint='Did you mean "--threads"?')),
    doing("10-flag-value", cli("compile", "digits", "--threads", "none", hint="expected a number above 0")),
    doing("10-model-file", cli("compile", "digts", hint="digts")),
    # 66 compilers and folders
    doing("66-no-compiler", compile_c(CC="/nothing/cc"), TinycompError, "/nothing/cc"),
    doing("66-compiler-fails", compile_c(CC="/bin/false"), TinycompError, "compiler"),
    doing("66-unwritable-cache", warned(compile_c(TINYCOMP_CACHE="/proc/nothing"), "compiled C source is not kept")),
    doing("66-cache-is-a-file", warned(compile_c(TINYCOMP_CACHE="/dev/null"), "compiled C source is not kept")),
    doing("66-damaged-cache", damaged_cache),
    doing(
        "66-two-processes",
        in_a_process("""
import subprocess, tempfile
from tests.runtime.csource.c_sources import X, doubling, times
code = "import tinycomp\\nfrom tests.runtime.csource.c_sources import *\\n"
code += "assert (tinycomp.compile(doubling(), times())(X) == 2 * X).all()"
with tempfile.TemporaryDirectory() as folder:
    env = {**os.environ, "TINYCOMP_CACHE": folder}
    racers = [subprocess.Popen([sys.executable, "-c", code], env=env) for _ in range(2)]
    assert [r.wait(50) for r in racers] == [0, 0]
"""),
    ),
    # 67 saved modules
    doing("67-unharmed", loading(lambda d: d)),
    doing("67-empty", loading(lambda d: b""), ArtifactError, "not a saved module, or it is damaged"),
    doing("67-no-file", lambda folder: tinycomp.load(folder / "none.tcm"), ArtifactError,
        "none.tcm: there is no such file"),
    doing("67-folder", lambda folder: tinycomp.load(folder), ArtifactError, "not a regular file, but a folder"),
    *(
        doing(f"67-truncated-{part}", loading(lambda d, part=part: d[: len(d) * part // 100]), ArtifactError, "damaged")
        for part in (1, 50, 99)
    ),
    doing("67-onnx", lambda folder: tinycomp.load(relu().SerializeToString()), ArtifactError, "not a saved module"),
    doing("67-bytes-flipped", every_64th_byte_flipped),
    doing("67-checksum", loading(lambda d: d.replace(b"graph @", b"graph !", 1)), ArtifactError, "damaged"),
    doing("67-member-missing", loading(rewritten(lambda m: {k: v for k, v in m.items() if k != "arrays.safetensors"})),
        ArtifactError, "damaged"),
    doing("67-future", loading(in_manifest(lambda m: m.update(format=999))), ArtifactError,
        f"the file has another format version; expected {FORMAT}; found 999", "Compile the model again"),
    doing("67-manifest-list", loading(rewritten(lambda m: m | {"manifest.json": b"[]"})), ArtifactError, "damaged"),
    doing("67-manifest-no-json", loading(rewritten(lambda m: m | {"manifest.json": b"{}"})), ArtifactError, "damaged"),
    doing("67-no-records", loading(rewritten(lambda m: m | {MEMBER: b""})), ArtifactError, "number of slots"),
    doing("67-not-native", loading(in_manifest(lambda m: m.pop("native"))), ArtifactError, "damaged"),
    doing("67-no-inputs", loading(in_manifest(lambda m: m.pop("inputs"))), ArtifactError, "damaged"),
    doing("67-slot", loading(in_record("step", reads=[999])), ArtifactError, "there is no such slot"),
    doing("67-slot-negative", loading(in_record("step", writes=[-1])), ArtifactError, "slot"),
    doing("67-slots-huge", loading(in_record("module", slots=1 << 60)), TinycompError, "slots"),
    doing("67-arena-small", loading(in_record("end", arena=-1)), TinycompError, "arena"),
    doing("67-arena-huge", loading(in_record("end", arena=1 << 62)), (TinycompError, MemoryError), "arena"),
    doing("67-kernel", loading(in_record("call", kernel=99999)), TinycompError, "there is no kernel 99999"),
    doing("67-operand-space", loading(in_record("call", operands=[[9, 0, 0]] * 2)), TinycompError, "damaged"),
    doing("67-operand-outside", loading(in_record("call", operands=[[1, 0, 1 << 40]] * 2)), TinycompError, "c_0"),
    doing("67-operand-index", loading(in_record("call", operands=[[1, 7, 0]] * 2)), TinycompError, "c_0"),
    # 68 untrusted writers
    doing("68-pickle", pickled_instead, ArtifactError, "not a saved module"),
    doing("68-world-writable-cache", warned(world_writable, "others may write to")),
    doing("68-zip-outside", loading(rewritten(lambda m: m | {"../../outside": b"x"}))),
    # 69 processes and signals
    doing(
        "69-fork",
        in_a_process("""
pid = os.fork()
if pid == 0:
    os._exit(0 if module(x)[1, 2] == 3 else 1)
assert os.waitpid(pid, 0)[1] == 0
assert module(x)[1, 2] == 3
"""),
    ),
    doing(
        "69-fork-of-forks",
        in_a_process("""
for _ in range(3):
    pid = os.fork()
    if pid:
        assert os.waitpid(pid, 0)[1] == 0
        assert module(x)[1, 2] == 3
        os._exit(0)
    assert module(x)[1, 2] == 3
os._exit(0)
"""),
    ),
    doing(
        "69-shutdown-while-running",
        in_a_process(
            """
def forever():
    while True:
        module(x)
for _ in range(2):
    threading.Thread(target=forever, daemon=True).start()
time.sleep(0.2)
print("leaving")
""",
            output="leaving",
        ),
    ),
    doing(
        "69-shutdown-inside-a-loop",
        in_a_process(
            """
endless = tinycomp.compile(loop())
feeds = {"n": np.array(1 << 62), "x": np.ones(4, np.float32)}
threading.Thread(target=endless.run, args=(feeds,), daemon=True).start()
time.sleep(0.2)
print("leaving")
""",
            output="leaving",
        ),
    ),
    doing(
        "69-ctrl-c-inside-a-loop",
        in_a_process(
            """
endless = tinycomp.compile(loop())
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    endless.run({"n": np.array((1 << 63) - 1), "x": np.ones(4, np.float32)})
except KeyboardInterrupt:
    assert endless.run({"n": np.array(2), "x": np.ones(4, np.float32)})["y"][0] == 1
    print("interrupted, and still usable")
""",
            output="interrupted, and still usable",
        ),
    ),
    doing(
        "69-ctrl-c-between-steps",
        in_a_process(
            """
steps = " ".join(f"a{i + 1} = Mod<fmod=1>(a{i}, x)" for i in range(3000))
model = text("g (float[64,64] x) => (float[64,64] a3000) { a0 = Identity(x) STEPS }".replace("STEPS", steps))
long = tinycomp.compile(model, "host")
threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
ones = np.ones((64, 64), np.float32)
try:
    while True:
        long(ones)
except KeyboardInterrupt:
    assert long(ones).shape == (64, 64)
    print("interrupted")
""",
            output="interrupted",
        ),
    ),
    doing(
        "69-out-of-memory",
        in_a_process(
            """
import resource
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
tile = tinycomp.compile(one("Tile", "f[4]", "i[1]"))
try:
    tile(np.ones(4, np.float32), np.array([3 << 28]))
except MemoryError as error:
    print(type(error).__name__)
assert tile(np.ones(4, np.float32), np.array([2])).shape == (8,)
""",
            output="MemoryLimitError",
        ),
    ),
    doing(
        "69-maps-refused",
        in_a_process(
            """
import resource, tempfile
from pathlib import Path
import onnx
from onnx import helper

rows = 1 << 14
folder = Path(tempfile.mkdtemp())
(folder / "w.bin").write_bytes(bytes(4 * 1024 * rows))
weights = onnx.TensorProto(name="w", data_type=1, dims=[rows, 1024], data_location=onnx.TensorProto.EXTERNAL)
weights.external_data.add(key="location", value="w.bin")
x, y = (helper.make_tensor_value_info(name, 1, [1, n]) for name, n in (("x", rows), ("y", 1024)))
graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
path = folder / "model.onnx"
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
module = tinycomp.compile(path)
module.save(folder / "model.tcm")
x = np.zeros((1, rows), np.float32)
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
for room in (16 << 20, 75 << 20):  # too little for the file; enough for it, too little for packed weights
    resource.setrlimit(resource.RLIMIT_AS, (taken + room, -1))
    for attempt in (lambda: tinycomp.compile(path), lambda: tinycomp.load(folder / "model.tcm")(x)):
        try:
            attempt()
        except tinycomp.TinycompError as error:
            assert isinstance(error, MemoryError), error
            print(type(error).__name__, "ulimit" in str(error))
assert not module(x).any()
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
assert not tinycomp.load(folder / "model.tcm")(x).any()
""",
            output="MemoryLimitError True\nMemoryLimitError True\nMemoryLimitError True",
        ),
    ),
    # 70 threads
    doing("70-static", eight_threads(relu(), lambda i: {"x": X - i}, lambda i: np.maximum(X - i, 0))),
    doing(
        "70-symbolic",
        eight_threads(
            text("g (float[N,3] x) => (float[N,3] y) { a = Relu(x) y = Add(a, x) }"),
            lambda i: {"x": np.full((1 + i % 5, 3), i, np.float32)},
            lambda i: np.full((1 + i % 5, 3), 2 * i, np.float32),
        ),
    ),
    doing(
        "70-host",
        eight_threads(
            text(
                "g (float[4] x) => (float[4] y) { s = SequenceConstruct(x, x) "
                "n = Constant<value: tensor = int64 {0}>() "
                "y = SequenceAt(s, n) }"
            ),
            lambda i: {"x": np.full(4, i, np.float32)},
            lambda i: np.full(4, i, np.float32),
        ),
    ),
    doing("70-timeouts", timeouts_are_per_thread),
]  # fmt: skip
