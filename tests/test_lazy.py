"""Names that are imported when they are first asked for."""

from __future__ import annotations

import builtins
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tinycomp
from tinycomp.lazy import LazyModule, LazyTable, cached_property, from_modules


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with a module of its own."""
    folder = tmp_path / "slow_to_import"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from tinycomp.lazy import from_modules\n__getattr__ = from_modules(__name__, {'answer': '.inner'})\n"
    )
    (folder / "inner.py").write_text("answer = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("slow_to_import", "slow_to_import.inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return folder.name


def test_a_module_is_imported_when_it_is_asked(package: str) -> None:
    module = LazyModule(f"{package}.inner")
    assert package not in sys.modules
    assert module.answer == 42
    assert f"{package}.inner" in sys.modules
    with pytest.raises(AttributeError, match="no attribute 'question'"):
        _ = module.question


def test_names_of_a_package_come_from_its_modules(package: str) -> None:
    found = __import__(package)
    assert f"{package}.inner" not in sys.modules
    assert found.answer == 42
    assert vars(found)["answer"] == 42
    with pytest.raises(AttributeError, match="module 'slow_to_import' has no attribute 'question'"):
        _ = found.question


def test_an_unknown_name_is_not_imported() -> None:
    with pytest.raises(AttributeError, match="module 'a' has no attribute '__path__'"):
        from_modules("a", {"b": ".c"})("__path__")


def entries(module: ModuleType) -> Mapping[str, Any]:
    registered: dict[str, Any] = module.REGISTERED
    return registered


@pytest.fixture
def families(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The package with two modules that register something."""
    (tmp_path / package / "slow.py").write_text(
        "import time\nREGISTERED = {'a': 1}\ntime.sleep(0.05)\nREGISTERED['b'] = object()\n"
    )
    (tmp_path / package / "other.py").write_text("REGISTERED = {'c': 3}\n")
    for name in ("slow", "other"):
        monkeypatch.delitem(sys.modules, f"{package}.{name}", raising=False)
    return package


def test_a_module_is_imported_when_one_of_its_names_is_looked_up(families: str) -> None:
    table = LazyTable(families, {"slow": ["a", "b"], "other": ["c"]}, entries)
    assert list(table) == ["a", "b", "c"]
    assert (len(table), "c" in table, "d" in table, table.get("d")) == (3, True, False, None)
    assert not {f"{families}.slow", f"{families}.other"} & sys.modules.keys()
    assert table["c"] == 3
    assert f"{families}.slow" not in sys.modules
    assert dict(table) | {"b": 2} == {"a": 1, "b": 2, "c": 3}
    with pytest.raises(KeyError, match="d"):
        table["d"]


@pytest.mark.parametrize("listed", [["a"], ["a", "b", "z"]])
def test_a_list_that_is_out_of_date_is_an_error(families: str, listed: list[str]) -> None:
    table = LazyTable(families, {"slow": listed}, entries)
    with pytest.raises(ImportError, match=r"slow_to_import\.slow does not register what its list says: \['[bz]'\]"):
        table["a"]


def test_threads_find_the_same(families: str) -> None:
    table = LazyTable(families, {"slow": ["a", "b"], "other": ["c"]}, entries)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: table["ab"[i % 2]], range(64)))
    assert set(found) == {1, table["b"]}


FIRST_MODELS = """
import threading
import numpy as np
from concurrent.futures import ThreadPoolExecutor
from onnx import parser
import tinycomp

OPS = {
    "Relu(x)": lambda x: np.maximum(x, 0), "Neg(x)": np.negative, "Transpose(x)": np.transpose,
    "ReduceMax(x)": lambda x: x.max(keepdims=True), "MatMul(x, x)": lambda x: x @ x, "Identity(x)": lambda x: x,
    "Concat <axis = 0> (x, x)": lambda x: np.concatenate([x, x]), "Softsign(x)": lambda x: x / (1 + abs(x)),
}
start = threading.Barrier(len(OPS))

def first(text):
    body = f"{{ y = {text} }}"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> main (float[4, 4] x) => (float y) {body}')
    model.graph.output[0].type.tensor_type.ClearField("shape")
    x = np.arange(-8, 8, dtype=np.float32).reshape(4, 4)
    start.wait()
    np.testing.assert_allclose(tinycomp.compile(model)(x), OPS[text](x), rtol=1e-6)

with ThreadPoolExecutor(len(OPS)) as pool:
    list(pool.map(first, OPS))
"""


def test_threads_may_compile_their_first_models_at_once() -> None:
    run = subprocess.run([sys.executable, "-c", FIRST_MODELS], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.filterwarnings("ignore")
def test_a_fork_waits_for_imports_of_other_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_slowly.py").write_text(
        "import builtins, time\nbuiltins._begun.set()\ntime.sleep(0.5)\nvalue = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    begun = threading.Event()
    monkeypatch.setattr(builtins, "_begun", begun, raising=False)
    thread = threading.Thread(target=lambda: LazyModule("imported_slowly").value)
    thread.start()
    begun.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(5)  # ends a child that hangs
        os._exit(0 if LazyModule("imported_slowly").value == 1 else 1)
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.filterwarnings("ignore")
def test_a_child_does_not_wait_for_properties_that_the_parent_computes() -> None:
    begun, ended = threading.Event(), threading.Event()

    class Slow:
        @cached_property
        def place(self) -> int:
            begun.set()
            ended.wait()
            return id(self)

    slow, other = Slow(), Slow()
    thread = threading.Thread(target=lambda: slow.place)
    thread.start()
    begun.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(5)  # ends a child that hangs
        ended.set()
        os._exit(0 if other.place == id(other) else 1)
    ended.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert slow.place == id(slow)
    assert isinstance(Slow.place, cached_property)


def test_the_package_has_no_property_that_locks() -> None:
    """functools' own has a lock for all objects before Python 3.12."""
    package = Path(tinycomp.__file__).parent
    users = {path.name for path in package.rglob("*.py") if "functools.cached_property" in path.read_text("utf-8")}
    assert users == {"lazy.py"}
