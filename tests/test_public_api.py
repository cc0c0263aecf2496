"""The names and signatures that other people's code relies on, and the examples in the documentation of the code."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import inspect
import pkgutil

import numpy as np
import pytest

import tinycomp
from tinycomp.runtime.advice import Advice, AdviceList
from tinycomp.runtime.report import Report

pytestmark = pytest.mark.rows(None)

SIGNATURES = {
    "Device": "()",
    "DeviceBuffer": "(device, memory, handle, shape, dtype, offset=0, *, keeps=None)",
    "DeviceFault": "(message, *, command='', region='', sources=(), **parts)",
    "FaultPolicy": "(retries=0, fallback=False, timeout=None)",
    "Graph": "(name='main', *, infer=None, opsets=None)",
    "Module": "(parts)",
    "P": None,
    "Pipeline": "(passes, *, check=False, observers=())",
    "Target": "(name, *, bind_constants=True, claims_structural=True, tolerance=None, policy=None, description='',"
    " requires=None, programs=False, options=None, static_shapes=False, canonical=False, legalize=(), buckets=(),"
    " requantize='float', cost=None, version=None)",
    "TinycompError": "(message, *, where='', expected='', found='', hint='', snippet='')",
    "compile": "(model, target='c', *, shapes=None, threads=None, strict=False, passes=None, dump=None, verify=False,"
    " memory_limit=None, policy=None, place=None, options=None, specialize=False, optimize=True, precision=None,"
    " timeout=None, devices=None, faults=None, cache=None)",
    "from_onnx": "(model, shapes=None)",
    "from_torch": "(model, example_inputs=(), *, dynamic_shapes=None, kwargs=None)",
    "generate": "(module, tokens, *, max_new_tokens=128, temperature=0.0, top_k=None, top_p=None, stop=(), seed=None,"
    " config=None)",
    "load": "(source, *, threads=None, targets=(), trusted=False, devices=None, faults=None)",
    "pipeline_requests": "(module, requests, *, in_flight=None)",
    "quantize": "(model, calibration=None, *, method=None, activations=None, symmetric=None, per_channel=True,"
    " reduce_range=False, bias_correction=True, equalize=False, keep_float=(), percentile=None, shapes=None,"
    " threads=None, progress=None, weights='int8', block=32, accuracy_level=0, target=None)",
    "reject": "(reason)",
    "score": "(model, files, output, *, columns=None, keep=None, batch=None, workers=None, threads=1, ray=None,"
    " progress=None)",
    "to_c": "(module, cpu='generic', *, name='model', feeds=None, seed=0, weights='array')",
    "to_ep_context": "(module, path, *, embed=True, sources=None)",
    "to_onnx": "(graph, *, model_name=None, functions=True)",
    "tune": "(model, log='tuning.jsonl', *, shapes=None, threads=None, progress=None)",
}
NEEDS = {"from_torch": "torch", "score": "pyarrow"}
"""What names need that ``import *`` leaves out."""
MEMBERS = {
    "Device": {
        *("name", "memories", "allocate", "free", "copy", "submit", "wait", "close"),
        *("load", "reaches", "view", "adopt", "empty", "put", "from_dlpack", "adopted"),
    },
    "DeviceBuffer": {"nbytes", "part", "numpy", "write", "release"},
    "DeviceFault": set(),
    "FaultPolicy": {"retries", "fallback", "timeout", "recovers"},
    "Module": {
        "close", "devices", "in_flight", "run_async", "inputs", "blobs", "bounds", "cache_file", "outputs", "defaults",
        "general", "graph", "plan", "threads", "run", "report", "profile", "save", "to_bytes", "bind",
    },
    "Pipeline": {"run"},
    "Target": {
        *("composite", "op", "accept", "codegen", "region_check", "checks_regions", "judge"),
        *("rules_for", "generates", "build", "require", "excluded", "reads_quantized"),
        *("with_options", "under", "for_plan", "composites", "tolerance"),
        *("loader", "compatibility", "load", "compatible", "layouts", "layout", "has_layouts"),
        "requantize",
        *("device", "has_devices", "open_device", "quantization", "quantization_rule", "quantization_rules"),
    },
    "TinycompError": set(),
}  # fmt: skip
INTERFACES = {
    "Graph.to_networkx": "(self)",
    "Module.__call__": "(self, *args, **named)",
    "Device.allocate": "(self, size, memory)",
    "Device.copy": "(self, source, target)",
    "Device.submit": "(self, region, operands, results)",
    "Device.wait": "(self, event, timeout=None)",
    "Module.run_async": "(self, feeds, *, outputs=None, timeout=None)",
    "Module.run": "(self, feeds, *, outputs=None, timeout=None)",
    "Module.profile": "(self, feeds, runs=20)",
    "Module.save": "(self, path)",
    "Module.to_bytes": "(self)",
    "Module.bind": "(self, inputs, outputs=None)",
    "Module.report": "(self)",
    "Pipeline.run": "(self, graph)",
    "Target.op": "(self, *ops)",
    "Target.composite": "(self, function=None, *, name=None)",
    "Target.codegen": "(self, function)",
    "Target.with_options": "(self, **values)",
    "Target.loader": "(self, function)",
    "Target.compatibility": "(self, function)",
    "Target.load": "(self, blob)",
    "Target.compatible": "(self, version)",
}


def bare(function: object) -> str:
    """The signature without annotations."""
    signature = inspect.signature(function)
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def test_names():
    assert sorted(tinycomp.__all__) == sorted(SIGNATURES.keys() - NEEDS.keys())
    assert SIGNATURES.keys() <= set(dir(tinycomp))
    with pytest.raises(AttributeError, match="module 'tinycomp' has no attribute 'complie'"):
        _ = tinycomp.complie


@pytest.mark.parametrize("name", [n for n, s in SIGNATURES.items() if s is not None])
def test_signatures(name):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    assert bare(getattr(tinycomp, name)) == SIGNATURES[name]
    assert inspect.getdoc(getattr(tinycomp, name))


@pytest.mark.parametrize("name", MEMBERS)
def test_members(name):
    kind = getattr(tinycomp, name)
    assert {m for m in vars(kind) if not m.startswith("_")} == MEMBERS[name]


@pytest.mark.parametrize("name", INTERFACES)
def test_interfaces(name):
    kind, member = name.split(".")
    assert bare(getattr(getattr(tinycomp, kind), member)) == INTERFACES[name]


def test_what_reports_advise():
    assert bare(Report.advice) == "(self, model=None, *, trials=200, seconds=60.0)"
    assert {f.name for f in dataclasses.fields(AdviceList)} == {"items", "trials", "cut"}
    assert [f.name for f in dataclasses.fields(Advice) if not f.name.startswith("_")] == [
        "kind", "target", "nodes", "text", "change", "regions_before", "regions_after", "macs_before", "macs_after",
    ]  # fmt: skip
    assert bare(Advice.apply) == "(self)"


def modules() -> list[str]:
    found = [m.name for m in pkgutil.walk_packages(tinycomp.__path__, "tinycomp.")]
    return ["tinycomp", *(name for name in found if not name.endswith(("__main__", "._native", "._direct", "._guard")))]


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(str(error))
    with np.printoptions():
        failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    names = (
        "tinycomp.runtime.module",
        "tinycomp.ir.layout",
        "tinycomp.targets.c.codegen.emitter",
        "tinycomp.target.target",
    )
    for name in names:
        assert any(test.examples for test in finder.find(importlib.import_module(name))), name
