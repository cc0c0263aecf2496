"""What the C target refuses: the reason in its words, and the host that computes it instead."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import tinycomp
from tests.cases.values import floats
from tests.targets.c.harness import (
    Case,
    Const,
    assert_close,
    compile_for,
    make_model,
    run_onnxruntime,
)
from tinycomp.errors import ExecutionError
from tinycomp.frontend.definition import defines
from tinycomp.targets.c import TARGET

IMAGE = floats(1, 3, 6, 6)
WEIGHTS = floats(4, 3, 3, 3, seed=1)
REFUSED: list[tuple[Case, str]] = [
    (Case("Sum", [floats(3)] * 12), "12 operands; a kernel takes 11"),
    (Case("Conv", [IMAGE, WEIGHTS]), 'operand 1 ("x1") is not a constant'),
    (Case("Gemm", [floats(3, 4), Const(floats(4, 5)), floats(5)], of_largest=1e-5),
        "C is not a constant and has shape (5,), not (3, 5)"),
    (Case("Gemm", [floats(3, 4), Const(floats(4, 5)), floats(3, 5)], {"beta": 0.5}, of_largest=1e-5),
        "C is not a constant and is scaled by 0.5"),
    (Case("MaxPool", [IMAGE], {"kernel_shape": [2, 2]}, outputs=2), "the indices of the maxima are asked for"),
    (Case("LayerNormalization", [floats(2, 4), Const(floats(4))], outputs=2),
        "the mean or the inverse deviation is asked for"),
    (Case("BatchNormalization", [IMAGE, *(floats(3, low=0.5),) * 4], of_largest=1e-5),
        'operand 1 ("x1") is not a constant'),
    (
        Case("BatchNormalization", [IMAGE, *(Const(floats(3, low=0.5)),) * 4], {"training_mode": 1}, outputs=3,
            of_largest=1e-5),
        "training mode",
    ),
    (Case("Transpose", [np.array(["a", "b"], object)]), "its texts are only moved"),
    (Case("ConvTranspose", [IMAGE, Const(floats(3, 2, 3, 3))], {"auto_pad": "SAME_UPPER"}, of_largest=1e-5),
        "the padding follows from the output shape"),
    (Case("ArgMax", [floats(3).astype("f2")]), "is float16[3], not float32"),
    (Case("OneHot", [floats(3), Const(np.array(4)), floats(2)]), "indices are float32"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "reason"), REFUSED, ids=lambda p: str(p)[:60] if isinstance(p, Case) else "")
def test_the_reason_is_given_and_the_host_takes_over(case, reason):
    module = compile_for(case.model())
    report = module.report()
    (node,) = tinycomp.from_onnx(case.model()).nodes
    if defines(node) and not report.hosts:  # the rule refuses it, but other operators do the same
        assert any(reason in str(rule.refusal(node)) for rule in TARGET.rules_for(node)), reason
    else:
        assert report.regions == ()
        assert [h.op for h in report.hosts] == [case.op]
        assert any(reason in str(r) for r in report.hosts[0].reasons), report.hosts[0].reasons
    results = list(module.run(case.feeds).values())
    peer = run_onnxruntime(case.model(), case.feeds) if case.onnxruntime else None
    for found, wanted in zip(results, peer or [], strict=bool(peer)):
        if found.dtype == object:
            assert found.tolist() == wanted.tolist()
        else:
            assert_close(found, wanted, case, str(case))


def test_refusals_of_composites_are_in_the_report():
    feeds = {"x": IMAGE, "r": floats(1, 4, 1, 1)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Add", ["c", "r"], ["y"], name="add"),
    ]
    model = make_model(nodes, feeds, {"w": WEIGHTS.astype(np.float32)}, ["y"])
    assert compile_for(model).report().regions[0].composites == {}


def unknown_sizes(op, operands, constants, **attrs):
    """Return a model in which every operand passes a Slice that keeps a number of rows only known at run time."""
    feeds = {**operands, "rows": np.array([2]), "one": np.array([1])}
    nodes = [
        helper.make_node("Slice", [n, "zero", "rows" if i == 0 else "one"], [f"{n}_cut"], name=f"cut_{n}")
        for i, n in enumerate(operands)
    ]
    nodes.append(helper.make_node(op, [f"{n}_cut" for n in operands] + list(constants), ["y"], name="node", **attrs))
    return make_model(nodes, feeds, {**constants, "zero": np.array([0])}, ["y"]), feeds


def test_two_unknown_sizes_are_not_taken_for_equal():
    model, feeds = unknown_sizes("LayerNormalization", {"x": floats(4), "s": floats(4, seed=1)}, {})
    module = compile_for(model)
    assert any("not of the normalised shape" in str(r) for r in module.report().why("node")[0].reasons)
    np.testing.assert_allclose(module.run(feeds)["y"], run_onnxruntime(model, feeds)[0], rtol=1e-5)


def test_sizes_only_known_at_run_time_are_compiled_when_they_are_seen():
    model, feeds = unknown_sizes("Add", {"x": floats(4, 5), "s": floats(4, 5, seed=1)}, {})
    module = compile_for(model)
    assert module.report().where("node") == "c_0"
    for rows in (1, 2, 4):
        feeds = {**feeds, "rows": np.array([rows])}
        np.testing.assert_array_equal(module.run(feeds)["y"], run_onnxruntime(model, feeds)[0])


def test_an_index_out_of_range_fails_and_names_the_region():
    case = Case("Gather", [floats(4, 2), np.array([1, 4])])
    module = compile_for(case.model(), strict=True)
    with pytest.raises(ExecutionError, match=r"c_0, node \S+ \(gather\): an index is out of range"):
        module.run(case.feeds)
    np.testing.assert_array_equal(module(floats(4, 2), np.array([1, -4])), floats(4, 2)[[1, 0]])
