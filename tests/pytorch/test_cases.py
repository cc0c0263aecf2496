"""What PyTorch programs do with tensors: a sample of the tables, or as many cases as ``TINYCOMP_PYTORCH_CASES`` says.

``TINYCOMP_PYTORCH_CASES=all python -m pytest tests/pytorch/test_cases.py`` tries all, which takes most of an hour.
"""

from __future__ import annotations

import os
import random
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript", reason="PyTorch's ONNX exporter needs onnxscript")

from tests.pytorch import cases, edges  # noqa: E402
from tinycomp.errors import UnsupportedError  # noqa: E402
from tinycomp.pytorch.effects import refuse_effects  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")]
COUNT = os.environ.get("TINYCOMP_PYTORCH_CASES", "2")
QUICK = ["complex", "conjugated", "meta", "nested", "sparse", "quantised", "of MKL-DNN", "a number", "None", "text"]
"""Arguments that are refused, or not for us, before anything is compiled."""


def chosen() -> list[object]:
    """Sample each table; of what takes no time more."""
    everything, picked = [*cases.everything()], random.Random(7)
    if COUNT != "all":
        groups = [
            [case for case in everything if case[0] is cases.writing],
            [case for case in everything if case[0] is cases.trial and case[2] not in QUICK],
            [case for case in everything if case[0] is cases.trial and case[2] in QUICK] * 3,
        ]
        shares = (int(COUNT), int(COUNT), 8 * int(COUNT))
        everything = [c for group, share in zip(groups, shares, strict=True) for c in picked.sample(group, share)]
        everything = [*dict.fromkeys(everything)]
    return [pytest.param(*case, id=f"{case[1]}, {case[2]}") for case in everything]


@pytest.fixture(autouse=True)
def fresh():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.compiler.reset()


@pytest.mark.rows(8 if COUNT == "2" else None)
@pytest.mark.parametrize(("trial", "what", "argument"), chosen())
def test_what_is_compiled_is_what_pytorch_does_or_refused_by_name(trial, what: str, argument: str) -> None:
    trial(what, argument)


@pytest.mark.parametrize(
    ("what", "argument", "said"),
    [
        ("twice", "complex", "argument l_x_: a tensor has complex numbers; expected real numbers in strided memory"),
        ("cloned", "float8", "a tensor has floats of 8 bits"),
        ("a part added to", "bool", "for the types of its operands; found aten.mul_.Tensor, result type Long"),
        ("twice", "meta", "a tensor has a device; .*found torch.float32, torch.strided, meta"),
        ("filled by index", "overlapping", r"elements of an argument share memory, and .*strides \(1, 1\)"),
        ("gradient", "contiguous", "torch.func: the graph differentiates or maps by itself"),
    ],
)
def test_what_is_refused_says_why(what: str, argument: str, said: str) -> None:
    with torch.no_grad():
        run = cases.compiled(cases.FUNCTIONS[what])
        with pytest.raises(Exception, match=said) as raised:
            run(cases.ARGUMENTS[argument]())
    assert isinstance(raised.value.__cause__ or raised.value.inner_exception, UnsupportedError)


@pytest.mark.parametrize(
    ("what", "argument"),
    [
        ("cloned", "a parameter"),
        ("made of views", "negated"),
        ("itself and more", "negated"),
        ("summed", "float16"),
        ("detached", "a parameter"),
    ],
)
def test_what_was_unclear_is_right(what: str, argument: str) -> None:
    assert cases.trial(what, argument) == ""


@pytest.mark.rows(6)
@pytest.mark.parametrize(("line", "arguments"), edges.EDGES)
def test_what_eager_code_refuses_is_refused_and_the_rest_is_right(line: str, arguments: str) -> None:
    function, make = edges.steps(line), edges.EDGES[line, arguments]
    run = cases.compiled(lambda given: function(*given))
    with torch.no_grad():
        assert cases.hold(run, lambda given: function(*given), make) == ""


@pytest.mark.parametrize(("line", "arguments"), edges.SAID)
def test_what_eager_code_refuses_whatever_the_values_are_says_so(line: str, arguments: str) -> None:
    run = cases.compiled(edges.steps(line))
    with torch.no_grad(), pytest.raises(Exception, match="tinycomp") as raised:
        run(*edges.EDGES[line, arguments]())
    assert edges.SAID[line, arguments] in cases.refused(raised.value)


VALUES = {"Tensor": torch.ones(2), "number": 2.0, "int": 2, "float": 2.0}
IN_PLACE = [
    overload
    for packet in (getattr(torch.ops.aten, n) for n in dir(torch.ops.aten) if n.endswith("_") and n[0] != "_")
    if isinstance(packet, torch._ops.OpOverloadPacket)
    for overload in (getattr(packet, name) for name in packet.overloads())
    if {torch.Tag.pointwise, torch.Tag.inplace} <= {*overload.tags}
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_of_writes_in_place_those_are_refused_that_eager_code_refuses(dtype: object) -> None:
    """Every operator of PyTorch that works in place, element by element."""
    refused = 0
    for overload in IN_PLACE:
        given = [each for each in overload._schema.arguments if not each.kwarg_only and not each.has_default_value()]
        values = [VALUES[str(each.type)] for each in given]
        values = [each.to(dtype) if isinstance(each, torch.Tensor) else each for each in values]
        graph, nodes = torch.fx.Graph(), []
        for i, value in enumerate(values):
            nodes.append(graph.placeholder(f"x{i}") if isinstance(value, torch.Tensor) else value)
            if isinstance(value, torch.Tensor):
                nodes[-1].meta["val"] = value
        program = SimpleNamespace(graph=graph)
        graph.call_function(overload, tuple(nodes))
        try:
            overload(values[0].clone(), *values[1:])
        except RuntimeError as error:
            if "can't be cast" in str(error):
                with pytest.raises(UnsupportedError, match="eager code refuses an operator for the types"):
                    refuse_effects(program)
                refused += 1
        else:
            refuse_effects(program)
    assert refused or dtype == torch.float32
