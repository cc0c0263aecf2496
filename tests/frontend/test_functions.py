from __future__ import annotations

import onnx
import pytest

from tests.frontend.samples import FUNCTIONS, parse
from tinycomp.errors import ModelError, TypeInferenceError, UnsupportedError
from tinycomp.frontend import import_model


def changed(old: str, new: str) -> onnx.ModelProto:
    assert old in FUNCTIONS
    return onnx.parser.parse_model(FUNCTIONS.replace(old, new))


def test_a_call_has_a_body_of_its_own_with_the_attributes_of_the_call() -> None:
    graph = import_model(parse(FUNCTIONS))
    first, second = graph.nodes
    assert (first.domain, first.op, first.is_call) == ("local", "scaled", True)
    alphas = [n.body.nodes[0].attrs["alpha"] for n in (first, second)]
    assert alphas == [3.0, 0.5]
    assert first.attrs == {"factor": 3.0}
    assert str(first.output.type) == "float32[N, 4]"


def test_absent_operands_stay_absent_in_the_body() -> None:
    first, second = import_model(parse(FUNCTIONS)).nodes
    assert [v and v.name for v in second.inputs] == ["x", None]
    assert [v.name for v in second.body.inputs] == [v.name for v in first.body.inputs] == ["v", "bias"]


def test_functions_call_functions_and_labels_say_where() -> None:
    graph = import_model(parse(FUNCTIONS))
    inner = graph.nodes[0].body.nodes[1]
    assert (inner.op, inner.sources, inner.body.nodes[0].sources) == ("twice", ("y/r",), ("y/r/r",))
    assert inner.body.nodes[0].op == "Add"


def test_inlining_the_calls_leaves_plain_operators() -> None:
    graph = import_model(parse(FUNCTIONS))
    while calls := [n for n in graph.nodes if n.is_call]:
        graph.inline(calls[0])
    assert [n.op for n in graph.nodes] == ["LeakyRelu", "Add", "LeakyRelu", "Add"]
    assert str(graph.outputs[1].type) == "float32[N, 4]"


def test_a_function_has_its_own_opset() -> None:
    graph = import_model(
        changed('"local", opset_import: ["" : 17]>\ntwice', '"local", opset_import: ["" : 13]>\ntwice')
    )
    inner = graph.nodes[0].body.nodes[1].body
    assert inner.opsets == {"": 13}
    assert inner.nodes[0].version == 13


def test_overloads_are_told_apart() -> None:
    model = parse(FUNCTIONS)
    other = model.functions.add()
    other.CopyFrom(model.functions[1])
    other.overload = "negative"
    other.node[0].op_type = "Sub"
    model.functions[0].node[1].overload = "negative"
    assert import_model(model).nodes[0].body.nodes[1].body.nodes[0].op == "Sub"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("r = Add(v, v)", "r = local.scaled (v)", r"function \w+: the function calls itself: "),
        ("twice (v) => (r) { r = Add(v, v) }", "scaled (v) => (r) { r = Add(v, v) }",
         "function local::scaled: the function is defined twice"),
        ("<factor = 3.0>", "<factr = 3.0>",
         r'node y \(scaled\): function local::scaled has no attribute "factr".*Did you mean "factor"\?'),
        ("<factor: float = 0.5>", "<factor>",
         r'node z \(scaled\): attribute "factor" of function local::scaled is missing'),
        ("<factor = 3.0> (x, b)", "<factor = 3.0> (x, b, b)",
         r"the call does not fit function local::scaled; expected up to 2 inputs and 1 outputs; found 3 and 1"),
        ("alpha: float = @factor", "alpha: int = @factor",
         r'attribute "alpha" refers to "factor", which is of another kind'),
        ("r = Add(v, v)", "r = Add(v, q)",
         r'node r \(Add\): reads the value "q", which is never produced'),
        ("r = Add(v, v)", "r = Add(v, v) r = Neg(v)", 'function local::twice: the value name "r" is defined twice'),
        ("r = Add(v, v)", "s = Add(v, v)",
         r'function local::twice, output "r": reads the value "r", which is never produced'),
    ],
)  # fmt: skip
def test_functions_that_are_wrong(old: str, new: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        import_model(changed(old, new))


def test_a_reference_outside_a_function_is_refused() -> None:
    model = parse(FUNCTIONS)
    model.graph.node[0].attribute[0].ref_attr_name = "factor"
    with pytest.raises(ModelError, match='attribute "factor" refers to an attribute of a function, but this is not'):
        import_model(model)


def test_types_are_checked_inside_bodies() -> None:
    model = changed("r = Add(v, v)", "t = Cast <to = 11> (v) r = Add(v, t)")
    with pytest.raises(TypeInferenceError, match=r'node y/r/r \(Add\): inputs "A" and "B" must have one type'):
        import_model(model)


HEAD = '<domain: "local", opset_import: ["" : 17, "local" : 1]>'


def tower(height: int, body: str) -> onnx.ModelProto:
    """Return a model that calls the last of ``height`` functions, each of which calls the one before."""
    levels = [f"{HEAD} f{i} (v) => (r) {{ {body.format(below=f'local.f{i - 1}')} }}" for i in range(1, height)]
    main = f"main (float[2] x) => (float[2] y) {{ y = local.f{height - 1} (x) }}"
    start = '<ir_version: 8, opset_import: ["" : 17, "local" : 1]>'
    return onnx.parser.parse_model("\n".join([start, main, f"{HEAD} f0 (v) => (r) {{ r = Neg(v) }}", *levels]))


def test_calls_that_multiply_without_end_are_refused() -> None:
    text = r"the function calls expand to too many nodes; expected up to 250000 nodes; found about 1\.6e\+12"
    with pytest.raises(UnsupportedError, match=text):
        import_model(tower(40, "a = {below} (v) r = {below} (a)"))


def test_calls_are_bounded_in_depth() -> None:
    assert len(import_model(tower(64, "r = {below} (v)"))) == 1
    with pytest.raises(UnsupportedError, match="nested too deeply; expected up to 64 levels"):
        import_model(tower(70, "r = {below} (v)"))
