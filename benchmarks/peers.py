"""The engines that are compared: tinycomp itself, and the CPU engines of others, each set up at its best.

Loading gives a function from feeds (arrays by input name) to the list of outputs, in the model's order. Every engine
computes in float32 where the model says so; OpenVINO would otherwise take bfloat16 on processors that have it. IREE and
TVM compile for the processor at hand with their standard pipelines, without searching for schedules. What a file leaves
symbolic stays so: only TVM, which needs sizes, is told those of the feeds.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Feeds = Mapping[str, NDArray[np.generic]]
Run = Callable[[Feeds], list[NDArray[np.generic]]]

OURS = "tinycomp"
REFERENCE = "onnxruntime"
"""The engine whose outputs the others are compared with."""


def load_tinycomp(model: Path, threads: int, feeds: Feeds) -> Run:
    """Our own C runtime, told no more than the file says."""
    return _tinycomp(model, threads)


def load_tinycomp_bf16(model: Path, threads: int, feeds: Feeds) -> Run:
    """The same with factors of products in bfloat16."""
    return _tinycomp(model, threads, precision="bf16")


def save_tinycomp(model: Path, saved: Path) -> None:
    """A saved module."""
    import tinycomp

    tinycomp.compile(model, target="c").save(saved)


def load_saved_tinycomp(saved: Path, threads: int, feeds: Feeds) -> Run:
    """A saved module, without the compiler."""
    import tinycomp

    return _runner(tinycomp.load(saved, threads=threads))


def load_cached_tinycomp(model: Path, threads: int, feeds: Feeds, folder: Path) -> Run:
    """A module that a cache in the folder holds, or will hold."""
    return _tinycomp(model, threads, cache=folder)


def _tinycomp(model: Path, threads: int, **options: Any) -> Run:
    import tinycomp

    return _runner(tinycomp.compile(model, target="c", threads=threads, **options))


def _runner(module: Any) -> Run:
    names = [output.name for output in module.outputs]

    def run(feeds: Feeds) -> list[NDArray[np.generic]]:
        results = module.run(feeds)
        return [results[name] for name in names]

    return run


def load_onnxruntime(model: Path, threads: int, feeds: Feeds) -> Run:
    """ONNX Runtime's CPU provider with all graph optimisations (the default)."""
    return _onnxruntime(model, threads)


def save_onnxruntime(model: Path, saved: Path) -> None:
    """The optimised model, laid out for this processor."""
    _onnxruntime(model, 1, optimized_model_filepath=str(saved))


def load_saved_onnxruntime(saved: Path, threads: int, feeds: Feeds) -> Run:
    """The optimised model, which is not optimised again."""
    import onnxruntime as ort

    return _onnxruntime(saved, threads, graph_optimization_level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL)


def _onnxruntime(model: Path, threads: int, **settings: Any) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # that what is saved is for this processor only is known
    for name, value in settings.items():
        setattr(options, name, value)
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def load_openvino(model: Path, threads: int, feeds: Feeds) -> Run:
    """OpenVINO's CPU plug-in, one stream, float32, without copies of inputs and outputs."""
    return _openvino(model, threads, {"INFERENCE_PRECISION_HINT": "f32"})


def load_openvino_default(model: Path, threads: int, feeds: Feeds) -> Run:
    """The same in the precision that OpenVINO chooses: bfloat16 where the processor has instructions for it."""
    return _openvino(model, threads, {})


def _openvino(model: Path, threads: int, precision: Mapping[str, str]) -> Run:
    import openvino as ov

    core = ov.Core()
    settings = {
        **precision,
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = core.compile_model(str(model), "CPU", settings)
    request = compiled.create_infer_request()
    ports = compiled.outputs

    def run(feeds: Feeds) -> list[NDArray[np.generic]]:
        results = request.infer(feeds, share_inputs=True, share_outputs=True)
        return [results[port] for port in ports]

    return run


def load_iree(model: Path, threads: int, feeds: Feeds) -> Run:
    """IREE's llvm-cpu backend at its highest level of optimisation, for the processor at hand."""
    import iree.compiler
    import iree.runtime

    options = ["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3", "--iree-input-demote-i64-to-i32=false"]
    with tempfile.TemporaryDirectory() as folder:
        imported = Path(folder) / "model.mlir"
        command = [sys.executable, "-m", "iree.compiler.tools.import_onnx", str(model), "-o", str(imported)]
        subprocess.run([*command, "--opset-version", "17"], check=True, capture_output=True)
        binary = iree.compiler.compile_file(
            str(imported), target_backends=["llvm-cpu"], input_type="onnx", extra_args=options
        )
    iree.runtime.flags.parse_flags(f"--task_topology_group_count={threads}")
    module = iree.runtime.load_vm_flatbuffer(binary, driver="local-sync" if threads == 1 else "local-task")
    main = next(module[name] for name in module.vm_module.function_names if "$" not in name and name[0] != "_")
    names = input_names(model)

    def run(feeds: Feeds) -> list[NDArray[np.generic]]:
        results = main(*(feeds[name] for name in names))
        return [r.to_host() for r in (results if isinstance(results, (tuple, list)) else (results,))]

    return run


def load_tvm(model: Path, threads: int, feeds: Feeds) -> Run:
    """TVM's Relax pipeline for the processor at hand, with its default schedules."""
    os.environ["TVM_NUM_THREADS"] = str(threads)
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    shapes = {name: list(value.shape) for name, value in feeds.items()}
    module = from_onnx(onnx.load(model), shape_dict=shapes, keep_params_in_input=False)
    target = tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu()})
    with target:
        machine = relax.VirtualMachine(tvm.compile(module, target=target), tvm.cpu())
    names = input_names(model)

    def run(feeds: Feeds) -> list[NDArray[np.generic]]:
        results = machine["main"](*(tvm.runtime.tensor(feeds[name]) for name in names))
        return [r.numpy() for r in ([results] if hasattr(results, "numpy") else results)]

    return run


def input_names(model: Path) -> list[str]:
    """The inputs of an ONNX file that have no initializer, in order."""
    import onnx

    graph = onnx.load(model, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    return [value.name for value in graph.input if value.name not in constants]


@dataclass(frozen=True)
class Engine:
    """One engine.

    Attributes:
        load: Makes a function that runs a model; importing the engine is part of neither.
        module: What has to be importable.
        distribution: What its version stands under.
        uses: A name of the module that is only imported when it is asked for.
        hurry: Does what the engine otherwise puts off until a model needs it; that is part of neither, too.
        asked_for: Whether it takes part only where a measurement names it.
        save: Writes what the engine keeps of an ONNX file to another file, if it keeps anything.
        load_saved: Makes the function from that.
    """

    load: Callable[[Path, int, Feeds], Run]
    module: str
    distribution: str
    uses: str = "__name__"
    hurry: Callable[[], object] = bool
    asked_for: bool = False
    save: Callable[[Path, Path], None] | None = None
    load_saved: Callable[[Path, int, Feeds], Run] | None = None


def hurry_tinycomp() -> None:
    """Import what is about operators and what loads saved modules, and describe the composites."""
    for part in ("tinycomp.frontend", "tinycomp.ops", "tinycomp.passes", "tinycomp.runtime", "tinycomp.targets.c"):
        package = importlib.import_module(part)
        for module in pkgutil.walk_packages(package.__path__, f"{part}."):
            importlib.import_module(module.name)
    for part in ("tinycomp.driver.compiler", "tinycomp.driver.load", "tinycomp.driver.module_cache"):
        importlib.import_module(part)
    assert importlib.import_module("tinycomp.target").find("c").composites


ENGINES = {
    OURS: Engine(
        load_tinycomp,
        "tinycomp",
        "tinycomp",
        "compile",
        hurry_tinycomp,
        save=save_tinycomp,
        load_saved=load_saved_tinycomp,
    ),
    "tinycomp-bf16": Engine(load_tinycomp_bf16, "tinycomp", "tinycomp", "compile", hurry_tinycomp, asked_for=True),
    REFERENCE: Engine(
        load_onnxruntime, "onnxruntime", "onnxruntime", save=save_onnxruntime, load_saved=load_saved_onnxruntime
    ),
    "openvino": Engine(load_openvino, "openvino", "openvino"),
    "openvino-default": Engine(load_openvino_default, "openvino", "openvino", asked_for=True),
    "iree": Engine(load_iree, "iree.compiler", "iree-base-compiler"),
    "tvm": Engine(load_tvm, "tvm", "apache-tvm"),
}


def prepare(engine: str) -> None:
    """Import all of an engine, so that what follows is loading alone."""
    getattr(importlib.import_module(ENGINES[engine].module), ENGINES[engine].uses)
    ENGINES[engine].hurry()


def installed() -> list[str]:
    """The engines at hand, tinycomp first."""
    return [name for name, engine in ENGINES.items() if _importable(engine.module) and not engine.asked_for]


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def versions() -> dict[str, str]:
    """The version of every engine at hand, and of what they all build on."""
    found = {name: _version(ENGINES[name].distribution) for name in installed()}
    return found | {name: _version(name) for name in ("numpy", "onnx")}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "in place"


def relative_error(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """The largest difference between two outputs, over the largest magnitude of the wanted one.

    Infinite where shapes differ or only one of the two has a NaN; for integers it reads the same way.
    """
    if found.shape != wanted.shape:
        return float("inf")
    if not wanted.size:
        return 0.0
    found64, wanted64 = found.astype(np.float64), wanted.astype(np.float64)
    same = (found64 == wanted64) | (np.isnan(found64) & np.isnan(wanted64))
    if same.all():
        return 0.0
    difference = np.abs(found64 - wanted64)[~same]
    if not np.isfinite(difference).all():
        return float("inf")
    peak = np.abs(wanted64[np.isfinite(wanted64)]).max()
    return float(difference.max() / max(peak, np.finfo(np.float32).tiny))
