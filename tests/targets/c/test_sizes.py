"""Every operator of the C target with symbolic sizes: one program, compiled once, that serves every set of sizes."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tinycomp
from tests.targets.c.cases import ALL
from tests.targets.c.cases.values import floats
from tests.targets.c.harness import Case, assert_close, compile_for, make_model, run_onnxruntime
from tests.targets.c.ops import test_attention, test_norm, test_rotary
from tests.targets.c.quantized import test_run_time_products
from tests.targets.c.quantized.test_layers import LAYERS, conv
from tests.targets.c.quantized.test_weights import Product
from tests.targets.quantized_layers import Layer
from tinycomp import targets
from tinycomp.errors import TinycompError
from tinycomp.ir.graph import COMPOSITE, TINYCOMP
from tinycomp.runtime.module import Module
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.targets.c import TABLE

CASES_EACH = 6
"""Cases of an operator out of its table, evenly spread."""

BY_OP: dict[str, list[Case]] = collections.defaultdict(list)
for _case in ALL:
    if any(x.ndim for x in _case.feeds.values()):
        BY_OP[_case.op].append(_case)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that the C target generates in a test."""
    made: list[str] = []
    generate = targets.c.generate

    def counted(region: Any, *args: Any) -> Any:
        made.append(region.op)
        return generate(region, *args)

    monkeypatch.setattr(targets.c, "generate", counted)
    return made


# Single operators -----------------------------------------------------------------------------------------------------

REFUSED: Mapping[str, Sequence[str]] = {}
"""Why a case of an operator stays on the host where one of its sizes is symbolic, by operator."""


def name_of(size: int) -> str:
    return f"d{size}"


def symbolic_model(case: Case, sizes: Sequence[int]) -> onnx.ModelProto:
    """Return the case's model with a name for every dimension of one of these sizes, the same name for equal ones."""
    model = case.model()
    for info in model.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            if dim.HasField("dim_value") and dim.dim_value in sizes:
                dim.dim_param = name_of(dim.dim_value)
    return model


def resized(array: np.ndarray, old: int, new: int) -> np.ndarray:
    """Return an array whose dimensions of size ``old`` have size ``new``, its elements repeated."""
    shape = tuple(new if n == old else n for n in array.shape)
    return np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)


def refusal(model: onnx.ModelProto) -> str | None:
    """Return why the C target does not take the whole model, or None."""
    report = compile_for(model).report()
    if len(report.regions) == 1 and not report.hosts:
        return None
    return "; ".join(str(remark) for host in report.hosts for remark in host.reasons)


def spread(cases: Sequence[Case]) -> Iterator[Case]:
    step = max(1, len(cases) // CASES_EACH)
    yield from itertools.islice(cases, 0, None, step)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", sorted(BY_OP.keys() - {"Identity"}))  # one alone is not worth a region
def test_one_program_serves_all_sizes_of_an_operator(op: str, programs: list[str]):
    runs = 0
    for case in spread(BY_OP[op]):
        sizes = sorted({n for x in case.feeds.values() for n in x.shape})
        free = []
        for size in sizes:
            why = refusal(symbolic_model(case, [size]))
            if why is None:
                free.append(size)
            else:
                assert any(reason in why for reason in REFUSED.get(op, ())), f"{case}: {size}: {why}"
        if free:
            runs += serve(case, free, programs)
    assert runs > 3


def serve(case: Case, free: Sequence[int], programs: list[str]) -> int:
    """Run a case with these sizes symbolic at several sizes of each, and return how many runs that were."""
    model = symbolic_model(case, free)
    module, host = compile_for(model), compile_for(model, "host")
    assert not module.report().hosts
    assert len(module.report().regions) == 1
    programs.clear()
    runs = 0
    for old in free:
        for new in dict.fromkeys((old, 1, old + 1, 2 * old + 3, 0)):
            feeds = {name: resized(x, old, new) for name, x in case.feeds.items()}
            try:
                with np.errstate(all="ignore"):
                    wanted = list(host.run(feeds).values())
            except TinycompError:
                continue  # the operator does not work for these sizes
            found = list(module.run(feeds).values())
            for f, w in zip(found, wanted, strict=True):
                assert_close(f, w, case, f"{case}: {new} for {old}")
            peer = run_onnxruntime(model, feeds) if case.onnxruntime and new == 2 * old + 3 else None
            for f, p in zip(found, peer or [], strict=bool(peer)):
                assert_close(f, p, case, f"{case}: {new} for {old} against onnxruntime")
            runs += 1
    assert programs == []
    return runs


def test_no_operator_is_missing():
    assert {op for domain, op in TABLE if not domain} <= {*BY_OP, *WITHOUT_CASES}


def table_of(x: np.ndarray) -> list[onnx.NodeProto]:
    return []


WITHOUT_CASES: dict[str, tuple[Sequence[onnx.NodeProto], dict[str, np.ndarray], dict[str, Sequence[Any]]]] = {}
