"""Tiny decoders in every convention, with the same weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from tinycomp.runtime.spec import TensorSpec

VOCABULARY, WIDTH, HEADS, SIZE, LAYERS = 19, 16, 2, 8, 2


class Builder:
    """Writes nodes one after another."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def op(self, op: str, *inputs: str, output: str = "", domain: str = "", **attrs: Any) -> str:
        name = output or f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, domain=domain, **attrs))
        return name

    def const(self, array: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.arrays)}"
        self.arrays[name] = np.asarray(array, dtype)
        return name

    def ints(self, *values: int) -> str:
        return self.const(values, np.int64)

    def input(self, name: str, shape: Sequence[int | str], dtype: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, name: str, shape: Sequence[int | str]) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def model(self) -> onnx.ModelProto:
        stored = [numpy_helper.from_array(array, name) for name, array in self.arrays.items()]
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, self.outputs, stored)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def decoder(
    convention: str = "growing",
    *,
    capacity: int | str = 32,
    tokens: int | str = "sequence",
    extra: Sequence[str] = (),
    vocabulary: int = VOCABULARY,
) -> onnx.ModelProto:
    """A decoder of two layers with ALiBi, causal.

    Args:
        convention: ``plain`` (no past), ``growing`` or ``shared``.
        capacity: Of a shared buffer.
        tokens: How many it takes per run.
        extra: Further inputs, which it adds to the logits times 0.
        vocabulary: How many different ones there are.
    """
    b, rng = Builder(), np.random.default_rng(3)

    def weight(*shape: int) -> str:
        return b.const(rng.standard_normal(shape) * shape[0] ** -0.5 * 1.5)

    ids = b.input("input_ids", ["batch", tokens], TensorProto.INT64)
    if convention == "shared":
        positions = b.op("Reshape", b.input("position_ids", ["batch", tokens], TensorProto.INT64), b.ints(-1))
    else:
        count = b.op("Shape", ids, start=1, end=2)
        total = count
        if convention == "growing":
            past = b.op("Shape", "past_key_values.0.key", start=2, end=3)
            mask = b.input("attention_mask", ["batch", "total"], TensorProto.INT64)
            total = b.op("Add", b.op("Shape", mask, start=1, end=2), b.ints(0))
        zero, one = b.const(0, np.int64), b.const(1, np.int64)
        everything = b.op("Range", zero, b.op("Squeeze", total), one)
        positions = everything if convention == "plain" else b.op("Slice", everything, past, total, b.ints(0))
    x = b.op("Gather", weight(vocabulary, WIDTH), ids)
    for layer in range(LAYERS):
        parts = []
        for kind in ("query", "key", "value"):
            y = b.op("MatMul", x, weight(WIDTH, HEADS * SIZE))
            y = b.op("Transpose", b.op("Reshape", y, b.ints(0, -1, HEADS, SIZE)), perm=[0, 2, 1, 3])
            if kind != "query" and convention != "plain":
                length = "past" if convention == "growing" else capacity
                name = f"past_key_values.{layer}.{kind}"
                b.input(name, ["batch", HEADS, length, SIZE])
                present = f"present.{layer}.{kind}"
                if convention == "growing":
                    y = b.op("Concat", name, y, output=present, axis=2)
                    b.output(present, ["batch", HEADS, "past + sequence", SIZE])
                else:
                    places = b.op("Reshape", positions, b.ints(1, 1, -1, 1))
                    places = b.op("Expand", places, b.op("Shape", y))
                    y = b.op("ScatterElements", name, places, y, output=present, axis=2)
                    b.output(present, ["batch", HEADS, length, SIZE])
            parts.append(y)
        query, key, value = parts
        scores = b.op("MatMul", query, b.op("Transpose", key, perm=[0, 1, 3, 2]))
        if convention == "shared":
            reach = b.op("Squeeze", b.op("Shape", key, start=2, end=3))
            columns = b.op("Range", b.const(0, np.int64), reach, b.const(1, np.int64))
        else:
            columns = everything
        distance = b.op("Sub", b.op("Unsqueeze", positions, b.ints(1)), b.op("Unsqueeze", columns, b.ints(0)))
        hidden = b.op("Less", distance, b.const(0, np.int64))
        bias = b.op("Mul", b.op("Cast", distance, to=TensorProto.FLOAT), b.const([[[-0.5]], [[-0.05]]]))
        scores = b.op("Where", hidden, b.const(-1e9), b.op("Add", scores, bias))
        mixed = b.op("Transpose", b.op("MatMul", b.op("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
        mixed = b.op("Reshape", mixed, b.ints(0, -1, HEADS * SIZE))
        x = b.op("Add", x, b.op("MatMul", mixed, weight(HEADS * SIZE, WIDTH)))
        wide = b.op("Relu", b.op("MatMul", x, weight(WIDTH, 3 * WIDTH)))
        x = b.op("Add", x, b.op("MatMul", wide, weight(3 * WIDTH, WIDTH)))
    for name in extra:
        lengths = {"seqlens_k": ["batch"], "total_sequence_length": []}
        b.input(name, lengths.get(name, ["batch", "any"]), TensorProto.INT32)
        nothing = b.op("Mul", b.op("ReduceSum", b.op("Cast", name, to=TensorProto.FLOAT), keepdims=0), b.const(0))
        x = b.op("Add", x, nothing)
    b.op("MatMul", x, weight(WIDTH, vocabulary), output="logits")
    b.output("logits", ["batch", "tokens", vocabulary])
    return b.model()


def grouped(
    capacity: int | str = 32, *, tokens: int | str = "sequence", lengths_given: bool = False
) -> onnx.ModelProto:
    """A decoder of one layer with onnxruntime's GroupQueryAttention on a shared buffer, in the names of its GenAI.

    Args:
        capacity: Of the buffer.
        tokens: How many it takes per run.
        lengths_given: Whether the lengths are inputs; else they follow from the attention mask.
    """
    b, rng = Builder(), np.random.default_rng(3)

    def weight(*shape: int) -> str:
        return b.const(rng.standard_normal(shape) * shape[0] ** -0.5 * 1.5)

    ids = b.input("input_ids", ["batch", tokens], TensorProto.INT64)
    if lengths_given:
        lengths = b.input("seqlens_k", ["batch"], TensorProto.INT32)
        total = b.input("total_sequence_length", [], TensorProto.INT32)
    else:
        mask = b.input("attention_mask", ["batch", "total"], TensorProto.INT64)
        lengths = b.op("Sub", b.op("ReduceSum", mask, b.ints(1), keepdims=0), b.ints(1))
        lengths = b.op("Cast", lengths, to=TensorProto.INT32)
        total = b.op("Cast", b.op("Squeeze", b.op("Shape", mask, start=1, end=2)), to=TensorProto.INT32)
    x = b.op("Gather", weight(VOCABULARY, WIDTH), ids)
    query, key, value = (b.op("MatMul", x, weight(WIDTH, n * SIZE)) for n in (HEADS, 1, 1))
    pasts = [b.input(f"past_key_values.0.{kind}", ["batch", 1, capacity, SIZE]) for kind in ("key", "value")]
    presents = ["present.0.key", "present.0.value"]
    for name in presents:
        b.output(name, ["batch", 1, capacity, SIZE])
    b.nodes.append(
        helper.make_node(
            "GroupQueryAttention",
            [query, key, value, *pasts, lengths, total],
            ["mixed", *presents],
            "attention",
            domain="com.microsoft",
            num_heads=HEADS,
            kv_num_heads=1,
        )
    )
    x = b.op("Add", x, b.op("MatMul", "mixed", weight(HEADS * SIZE, WIDTH)))
    b.op("MatMul", x, weight(WIDTH, VOCABULARY), output="logits")
    b.output("logits", ["batch", tokens, VOCABULARY])
    return b.model()


class Session:
    """onnxruntime with the interface of a module; counts its runs."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        names = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32"}
        self.inputs, self.outputs = (
            tuple(TensorSpec(v.name, names[v.type], tuple(v.shape)) for v in values)
            for values in (self.session.get_inputs(), self.session.get_outputs())
        )
        self.feeds: list[Mapping[str, np.ndarray]] = []

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        self.feeds.append(dict(feeds))
        return dict(zip([s.name for s in self.outputs], self.session.run(None, dict(feeds)), strict=True))


def recomputed(prompt: Sequence[int], count: int) -> list[int]:
    """The likeliest continuation by the decoder without a past, which sees the whole text every time."""
    session, text = Session(decoder("plain")), list(prompt)
    for _ in range(count):
        logits = session.run({"input_ids": np.int64([text])})["logits"]
        text.append(int(logits[0, -1].argmax()))
    return text[len(prompt) :]
