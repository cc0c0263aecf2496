"""Modules under load: many threads and sizes, modules and compilations, and processes that are killed as they write.

``python -m tests.fuzz.load --seconds 300`` runs each part for so long; the tests run a short form.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import tinycomp
from tests.host_only import DOMAIN, NAME
from tests.threads import in_threads
from tinycomp.data import digits, digits_model
from tinycomp.runtime.files import PARTIAL

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 64


def model(seed: int = 0, layers: int = 3, rows: int | str = "rows") -> tinycomp.Graph:
    """Return a perceptron of any number of rows whose last step the host computes."""
    rng = np.random.default_rng(seed)
    graph = tinycomp.Graph(f"model{seed}", opsets={"": 17})
    x = graph.add_input("x", tinycomp.ir.TensorType("float32", (rows, WIDTH)))
    for number in range(layers):
        weights = (rng.standard_normal((WIDTH, WIDTH)) / 8).astype(np.float32)
        product = graph.add("MatMul", [x, graph.add_const(weights, f"w{number}")]).output
        x = graph.add("Relu", [product]).output
    graph.set_outputs([graph.add(NAME, [x], domain=DOMAIN).output], ["y"])
    return graph


def threads_and_sizes(seconds: float) -> int:
    """Run one module in eight threads with sizes that change; every result is that of one thread alone, to the bit."""
    module, rng = tinycomp.compile(model(), threads=2), np.random.default_rng(0)
    feeds = [rng.standard_normal((rows, WIDTH)).astype(np.float32) for rows in (*range(1, 40), 200, 777)]
    alone = tinycomp.compile(model(), threads=1)
    wanted = [alone(x) for x in feeds]
    end, runs = time.monotonic() + seconds, [0] * 8
    wrong: list[int] = []

    def work(number: int) -> None:
        own = np.random.default_rng(number)
        while time.monotonic() < end and not wrong:
            place = int(own.integers(len(feeds)))
            if not np.array_equal(module(feeds[place]), wanted[place]):
                wrong.append(place)
            runs[number] += 1

    _in_threads(work, 8)
    assert not wrong, f"results of {len(feeds[wrong[0]])} rows differ"
    return sum(runs)


def modules_alive(count: int) -> int:
    """Keep many modules alive and run them in turn; each gives its own results."""
    modules = [tinycomp.compile(model(seed, rows=5), threads=1) for seed in range(count)]
    x = np.ones((5, WIDTH), np.float32)
    first = [module(x) for module in modules]
    for _ in range(3):
        for module, wanted in zip(modules, first, strict=True):
            np.testing.assert_array_equal(module(x), wanted)
    assert len({y.tobytes() for y in first}) == count
    return count


def compile_and_drop(seconds: float, cycles: int | None = None) -> tuple[int, float]:
    """Compile, run and drop modules; return how many, and by how many percent memory has grown since the first half."""
    x = np.ones((5, WIDTH), np.float32)
    end, done, early = time.monotonic() + seconds, 0, 0
    files, threads = _open_files(), threading.active_count()
    while done < cycles if cycles is not None else time.monotonic() < end or done < 20:
        tinycomp.compile(model(done % 7), threads=1)(x)
        done += 1
        if time.monotonic() < end - seconds / 2 if cycles is None else done <= cycles // 2:
            early = _resident()
    gc.collect()
    assert _open_files() <= files, "files stay open"
    assert threading.active_count() <= threads, "threads stay"
    return done, 100 * (_resident() / max(early, 1) - 1)


def requests_served(seconds: float) -> tuple[int, float]:
    """Ask a server over eight connections; return how often, and by how many percent memory has grown since a tenth."""
    from tests.serving.servers import Client, running
    from tinycomp.serving.application import Application, ServedModel

    module, images = tinycomp.compile(digits_model(), threads=1), digits()[0]
    feeds = [images[:rows] for rows in range(1, 9)]
    wanted = [module(x) for x in feeds]
    counts, early, started = [0] * 8, 0, time.monotonic()
    with running(Application([ServedModel("model", module)])) as port:

        def ask(number: int) -> None:
            nonlocal early
            with Client(port) as client:
                while time.monotonic() < started + seconds or counts[number] < 20:
                    place = counts[number] % len(feeds)
                    answer = client.infer("model", feeds[place], binary=True, name="image")
                    assert answer.status == 200, answer
                    np.testing.assert_array_equal(answer.array(), wanted[place])
                    counts[number] += 1
                    if time.monotonic() < started + seconds / 10:
                        early = _resident()

        _in_threads(ask, 8)
        return sum(counts), 100 * (_resident() / max(early, 1) - 1)


WRITERS = """
import sys, warnings
import numpy as np
import tinycomp
from tests.fuzz.load import model
from tests.runtime.csource.c_sources import doubling, times
warnings.simplefilter("ignore")
path, seed = sys.argv[1], int(sys.argv[2])
module = tinycomp.compile(model(seed % 3))
print("ready", flush=True)
while True:
    module.save(path)
    module.report().save_html(path + ".html")
    seed += 1
    tinycomp.compile(doubling(), times(f"c[i % COUNT] * {seed % 5}.0f"))
    tinycomp.compile(doubling(), times())
"""


def killed_writers(seconds: float, folder: Path) -> int:
    """Kill processes in the middle of saving modules, reports and cache entries; what lies there then is whole.

    Returns:
        How many processes were killed.
    """
    rng, killed, end = np.random.default_rng(0), 0, time.monotonic() + seconds
    path, cache = folder / "module.tcm", folder / "cache"
    tinycomp.compile(model(0)).save(path)
    environment = {**os.environ, "TINYCOMP_CACHE": str(cache), "PYTHONPATH": str(ROOT)}
    x = np.ones((5, WIDTH), np.float32)
    wanted = {tinycomp.compile(model(seed))(x).tobytes() for seed in range(3)}
    while time.monotonic() < end or killed < 2:
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITERS, str(path), str(killed + i)], env=environment, stdout=subprocess.PIPE
            )
            for i in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        time.sleep(float(rng.uniform(0, 0.5)))
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
            killed += 1
        assert tinycomp.load(path)(x).tobytes() in wanted
        page = Path(f"{path}.html")
        assert not page.exists() or page.read_text().rstrip().endswith("</html>")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        command = "from tests.runtime.csource.c_sources import doubling, times; import tinycomp, numpy as np\n"
        command += "assert (tinycomp.compile(doubling(), times())(np.ones((2, 3), np.float32)) == 2).all()"
        subprocess.run([sys.executable, "-c", command], env=environment, check=True)
    left = [file for file in folder.rglob(f"*{PARTIAL}") if file.stat().st_size > 1 << 26]
    assert not left, left
    return killed


def _in_threads(work: Callable[[int], None], count: int) -> None:
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    in_threads(guarded, range(count))
    if errors:
        raise errors[0]


def _resident() -> int:
    """Return the bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _parts(seconds: float) -> Iterator[str]:
    yield f"{threads_and_sizes(seconds)} runs in eight threads with changing sizes"
    yield f"{modules_alive(200)} modules alive"
    cycles, growth = compile_and_drop(seconds)
    yield f"{cycles} modules compiled and dropped, memory {growth:+.2f} % over the second half"
    asked, growth = requests_served(seconds)
    yield f"{asked} requests served, memory {growth:+.2f} % since a tenth of them"
    with tempfile.TemporaryDirectory() as folder:
        yield f"{killed_writers(seconds, Path(folder))} writing processes killed"


def main() -> int:
    """Run all parts, and say what was done."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.load", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="for each part (default: 300)")
    warnings.simplefilter("ignore")
    for line in _parts(parser.parse_args().seconds):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
