"""One pattern for attention, however the model spells it; the parameters come in the same order every time.

Two blocks differ in what an exporter may choose: which operand of a product or a sum stands first, whether the scores
are divided or multiplied, how an axis is counted, names, and the order of the inputs. Both become one composite whose
parameters are query, key, mask, value, which is the order of the pattern's arguments.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper

import tinycomp
from tinycomp.target_api import P, Target, reject

HEADS, TOKENS, DEPTH = 2, 6, 16
ORDER = ["query", "key", "mask", "value"]
npu = Target("npu")
seen = []


@npu.composite
def attention(query, key, mask, value):
    """Softmax(query @ key^T * scale + mask) @ value."""
    scores = query @ P.Transpose(key, perm=[0, 2, 1])
    scaled = scores * P.const.named("factor") | scores / P.const.named("divisor")
    return P.Softmax(scaled + mask, axis={-1, 2}) @ value


@attention.check
def _(match):
    shape = match.key.type.shape
    return (
        match.query.type.shape == match.value.type.shape == shape
        or reject(f"query, key and value must have equal shapes, key has {shape}")
    )  # fmt: skip


def scale_of(node):
    """Return the factor of the scores; a division is a multiplication by the inverse."""
    step = next(n for n in node.body.nodes if n.op in ("Mul", "Div"))
    scale = next(v.const for v in step.inputs if v.is_const)
    return 1 / scale if step.op == "Div" else scale


@npu.codegen
def build(region):
    """One attention per region; the order of its parameters is what the pattern says."""
    (node,) = region.body.nodes
    scale = scale_of(node)
    seen.append([value.name.partition("_")[0] for value in node.inputs])
    positions = [region.body.inputs.index(value) for value in node.inputs]

    def run(*operands):
        query, key, mask, value = (operands[i] for i in positions)
        scores = np.exp(query @ key.swapaxes(1, 2) * scale + mask)
        return scores / scores.sum(axis=-1, keepdims=True) @ value

    return run


def block(suffix, swapped):
    """Return the nodes of one block; ``swapped`` is the second spelling."""
    q, k, v, mask = (f"{name}_{suffix}" for name in ("query", "key", "value", "mask"))
    t, s, m, a, p = (f"t{i}_{suffix}" for i in range(5))
    scaling = ("Mul", ["scale", s]) if swapped else ("Div", [s, "root"])
    nodes = [
        helper.make_node("Transpose", [k], [t], perm=[0, 2, 1]),
        helper.make_node("MatMul", [q, t], [s]),
        helper.make_node(*scaling, [m]),
        helper.make_node("Add", [m, mask] if swapped else [mask, m], [a]),
        helper.make_node("Softmax", [a], [p], axis=2 if swapped else -1),
        helper.make_node("MatMul", [p, v], [f"y_{suffix}"]),
    ]
    for number, node in enumerate(nodes):
        node.name = f"decoder.{suffix}.{number}" if swapped else f"layer{number}/{node.op_type}"
    return nodes


def model():
    """Return two independent blocks; the second lists its inputs backwards."""
    tensor = [HEADS, TOKENS, DEPTH]
    names = [f"{name}_first" for name in ORDER] + [f"{name}_second" for name in reversed(ORDER)]
    shapes = [[TOKENS, TOKENS] if name.startswith("mask") else tensor for name in names]
    graph = helper.make_graph(
        [*block("first", swapped=False), *block("second", swapped=True)],
        "two_attentions",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(names, shapes, strict=True)],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, tensor) for n in ("y_first", "y_second")],
        [
            numpy_helper.from_array(np.float32(1 / math.sqrt(DEPTH)), "scale"),
            numpy_helper.from_array(np.float32(math.sqrt(DEPTH)), "root"),
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    checker.check_model(made)
    return made


def main():
    """Compile, look at the parameters, and compare with the host."""
    made = model()
    module = tinycomp.compile(made, target=npu, strict=True)
    assert [row.composites for row in module.report().regions] == [{"npu.attention": 1}] * 2
    assert seen == [ORDER, ORDER]
    rng = np.random.default_rng(0)
    feeds = {spec.name: rng.standard_normal(spec.shape, dtype=np.float32) for spec in module.inputs}
    found, expected = module.run(feeds), tinycomp.compile(made, target="host").run(feeds)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
    print(f"2 spellings, 1 pattern; parameters of both: {', '.join(seen[0])}")


if __name__ == "__main__":
    main()
