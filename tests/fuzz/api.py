"""Calls of the public API with something wrong in them, made from the annotations of its functions.

Every call has arguments that are right but for one or two. Whatever is wrong with these must be said by an error of
ours that tells where it is and what was expected; what is right after all gives what the plain call gives.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import importlib.util
import inspect
import os
import random
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tinycomp
from tests.arrays import read_only, unaligned
from tests.driver.test_blobs import Device, model
from tests.fuzz.harness import Harness, WrongError, generators
from tests.generation.decoders import decoder
from tests.runtime.device.units import SHAPE, Listening, chain, unit
from tinycomp.data import digits, digits_model
from tinycomp.errors import TinycompError
from tinycomp.generation import Sampler, perplexity
from tinycomp.runtime.report import Report
from tinycomp.target import Policy, Tolerance
from tinycomp.targets.c.tuning.log import TuningLog

MODEL = onnx.parser.parse_model("""
    <ir_version: 9, opset_import: ["" : 17]>
    g (float[N, 4] x, int64[2] k) => (float[N, 3] y, int64[2] j)
    <float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}> { h = MatMul(x, w) y = Relu(h) j = Add(k, k) }
""")


@functools.cache
def module() -> tinycomp.Module:
    """Return a module with two inputs and two outputs."""
    return tinycomp.compile(MODEL, threads=1)


@functools.cache
def _fixed() -> tinycomp.Module:
    return tinycomp.compile(MODEL, shapes={"x": (2, 4)}, threads=1)


@functools.cache
def _decoder() -> tinycomp.Module:
    return tinycomp.compile(decoder(), threads=1)


@functools.cache
def _device() -> tinycomp.Device:
    return Listening("npu:0")


def _in_time(call: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    with contextlib.suppress(TimeoutError):
        return call(**arguments)


@functools.cache
def _host() -> tinycomp.Module:
    return tinycomp.compile(MODEL, "host")


@functools.cache
def _with_blob() -> tinycomp.Module:
    return tinycomp.compile(model(2.0), Device().target)


def _table() -> str:
    """Return the path of rows in a Parquet file."""
    import pyarrow
    import pyarrow.parquet

    path = _folder() / "rows.parquet"
    if not path.exists():
        rows = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(np.arange(12, dtype=np.float32)), 4)
        pyarrow.parquet.write_table(pyarrow.table({"x": rows, "id": [1, 2, 3]}), path)
    return str(path)


def _scored(**arguments: Any) -> Any:
    """Score into a folder of its own, unless the folder is what is wrong."""
    if isinstance(arguments["output"], str) and arguments["output"] == "results":
        arguments["output"] = tempfile.mkdtemp(dir=_folder())
    return tinycomp.score(**arguments).rows


def _layer() -> Any:
    import torch

    return torch.nn.ReLU()


def _tensor() -> Any:
    import torch

    return torch.ones(2, 3)


@functools.cache
def _rows() -> tinycomp.Module:
    text = "g (float[N, 4] x) => (float[N, 4] y) { y = Neg(x) }"
    return tinycomp.compile(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {text}'), threads=1)


@functools.cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="tinycomp-fuzz-"))


def _feeds() -> dict[str, Any]:
    return {"x": np.arange(8, dtype=np.float32).reshape(2, 4), "k": np.array([1, 2], np.int64)}


def _outputs() -> dict[str, Any]:
    return {"y": np.zeros((2, 3), np.float32), "j": np.zeros(2, np.int64)}


def _saved() -> bytes:
    return module().to_bytes()


@functools.cache
def _float() -> Path:
    return digits_model()


def _log() -> TuningLog:
    log: TuningLog = _tuned().log
    return log


@functools.cache
def _tuned() -> Any:
    return tinycomp.tune(MODEL, TuningLog(), shapes={"x": (2, 4)}, threads=1, progress=False)


@dataclass(frozen=True)
class Entry:
    """A function and how to call it.

    Attributes:
        owner: What declares the parameters.
        valid: Makes arguments that are right.
        call: Calls it with them; by default as keywords.
        result: What is compared of a result.
        types: Annotations of parameters that are not those of ``owner``.
    """

    owner: Callable[..., Any]
    valid: Callable[[], dict[str, Any]]
    of: Callable[..., Any] | None = None
    result: Callable[[Any], Any] = lambda result: None
    types: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def call(self) -> Callable[..., Any]:
        """Return what is called."""
        return self.of or self.owner

    def annotations(self) -> dict[str, str]:
        """Return the annotations of the arguments."""
        parameters = {} if self.types else inspect.signature(self.owner).parameters
        return {name: self.types.get(name) or str(parameters[name].annotation) for name in self.valid()}


def _run(result: Mapping[str, Any]) -> Any:
    return {name: array.tolist() for name, array in result.items()}


def _bound(inputs: Any, outputs: Any) -> Any:
    return [np.asarray(array).tolist() for array in _fixed().bind(inputs, outputs)()]


ARRAY_INPUTS = {"x": "Array", "k": "Array"}
ENTRIES: dict[str, Entry] = {
    "compile": Entry(
        tinycomp.compile,
        lambda: {
            "model": MODEL,
            "target": "c",
            "shapes": {"x": (2, 4)},
            "threads": 1,
            "strict": False,
            "passes": None,
            "verify": False,
            "memory_limit": 1 << 30,
            "policy": Policy(),
            "place": {"Relu": "host"},
            "options": {"c": {"winograd": False}},
            "specialize": False,
            "optimize": True,
            "precision": None,
            "timeout": 60.0,
            "devices": None,
            "faults": None,
            "cache": None,
        },
        result=lambda m: _run(m.run(_feeds())),
    ),
    "from_onnx": Entry(tinycomp.from_onnx, lambda: {"model": MODEL, "shapes": {"x": (2, 4)}}, result=str),
    "to_onnx": Entry(
        tinycomp.to_onnx,
        lambda: {"graph": tinycomp.from_onnx(MODEL), "model_name": "g", "functions": True},
        result=lambda m: m.SerializeToString(),
    ),
    "generate": Entry(
        tinycomp.generate,
        lambda: {
            "module": _decoder(),
            "tokens": [1, 2, 3],
            "max_new_tokens": 3,
            "temperature": 0.5,
            "top_k": 4,
            "top_p": 0.9,
            "stop": [7],
            "seed": 1,
            "config": None,
        },
        lambda **a: [*islice(tinycomp.generate(**a), 20)],
        list,
    ),
    "perplexity": Entry(
        perplexity, lambda: {"module": _decoder(), "tokens": [1, 2, 3], "window": 2, "config": None}, result=float
    ),
    "Sampler": Entry(Sampler, lambda: {"temperature": 0.5, "top_k": 4, "top_p": 0.9, "seed": 1}),
    "load": Entry(
        tinycomp.load,
        lambda: {"source": _saved(), "threads": 1, "targets": (), "trusted": False, "devices": None, "faults": None},
        result=lambda m: _run(m.run(_feeds())),
    ),
    "pipeline_requests": Entry(
        tinycomp.pipeline_requests,
        lambda: {"module": module(), "requests": [_feeds()], "in_flight": 2},
        lambda **a: [*tinycomp.pipeline_requests(**a)],
        lambda results: [*map(_run, results)],
    ),
    "quantize": Entry(
        tinycomp.quantize,
        lambda: {
            "model": _float(),
            "calibration": [digits()[0][:4]],
            "method": "minmax",
            "activations": "uint8",
            "symmetric": False,
            "per_channel": True,
            "reduce_range": False,
            "bias_correction": False,
            "equalize": False,
            "keep_float": (),
            "percentile": None,
            "shapes": None,
            "threads": 1,
            "progress": False,
            "weights": "int8",
            "block": 32,
            "accuracy_level": 0,
            "target": None,
        },
        result=lambda m: m.SerializeToString(),
    ),
    "quantize, int4": Entry(
        tinycomp.quantize,
        lambda: {
            "model": _float(),
            "calibration": None,
            "method": "minmax",
            "symmetric": True,
            "keep_float": (),
            "threads": 1,
            "progress": False,
            "weights": "int4",
            "block": 16,
            "accuracy_level": 4,
        },
        result=lambda m: m.SerializeToString(),
    ),
    "to_c": Entry(
        tinycomp.to_c,
        lambda: {
            "module": _fixed(),
            "cpu": "generic",
            "name": "model",
            "feeds": [*_feeds().values()],
            "seed": 0,
            "weights": "array",
        },
        result=lambda project: str(project.to_dict()),
        types={
            "module": "Module",
            "cpu": "str",
            "name": "str",
            "feeds": "Sequence None",
            "seed": "int",
            "weights": "Literal str",
        },
    ),
    "tune": Entry(
        tinycomp.tune, lambda: {"model": MODEL, "log": _log(), "shapes": {"x": (2, 4)}, "threads": 1, "progress": False}
    ),
    "Module": Entry(module, _feeds, lambda x, k: dict(zip("yj", module()(x, k), strict=True)), _run, ARRAY_INPUTS),
    "Module.run": Entry(
        tinycomp.Module.run,
        lambda: {"feeds": _feeds(), "outputs": _outputs(), "timeout": 10.0},
        lambda **a: module().run(**a),
        _run,
    ),
    "Module.run, arrays": Entry(module, _feeds, lambda **a: module().run(a), _run, ARRAY_INPUTS),
    "Module.run, host": Entry(module, _feeds, lambda **a: _host().run(a), _run, ARRAY_INPUTS),
    "Module.run, outputs": Entry(
        module, _outputs, lambda **a: module().run(_feeds(), outputs=a), _run, {"y": "Output None", "j": "Output None"}
    ),
    "Module.run_async": Entry(
        tinycomp.Module.run_async,
        lambda: {"feeds": _feeds(), "outputs": None, "timeout": 10.0},
        lambda **a: module().run_async(**a).result(),
        _run,
    ),
    "Module.bind": Entry(
        tinycomp.Module.bind,
        lambda: {"inputs": _feeds(), "outputs": _outputs()},
        _bound,
        list,
        {"inputs": "Mapping Sequence", "outputs": "Mapping Sequence None"},
    ),
    "Module.bind, arrays": Entry(
        module,
        lambda: {**_feeds(), "y": _outputs()["y"]},
        lambda x, k, y: _bound([x, k], {"y": y, "j": _outputs()["j"]}),
        list,
        {"x": "Bound", "k": "Bound", "y": "Output"},
    ),
    "Module.profile": Entry(
        tinycomp.Module.profile,
        lambda: {"feeds": _feeds(), "runs": 1},
        lambda feeds, runs: module().profile(feeds, runs),
    ),
    "Module.save": Entry(
        tinycomp.Module.save, lambda: {"path": str(_folder() / "saved.tcm")}, lambda path: module().save(path)
    ),
    "Module.in_flight": Entry(
        module, lambda: {"limit": 2}, lambda limit: setattr(_host(), "in_flight", limit), types={"limit": "int"}
    ),
    "Report.why": Entry(Report.why, lambda: {"node": "h"}, lambda node: _host().report().why(node), str),
    "Report.advice": Entry(
        Report.advice,
        lambda: {"trials": 1, "seconds": 1.0},
        lambda **a: _host().report().advice(MODEL, **a),
    ),
    "Report.save_html": Entry(
        Report.save_html,
        lambda: {"path": str(_folder() / "report.html"), "against": None},
        lambda **a: module().report().save_html(**a),
    ),
    "Report.save_model_explorer": Entry(
        Report.save_model_explorer,
        lambda: {"folder": str(_folder() / "explorer")},
        lambda folder: module().report().save_model_explorer(folder),
    ),
    "compile, devices": Entry(
        tinycomp.compile,
        lambda: {"model": chain("Neg"), "target": unit("npu", "Neg"), "devices": 1, "faults": tinycomp.FaultPolicy()},
        result=lambda m: _run(m.run({"x0": np.ones(SHAPE, np.float32)})),
    ),
    "Device.empty": Entry(
        tinycomp.Device.empty,
        lambda: {"shape": (2, 3), "dtype": "float32", "memory": "dram"},
        lambda **a: _device().empty(**a),
        str,
        {"shape": "Sequence", "dtype": "Any", "memory": "str None"},
    ),
    "Device.put": Entry(
        tinycomp.Device.put,
        lambda: {"array": np.ones(SHAPE, np.float32), "memory": None},
        lambda **a: _device().put(**a),
        lambda buffer: buffer.numpy().tolist(),
    ),
    "Device.put, array": Entry(
        tinycomp.Device.put,
        lambda: {"array": np.ones(SHAPE, np.float32)},
        lambda **a: _device().put(**a),
        types={"array": "Any"},
    ),
    "Device.from_dlpack": Entry(
        tinycomp.Device.from_dlpack,
        lambda: {"tensor": np.ones(SHAPE, np.float32)},
        lambda tensor: _device().from_dlpack(tensor),
        lambda buffer: buffer.numpy().tolist(),
    ),
    "DeviceBuffer.write": Entry(
        tinycomp.DeviceBuffer.write,
        lambda: {"array": np.ones(SHAPE, np.float32), "timeout": 5.0},
        lambda **a: _in_time(_device().put(np.zeros(SHAPE, np.float32)).write, a),
        types={"array": "Any", "timeout": "float None"},
    ),
    "DeviceBuffer.numpy": Entry(
        tinycomp.DeviceBuffer.numpy,
        lambda: {"timeout": 5.0},
        lambda **a: _in_time(_device().put(np.ones(3, np.float32)).numpy, a),
        str,
    ),
    "FaultPolicy": Entry(tinycomp.FaultPolicy, lambda: {"retries": 1, "fallback": False, "timeout": 1.0}),
    "to_ep_context": Entry(
        tinycomp.to_ep_context,
        lambda: {
            "module": _with_blob(),
            "path": str(_folder() / "context.onnx"),
            "embed": True,
            "sources": {"scaler": "vendor"},
        },
        result=lambda _: (_folder() / "context.onnx").read_bytes(),
    ),
    "Pipeline": Entry(tinycomp.Pipeline, lambda: {"passes": [], "check": False, "observers": ()}),
    "Target": Entry(
        tinycomp.Target,
        lambda: {
            "name": "npu",
            "bind_constants": True,
            "claims_structural": True,
            "tolerance": Tolerance(),
            "policy": Policy(),
            "description": "",
            "requires": None,
            "programs": False,
            "options": None,
            "static_shapes": False,
            "canonical": False,
            "buckets": (1, 8),
            "version": "1",
        },
    ),
    "Tolerance": Entry(Tolerance, lambda: {"rtol": 0.1, "atol": 0.1}),
    "Policy": Entry(
        Policy, lambda: {"min_nodes": 1, "min_macs": 0, "max_regions": None, "exclude": (), "host_after": ()}
    ),
}
if importlib.util.find_spec("pyarrow"):
    ENTRIES["score"] = Entry(
        tinycomp.score,
        lambda: {
            "model": _rows(),
            "files": _table(),
            "output": "results",
            "columns": {"x": "x"},
            "keep": ["id"],
            "batch": 2,
            "workers": 1,
            "threads": 1,
            "ray": None,
            "progress": False,
        },
        _scored,
        int,
    )
if importlib.util.find_spec("torch"):
    ENTRIES["from_torch"] = Entry(
        tinycomp.from_torch,
        lambda: {"model": _layer(), "example_inputs": _tensor(), "dynamic_shapes": None, "kwargs": None},
        result=str,
    )


# What can be wrong -------------------------------------------------------------------------------------------------


class _Raising:
    """An object of which nothing can be asked."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def _raise(self, *args: Any) -> Any:
        raise ZeroDivisionError("of the caller")

    __repr__ = __str__ = __len__ = __iter__ = __getitem__ = __array__ = __fspath__ = __index__ = __float__ = _raise
    __eq__ = __bool__ = __call__ = _raise
    __hash__ = object.__hash__


class _Text(str):
    pass


class _Whole(int):
    pass


class _Dict(dict):  # type: ignore[type-arg]
    pass


def _nested(depth: int) -> list[Any]:
    deep: list[Any] = []
    for _ in range(depth):
        deep = [deep]
    return deep


def _own() -> list[Any]:
    own: list[Any] = []
    own.append(own)
    return own


def _generator() -> Iterator[int]:
    yield from (1, 2)


def _strided(array: np.ndarray) -> np.ndarray:
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


ANY: dict[str, tuple[Callable[[], Any], str]] = {
    "None": (lambda: None, "None"),
    "True": (lambda: True, "bool"),
    "a text": (lambda: "abc", "str"),
    "no text": (lambda: "", "str"),
    "NUL": (lambda: "a\0b", "str"),
    "surrogate": (lambda: "a\udc80b", "str"),
    "line feeds": (lambda: "a\n\x1b[31mb", "str"),
    "long text": (lambda: "a" * 100_000, "str"),
    "bytes": (lambda: b"abc", "bytes"),
    "no bytes": (lambda: b"", "bytes"),
    "bytearray": (lambda: bytearray(b"abc"), "bytearray"),
    "0": (lambda: 0, "int float"),
    "3": (lambda: 3, "int float"),
    "-1": (lambda: -1, "int float"),
    "2^31": (lambda: 2**31, "int float"),
    "2^63": (lambda: 2**63, "int float"),
    "-2^63": (lambda: -(2**63), "int float"),
    "10^30": (lambda: 10**30, "int float"),
    "10^5000": (lambda: 10**5000, "int float"),
    "1.5": (lambda: 1.5, "float"),
    "2.0": (lambda: 2.0, "float"),
    "-0.5": (lambda: -0.5, "float"),
    "1e308": (lambda: 1e308, "float"),
    "1e-320": (lambda: 1e-320, "float"),
    "nan": (lambda: float("nan"), ""),
    "inf": (lambda: float("inf"), "float"),
    "-inf": (lambda: float("-inf"), "float"),
    "complex": (lambda: 1j, ""),
    "numpy int": (lambda: np.int64(3), "int float"),
    "numpy uint8": (lambda: np.uint8(3), "int float"),
    "numpy float": (lambda: np.float32(1.5), "float"),
    "numpy nan": (lambda: np.float64("nan"), ""),
    "numpy bool": (lambda: np.bool_(True), "bool"),
    "numpy text": (lambda: np.str_("abc"), "str"),
    "numpy time": (lambda: np.datetime64("2020-01-01"), ""),
    "array of one": (lambda: np.array(3), "ndarray"),
    "an array": (lambda: np.zeros((2, 2), np.float32), "ndarray Iterable"),
    "array of objects": (lambda: np.array([None, "a"], object), "ndarray Iterable"),
    "no list": (list, "Sequence Iterable list"),
    "list": (lambda: [1, 2], "Sequence Iterable Array"),
    "list of None": (lambda: [None], "Sequence Iterable"),
    "list of texts": (lambda: ["abc", "\0"], "Sequence Iterable"),
    "list of huge": (lambda: [10**30], "Sequence Iterable"),
    "tuple": (lambda: (), "Sequence Iterable tuple"),
    "nested": (lambda: _nested(5_000), "Sequence Iterable"),
    "list in itself": (_own, "Sequence Iterable"),
    "set": (lambda: {1, 2}, "Iterable"),
    "range": (lambda: range(3), "Sequence Iterable"),
    "generator": (_generator, "Iterable"),
    "generator that raises": (lambda: (1 // 0 for _ in range(2)), "Iterable"),
    "no dict": (dict, "Mapping Iterable"),
    "dict": (lambda: {"a": 1}, "Mapping Iterable"),
    "dict of numbers": (lambda: {1: 2}, "Mapping Iterable"),
    "dict of None": (lambda: {None: None}, "Mapping Iterable"),
    "dict of NUL": (lambda: {"\0": "\0"}, "Mapping Iterable"),
    "object": (object, ""),
    "raising": (_Raising, "Callable"),
    "a class": (lambda: int, "Callable"),
    "function": (lambda: len, "Callable"),
    "function that raises": (lambda: lambda *a: 1 // 0, "Callable"),
    "module": (lambda: os, ""),
    "exception": (lambda: ValueError("a"), ""),
    "path": (lambda: Path("abc"), "PathLike"),
    "path of NUL": (lambda: Path("a\0b"), "PathLike"),
    "text subclass": (lambda: _Text("abc"), "str"),
    "int subclass": (lambda: _Whole(3), "int float"),
    "memoryview": (lambda: memoryview(b"abc"), "Sequence Iterable"),
}
"""Values for any parameter, and the words of annotations that allow them; whatever else takes them is a finding."""

SAME: dict[str, Callable[[Any], Any]] = {
    "numpy scalar": lambda v: {bool: np.bool_, int: np.int64, float: np.float64, str: np.str_}[type(v)](v),
    "subclass": lambda v: {int: _Whole, str: _Text, dict: _Dict}[type(v)](v),
    "ordered": lambda v: collections.OrderedDict({dict: v}[type(v)]),
}
"""What is the same as a right value."""

ARRAYS: dict[str, tuple[Callable[[np.ndarray], Any], str]] = {
    "column order": (np.asfortranarray, "same"),
    "strided": (_strided, "same"),
    "reversed twice": (lambda a: a[::-1].copy()[::-1], "same"),
    "other byte order": (lambda a: a.astype(a.dtype.newbyteorder()), "same"),
    "read-only": (read_only, "same"),
    "misaligned": (unaligned, "same"),
    "subclass": (lambda a: a.view(type("Sub", (np.ndarray,), {})), "same"),
    "masked": (lambda a: np.ma.masked_array(a, np.zeros(a.shape, bool)), "same"),
    "list": (lambda a: a.tolist(), "same"),
    "memoryview": (lambda a: memoryview(a), "same"),
    "float64": (lambda a: a.astype(np.float64), "refused"),
    "float16": (lambda a: a.astype(np.float16), "refused"),
    "int32": (lambda a: a.astype(np.int32), "refused"),
    "uint64": (lambda a: a.astype(np.uint64), "refused"),
    "bool": (lambda a: a.astype(bool), "refused"),
    "complex": (lambda a: a.astype(np.complex64), "refused"),
    "texts": (lambda a: a.astype(str), "refused"),
    "bytes": (lambda a: a.astype(bytes), "refused"),
    "objects": (lambda a: a.astype(object), "refused"),
    "times": (lambda a: a.astype(np.int64).astype("m8[s]"), "refused"),
    "structured": (lambda a: np.zeros(a.shape, [("a", a.dtype)]), "refused"),
    "void": (lambda a: np.zeros(a.shape, "V4"), "refused"),
    "a dimension more": (lambda a: a[None], "refused"),
    "a dimension less": (lambda a: a[0], "refused"),
    "a column more": (lambda a: np.concatenate([a, a], -1), "refused"),
    "no column": (lambda a: a[..., :0], "refused"),
    "many dimensions": (lambda a: a.reshape((1,) * 60 + a.shape), "refused"),
    "broadcast": (lambda a: np.broadcast_to(a, (3, *a.shape)), "refused"),
    "ragged": (lambda a: [[1, 2], [3]], "refused"),
    "list of texts": (lambda a: ["a", "b"], "refused"),
    "list of None": (lambda a: [None, None], "refused"),
    "list of huge": (lambda a: [10**400, 1], "refused"),
    "number": (lambda a: 3, "refused"),
}
"""What may be wrong with an array, and whether it is refused as an input."""
BINDABLE = {"subclass", "masked", "read-only", "reversed twice"}
"""Of those that are the same, what may be the memory of a call as it is."""

LEAST = {
    "threads": 1, "max_new_tokens": 0, "top_k": 1, "window": 1, "runs": 1, "in_flight": 1, "limit": 1, "retries": 0,
    "seed": 0, "temperature": 0, "memory_limit": 1, "rtol": 0, "atol": 0, "trials": 0, "seconds": 0, "timeout": 0,
}  # fmt: skip
"""The least that numbers may be; what is below is refused."""


LASTING, HUGE = {"runs", "seconds"}, {"2^31", "2^63", "10^30", "10^5000", "1e308", "inf"}
"""What goes on for as long as it is told to, and what it is not told."""
ALIASES = {
    "Devices": "int list tuple Sequence Mapping None", "Faults": "Mapping None", "Shapes": "Mapping",
    "Model": "str bytes PathLike", "AnyTarget": "str", "Config": "Mapping str PathLike", "Selector": "str Callable",
    "AnyPath": "str PathLike", "Which": "str Callable",
}  # fmt: skip
"""What names of types stand for."""


def _kinds(name: str, annotation: str, value: Any) -> dict[str, tuple[Callable[[], Any], str]]:
    """Return what is put in place of an argument, by name, and whether that is refused, the same, or either."""
    words = set(re.findall(r"\w+", annotation))
    words.update(word for alias in words & ALIASES.keys() for word in ALIASES[alias].split())
    kinds: dict[str, tuple[Callable[[], Any], str]] = {}
    if words & {"Array", "Output", "Bound"}:
        for kind, (change, verdict) in ARRAYS.items():
            if "Array" not in words and verdict == "same":
                verdict = "either" if kind in BINDABLE or (value.ndim < 2 and kind == "column order") else "refused"
                if kind == "read-only":
                    verdict = "refused" if "Output" in words else "same"
            kinds[f"array, {kind}"] = (lambda change=change: change(value)), verdict
    else:
        for kind, same in SAME.items():
            with contextlib.suppress(KeyError):
                same(value)
                kinds[f"same, {kind}"] = (lambda same=same: same(value)), "same"
    for kind, (make, allowing) in ANY.items():
        allowed = bool(words & {*allowing.split(), "Any"})
        if allowed and name in LEAST:
            number = make()
            allowed = isinstance(number, (str, type(None))) or not number < LEAST[name]
        if not (name in LASTING and kind in HUGE):
            kinds[kind] = make, "either" if allowed else "refused"
    return kinds


@functools.cache
def cases() -> list[tuple[str, str, str]]:
    """Return all kinds of cases, in an order of chance: entry, parameter, what is put there."""
    every = [
        (entry_name, name, kind)
        for entry_name, entry in ENTRIES.items()
        for name, annotation in entry.annotations().items()
        for kind in _kinds(name, annotation, entry.valid()[name])
    ]
    random.Random("api").shuffle(every)
    return every


def case(seed: int) -> list[tuple[str, str, str]]:
    """Return what is wrong in a call: all kinds in turn, then one or two at random of one function."""
    every = cases()
    if seed < len(every):
        return [every[seed]]
    rng, _ = generators("api", seed)
    first = rng.choice(every)
    others = [each for each in every if each[0] == first[0] and each[1] != first[1]]
    return [first, rng.choice(others)] if others else [first]


def check(seed: int) -> Counter[str]:
    """Make the call of a seed, and judge what comes of it."""
    wrong = case(seed)
    entry = ENTRIES[wrong[0][0]]
    arguments, verdicts = entry.valid(), set()
    for _, name, kind in wrong:
        make, verdict = _kinds(name, entry.annotations()[name], arguments[name])[kind]
        arguments[name] = make()
        verdicts.add(verdict)
    before = Path.cwd()
    os.chdir(_folder())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = entry.call(**arguments)
    except TinycompError as error:
        if verdicts == {"same"}:
            raise WrongError(f"{wrong} is refused: {error}") from error
        if not (error.where or error.expected or error.found or error.hint):
            raise WrongError(f"{wrong}: the error says neither where nor what: {error}") from error
        if len(str(error)) > 10_000:
            raise WrongError(f"{wrong}: the error has {len(str(error))} letters") from error
        return Counter(refused=1)
    except TypeError:
        if not {kind for *_, kind in wrong} & {"a class", "function"}:
            raise
        return Counter(raised=1)  # the caller's own
    except ZeroDivisionError:
        return Counter(raised=1)  # the caller's own
    finally:
        os.chdir(before)
    if "refused" in verdicts:
        raise WrongError(f"{wrong} is accepted")
    if verdicts == {"same"} and entry.result(result) != entry.result(entry.call(**entry.valid())):
        raise WrongError(f"{wrong} gives another result")
    return Counter(accepted=1)


def save(seed: int, folder: Path, stem: str) -> None:
    """Write which call it is."""
    (folder / f"{stem}.call.txt").write_text(f"{case(seed)}\n", encoding="utf-8")


HARNESS = Harness("api", check, save, seconds=20.0)
