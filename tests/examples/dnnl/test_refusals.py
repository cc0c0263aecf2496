"""What the target refuses: the reason in its words, which the report shows beside the node."""

from __future__ import annotations

import numpy as np
import pytest

import tinycomp
from tests.examples.dnnl.harness import TARGET, floats
from tests.targets.c.harness import Case, Const
from tinycomp.driver.pipeline import Pipeline, partitioning_passes
from tinycomp.driver.report import make_report

IMAGE = floats(1, 3, 6, 6)
FILTERS = floats(4, 3, 3, 3)

REFUSED: list[tuple[Case, str]] = [
    (Case("Relu", [floats(3).astype("f8")]), 'operand 0 ("x0") is float64[3], not float32'),
    (Case("Add", [np.arange(3), np.arange(3)]), 'operand 0 ("x0") is int64[3], not float32'),
    (Case("Add", [floats(*(1,) * 7), floats(1)]), "ranks go up to 6, sizes from 1"),
    (Case("Exp", [floats(2, 0)]), '"x0" has shape (2, 0); ranks go up to 6, sizes from 1'),
    (Case("Conv", [IMAGE, FILTERS]), 'operand 1 ("x1") is not a constant'),
    (Case("Conv", [IMAGE, Const(FILTERS), floats(4)]), 'operand 2 ("x2") is not a constant'),
    (Case("Gemm", [floats(3, 4), floats(4, 5)], {"alpha": 0.5}), "alpha is 0.5 and B is not a constant to put it into"),
    (Case("Sub", [floats(3), floats(2, 3)]), "operands of shapes (3,) and (2, 3): only the second"),
    (Case("Mul", [floats(2, 1), floats(1, 3)]), "operands of shapes (2, 1) and (1, 3): only the second"),
    (Case("Max", [floats(3), floats(3), floats(3)]), "not two operands that broadcast as in numpy"),
    (Case("MaxPool", [IMAGE], {"kernel_shape": [2, 2]}, outputs=2), "the indices of the maxima are asked for"),
    (
        Case("AveragePool", [IMAGE], {"kernel_shape": [3, 3], "ceil_mode": 1, "count_include_pad": 1}),
        "windows that reach beyond the padding would count cells that are not there",
    ),
    (
        Case("AveragePool", [IMAGE], {"kernel_shape": [2, 2], "dilations": [2, 2], "pads": [1, 1, 1, 1]}),
        "a dilated mean that leaves the padding out",
    ),
    (
        Case("ReduceMean", [IMAGE, Const(np.array([1], np.int64))]),
        "a mean over the axes [1], not over the spatial ones",
    ),
    (Case("GlobalMaxPool", [floats(1, 1, 2, 2, 2, 2)]), "operand 0 has rank 6, not 3 or 4 or 5"),
    (Case("Flatten", [floats(2, 3, 4)]), "nothing next to it runs on the target"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "reason"), REFUSED, ids=lambda part: str(part) if isinstance(part, Case) else "")
def test_refusal(case: Case, reason: str) -> None:
    """The passes ask the rules, and need no library for it."""
    graph = Pipeline(partitioning_passes((TARGET,)))(tinycomp.from_onnx(case.model()))
    report = make_report(graph, "model", ["dnnl"])
    assert report.regions == ()
    told = [str(r) for row in report.hosts for r in row.reasons]
    assert any(reason in text for text in told), told
