from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinycomp
from tests.frontend.samples import RELU, parse
from tests.models import light_models
from tinycomp.data import digits_model
from tinycomp.errors import ModelError, TinycompWarning
from tinycomp.frontend import import_model
from tinycomp.ir.types import TensorType
from tinycomp.ir.verify import verify


def float_info(name: str, shape: list[int | str | None]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def make(nodes: list[onnx.NodeProto], *, ir_version: int = 8, opset: int = 17, **parts: list) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "main",
        parts.get("inputs", [float_info("x", [2, 4])]),
        parts.get("outputs", [helper.make_empty_tensor_value_info("y")]),
        parts.get("initializers", []),
        value_info=parts.get("value_info", []),
    )
    return helper.make_model(graph, ir_version=ir_version, opset_imports=[helper.make_opsetid("", opset)])


def test_labels_that_repeat_are_numbered() -> None:
    names = ["same", "same", "same#2", "same"]
    nodes = [helper.make_node("Relu", [f"v{i}" if i else "x"], [f"v{i + 1}"], name=n) for i, n in enumerate(names)]
    graph = import_model(make(nodes, outputs=[float_info("v4", [2, 4])]))
    assert [node.label for node in graph.nodes] == ["same", "same#2", "same#2#2", "same#3"]


def test_a_node_keeps_operator_version_label_and_type() -> None:
    graph = import_model(parse(RELU))
    (node,) = graph.nodes
    assert (node.op, node.domain, node.version, node.sources) == ("Relu", "", 14, ("y",))
    assert str(node.output.type) == "float32[N, 4]"
    assert graph.opsets == {"": 17}
    assert [v.name for v in graph.inputs] == ["x"]
    assert graph.output_names == ("y",)


def test_path_bytes_and_proto_give_the_same_graph(tmp_path: Path) -> None:
    model = parse(RELU)
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    texts = [[repr(n) for n in import_model(m).nodes] for m in (path, str(path), model.SerializeToString(), model)]
    assert texts[0] == texts[1] == texts[2] == texts[3]


def test_ai_onnx_is_the_empty_domain() -> None:
    model = parse(RELU)
    model.graph.node[0].domain = "ai.onnx"
    model.opset_import[0].domain = "ai.onnx"
    graph = import_model(model)
    assert graph.nodes[0].domain == ""
    assert graph.opsets == {"": 17}


def test_other_domains_of_onnx_are_kept() -> None:
    model = make([helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", scale=[2.0])])
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    node = import_model(model).nodes[0]
    assert (node.domain, node.version, node.attrs["scale"]) == ("ai.onnx.ml", 1, [2.0])


def test_initializers_become_constants_without_a_copy() -> None:
    weight = np.arange(8, dtype=np.float32).reshape(2, 4)
    model = make([helper.make_node("Add", ["x", "w"], ["y"])], initializers=[numpy_helper.from_array(weight, "w")])
    graph = import_model(model)
    (constant,) = graph.constants
    assert constant.name == "w"
    assert np.array_equal(constant.const, weight)
    assert not constant.const.flags.owndata
    assert not constant.const.flags.writeable
    assert len(graph) == 1


def test_an_initializer_that_is_an_input_is_a_default_value() -> None:
    model = make(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        inputs=[float_info("x", [2, 4]), float_info("w", [4])],
        initializers=[numpy_helper.from_array(np.ones(4, np.float32), "w")],
    )
    graph = import_model(model)
    assert [v.name for v in graph.inputs] == ["x", "w"]
    assert graph.constants == []
    assert graph.defaults["w"].tolist() == [1, 1, 1, 1]
    assert graph.clone().defaults["w"] is graph.defaults["w"]


def test_before_ir_version_4_an_initializer_is_a_constant_although_it_is_listed_as_input() -> None:
    model = make(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        ir_version=3,
        opset=7,
        inputs=[float_info("x", [2, 4]), float_info("w", [4])],
        initializers=[numpy_helper.from_array(np.ones(4, np.float32), "w")],
    )
    graph = import_model(model)
    assert [v.name for v in graph.inputs] == ["x"]
    assert [v.name for v in graph.constants] == ["w"]
    assert graph.defaults == {}


def test_a_model_older_than_opset_imports_is_opset_1() -> None:
    model = make([helper.make_node("Relu", ["x"], ["y"])], ir_version=1)
    del model.opset_import[:]
    graph = import_model(model)
    assert graph.opsets == {"": 1}
    assert graph.nodes[0].version == 1


def test_a_default_value_must_fit_its_input() -> None:
    model = make(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        inputs=[float_info("x", [2, 4]), float_info("w", [4])],
        initializers=[numpy_helper.from_array(np.ones(5, np.float32), "w")],
    )
    text = (
        r'input "w": the initializer does not fit the input of the same name; expected float32\[4\]; found float32\[5\]'
    )
    with pytest.raises(ModelError, match=text):
        import_model(model)


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({"value": numpy_helper.from_array(np.array([1, 2], np.int8))}, np.array([1, 2], np.int8)),
        ({"value_float": 1.5}, np.float32(1.5)),
        ({"value_floats": [1.0, 2.0]}, np.array([1, 2], np.float32)),
        ({"value_int": 3}, np.int64(3)),
        ({"value_ints": [3, 4]}, np.array([3, 4], np.int64)),
        ({"value_string": "é"}, np.array("é", object)),
        ({"value_strings": ["a", "b"]}, np.array(["a", "b"], object)),
    ],
)
def test_constant_nodes_become_constants(attributes: dict, wanted: np.ndarray) -> None:
    model = make([helper.make_node("Constant", [], ["c"], **attributes), helper.make_node("Identity", ["c"], ["y"])])
    graph = import_model(model)
    assert [n.op for n in graph.nodes] == ["Identity"]
    found = graph.nodes[0].inputs[0].const
    assert (found.dtype, found.shape) == (np.asarray(wanted).dtype, np.shape(wanted))
    assert np.array_equal(found, wanted)


def test_a_sparse_constant_becomes_dense() -> None:
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([5, 7], np.float32), "w"), numpy_helper.from_array(np.array([1, 5])), [2, 3]
    )
    model = make([helper.make_node("Identity", ["w"], ["y"])])
    model.graph.sparse_initializer.append(sparse)
    assert import_model(model).constants[0].const.tolist() == [[0, 5, 0], [0, 0, 7]]


def test_absent_inputs_are_none_and_trailing_ones_are_trimmed() -> None:
    nodes = [helper.make_node("Clip", ["x", "", "hi"], ["a"]), helper.make_node("Clip", ["a", "", ""], ["y"])]
    first, second = import_model(make(nodes, inputs=[float_info("x", [2, 4]), float_info("hi", [])])).nodes
    assert [v and v.name for v in first.inputs] == ["x", None, "hi"]
    assert [v.name for v in second.inputs] == ["a"]


def test_skipped_results_have_no_name_and_trailing_ones_are_trimmed() -> None:
    nodes = [helper.make_node("LSTM", ["x", "w", "r"], ["", "y", ""], hidden_size=3)]
    inputs = [float_info("x", [5, 1, 2]), float_info("w", [1, 12, 2]), float_info("r", [1, 12, 3])]
    (node,) = import_model(make(nodes, inputs=inputs)).nodes
    assert [v.name for v in node.outputs] == ["", "y"]
    assert str(node.outputs[1].type) == "float32[1, 1, 3]"


def test_skipped_results_count_where_their_number_says_what_the_operator_does() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 13]>
    g (float[6] x) => (float[n] y) { y, z = Split<axis = 0>(x) }""")
    model.graph.node[0].output[1] = ""
    for target in ("c", "host"):
        assert tinycomp.compile(model, target)(np.zeros(6, np.float32)).shape == (3,)


def test_an_output_may_be_an_input_a_constant_or_listed_twice() -> None:
    model = make(
        [helper.make_node("Relu", ["x"], ["r"])],
        initializers=[numpy_helper.from_array(np.ones(1, np.float32), "w")],
        outputs=[float_info("x", [2, 4]), float_info("w", [1]), float_info("r", [2, 4]), float_info("r", [2, 4])],
    )
    graph = import_model(model)
    assert [v.name for v in graph.outputs] == ["x", "w", "r", "r"]
    assert graph.output_names == ("x", "w", "r", "r_1")
    assert graph.use_count(graph.values["r"]) == 2
    verify(graph)


def test_names_of_outputs_listed_twice_avoid_those_of_others() -> None:
    model = make(
        [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Neg", ["x"], ["r_1"])],
        outputs=[float_info(name, [2, 4]) for name in ("r", "r", "x", "r", "x")],
    )
    assert import_model(model).output_names == ("r", "r_2", "x", "r_3", "x_1")


def test_declared_types_refine_what_inference_leaves_open() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["n"]), helper.make_node("Identity", ["n"], ["y"])]
    info = [helper.make_tensor_value_info("n", TensorProto.INT64, [2, "hits"])]
    graph = import_model(make(nodes, value_info=info))
    assert str(graph.values["n"].type) == str(graph.values["y"].type) == "int64[2, hits]"


def test_given_shapes_replace_declared_ones_and_bind_their_symbols() -> None:
    model = make(
        [helper.make_node("Add", ["x", "z"], ["y"])],
        inputs=[float_info("x", ["N", 4]), float_info("z", ["N", 4])],
        outputs=[float_info("y", ["N", 4])],
    )
    graph = import_model(model, shapes={"x": (3, 4)})
    assert [str(v.type) for v in (*graph.inputs, *graph.outputs)] == ["float32[3, 4]"] * 3
    assert import_model(model, shapes={"x": np.array([3, 4])}).inputs[0].type == graph.inputs[0].type
    symbolic = import_model(model, shapes={"x": ("M", None)})
    assert symbolic.inputs[0].type == TensorType("float32", ("M", "x.1"))


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ({"imput": (1, 4)}, r'shapes names the input "imput".*one of \[\'input\', \'other\'\].*Did you mean "input"\?'),
        ({"input": (1, 4, 4)}, r'input "input": the given shape has the wrong rank; expected 2 dimensions'),
        ({"input": (10**5000, 4, 4)}, "the given shape has the wrong rank; .*; found a list"),
        ({"input": (-1, 4)}, r"a dimension of the given shape is not valid; expected a size of at least 0.*found -1"),
        ({"input": (True, 4)}, r"a dimension of the given shape is not valid; .*found True"),
        ({"input": "NM"}, r'input "input": not a shape; expected a tuple such as \(1, 4\); found \'NM\''),
        ({"input": 4}, r'input "input": not a shape; expected a tuple such as \(1, 4\); found 4'),
        ({"input": {2, 4}}, r'input "input": not a shape'),
        ({"input": (1, 4), "other": (2, 4)}, r'the given shapes disagree about the dimension "N"; expected 1; found 2'),
    ],
)
def test_given_shapes_are_checked(shapes: dict, text: str) -> None:
    model = make(
        [helper.make_node("Add", ["input", "other"], ["y"])],
        inputs=[float_info("input", ["N", 4]), float_info("other", ["N", 4])],
    )
    with pytest.raises(ModelError, match=text):
        import_model(model, shapes=shapes)


def test_unsorted_nodes_are_sorted_with_a_warning() -> None:
    nodes = [helper.make_node("Neg", ["b"], ["y"]), helper.make_node("Exp", ["a"], ["b"]),
             helper.make_node("Abs", ["x"], ["a"])]  # fmt: skip
    with pytest.warns(TinycompWarning, match="not in topological order; they have been sorted"):
        graph = import_model(make(nodes))
    assert [n.op for n in graph.nodes] == ["Abs", "Exp", "Neg"]


def test_metadata_is_kept() -> None:
    model = parse(RELU)
    helper.set_model_props(model, {"author": "someone"})
    assert import_model(model).metadata == {"author": "someone"}


def test_strange_names_are_only_names() -> None:
    names = ['quote"', "*/ comment", "new\nline", "../up", "x" * 1_000_000, "emoji 🦊"]
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in zip(["x", *names], [*names, "y"], strict=True)]
    assert [v.name for n in import_model(make(nodes)).nodes for v in n.outputs] == [*names, "y"]


@pytest.mark.long
def test_a_long_chain_needs_no_recursion() -> None:
    count = 40_000
    nodes = [helper.make_node("Relu", [f"v{i}" if i else "x"], [f"v{i + 1}"]) for i in range(count)]
    model = make(nodes, outputs=[float_info(f"v{count}", [2, 4])])
    graph = import_model(model)
    assert len(graph) == count
    reverse = make(nodes[::-1], outputs=[float_info(f"v{count}", [2, 4])])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TinycompWarning)
        assert len(import_model(reverse)) == count


@pytest.mark.parametrize("path", light_models(), ids=lambda p: p.stem)
def test_models_of_the_onnx_package(path: Path) -> None:
    graph = import_model(path)
    read = [v for n in graph.nodes for v in n.outputs if graph.use_count(v)]
    assert all(v.type.static_shape is not None for v in read)
    assert len(graph.inputs) == 1


@pytest.mark.parametrize("quantized", [False, True])
def test_the_model_in_the_package(quantized: bool) -> None:
    graph = import_model(digits_model(quantized))
    assert str(graph.outputs[0].type) == "float32[N, 10]"


def test_models_of_the_model_folder(models: Path) -> None:
    for path in sorted(models.rglob("*.onnx")):
        graph = import_model(path)
        assert all(v.type.dtype != "?" for n in graph.nodes for v in n.used_outputs()), path.name
