"""Decoders with the plan of LLaMA (Touvron et al., 2023) in every form that tools export, written node by node.

All of them compute the same: with equal sizes and seed they have equal weights, and continue a text alike.

- :func:`genai`: as onnxruntime-genai builds them, GroupQueryAttention of ``com.microsoft`` with a cache;
- :func:`optimum`: operators of ONNX up to opset 18, a past that grows by Concat;
- :func:`opset24`: Attention, TensorScatter, RMSNormalization and RotaryEmbedding of ONNX on a cache of fixed length;
- :func:`loop`: the whole generation in one Loop, whose state holds the growing cache.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

EPSILON, THETA, BLOCK = 1e-6, 10000.0, 32
"""Of the normalisations; of the angles; how many weights of 4 bits share a scale."""
_CACHES = ("key", "value")


@dataclass(frozen=True)
class Sizes:
    """The sizes of a decoder.

    Attributes:
        layers: How many.
        width: Of the states between them, a multiple of the heads.
        heads: Of queries, a multiple of ``kv_heads``.
        kv_heads: Of keys and values.
        hidden: Of the gated dense layers.
        vocabulary: How many different tokens there are.
        positions: For how many the tables of angles are; the length of a cache of fixed length.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    positions: int

    @property
    def head(self) -> int:
        """The size of a head."""
        return self.width // self.heads


TINY = Sizes(layers=2, width=64, heads=4, kv_heads=2, hidden=96, vocabulary=67, positions=64)
SMALL = Sizes(layers=8, width=512, heads=8, kv_heads=2, hidden=1376, vocabulary=8000, positions=2048)
LARGE = Sizes(layers=24, width=1024, heads=16, kv_heads=4, hidden=2816, vocabulary=32000, positions=4096)


def genai(sizes: Sizes, *, shared: bool = False, weights: str = "float32", seed: int = 0) -> onnx.ModelProto:
    """Build a decoder as onnxruntime-genai does: GroupQueryAttention with its rotary embedding, and a cache.

    Args:
        sizes: The sizes; the width a multiple of 32 for weights of 4 bits.
        shared: Whether the cache has ``sizes.positions`` places from the start, or else grows.
        weights: ``"float32"`` for MatMul, ``"int4"`` for MatMulNBits.
        seed: Of the weights.

    Returns:
        A model of ``input_ids``, ``attention_mask`` and ``past_key_values.N.key`` and ``.value``, ``[batch, kv_heads,
        past, head]``, to ``logits`` ``[batch, sequence, vocabulary]`` and ``present.N.key`` and ``.value``.
    """
    b = _Builder(sizes, seed, weights)
    ids, mask = b.input("input_ids", ["batch_size", "sequence_length"]), _mask(b)
    lengths = b.op("Sub", b.op("ReduceSum", mask, b.ints(1), keepdims=0), b.ints(1))
    lengths = b.op("Cast", lengths, to=TensorProto.INT32)
    total = b.op("Gather", b.op("Shape", mask), b.integer(1), axis=0)
    total = b.op("Cast", total, to=TensorProto.INT32)
    tables = [b.stored(name, table) for name, table in zip(("cos_cache", "sin_cache"), angles(sizes), strict=True)]
    past, present = [sizes.positions] * 2 if shared else ["past_sequence_length", "total_sequence_length"]

    def normalise(x: str, added: str | None, gain: str) -> tuple[str, str]:
        scale = b.gain(gain)
        if added is None:
            return b.op("SimplifiedLayerNormalization", x, scale, axis=-1, epsilon=EPSILON, stash_type=1), x
        name = f"{gain}/skip"
        outputs = (f"{name}_output_0", "", "", f"{name}_output_3")
        op = "SkipSimplifiedLayerNormalization"
        b.node(op, [x, added, scale], outputs, name, domain="com.microsoft", epsilon=EPSILON)
        return outputs[0], outputs[3]

    def attend(layer: int, query: str, key: str, value: str) -> str:
        pasts, presents = _cache(b, layer, past, present)
        name = f"/model/layers.{layer}/attn/GroupQueryAttention"
        b.node(
            "GroupQueryAttention", [query, key, value, *pasts, lengths, total, *tables],
            [f"{name}/output_0", *presents], name, domain="com.microsoft", num_heads=sizes.heads,
            kv_num_heads=sizes.kv_heads, scale=sizes.head**-0.5, do_rotary=1, rotary_interleaved=0,
        )  # fmt: skip
        return f"{name}/output_0"

    _decode(b, ids, normalise, attend)
    return b.model(21)


def genai_config(sizes: Sizes, *, shared: bool = False, stop: Sequence[int] = ()) -> dict[str, Any]:
    """Return the ``genai_config.json`` of :func:`genai`, which also fits :func:`optimum` but for the positions."""
    inputs = {"input_ids": "input_ids", "attention_mask": "attention_mask"}
    outputs = {"logits": "logits"}
    for kind in _CACHES:
        inputs[f"past_{kind}_names"] = f"past_key_values.%d.{kind}"
        outputs[f"present_{kind}_names"] = f"present.%d.{kind}"
    decoder = {
        "filename": "model.onnx", "inputs": inputs, "outputs": outputs, "hidden_size": sizes.width,
        "head_size": sizes.head, "num_attention_heads": sizes.heads, "num_key_value_heads": sizes.kv_heads,
        "num_hidden_layers": sizes.layers,
    }  # fmt: skip
    model = {
        "type": "llama", "context_length": sizes.positions, "vocab_size": sizes.vocabulary,
        "eos_token_id": list(stop), "decoder": decoder,
    }  # fmt: skip
    search = {"past_present_share_buffer": shared, "max_length": sizes.positions}
    return {"model": model, "search": search}


def optimum(sizes: Sizes, *, weights: str = "float32", seed: int = 0) -> onnx.ModelProto:
    """Build a decoder as Hugging Face's optimum exports it: small operators, and a past that Concat extends.

    Args:
        sizes: The sizes; the width a multiple of 32 for weights of 4 bits.
        weights: ``"float32"`` for MatMul, ``"int4"`` for MatMulNBits.
        seed: Of the weights.

    Returns:
        A model of ``input_ids``, ``attention_mask``, ``position_ids`` and the past to ``logits`` and the present.
    """
    b = _Builder(sizes, seed, weights)
    whole = "past_sequence_length + sequence_length"
    ids, mask = b.input("input_ids", ["batch_size", "sequence_length"]), _mask(b, whole)
    positions = b.input("position_ids", ["batch_size", "sequence_length"])
    turns = _turns(b, positions)
    bias = _bias(b, positions, b.op("Shape", mask, start=1, end=2), mask)

    def attend(layer: int, query: str, key: str, value: str) -> str:
        (past_key, past_value), presents = _cache(b, layer, "past_sequence_length", whole)
        key = _rotated(b, _heads(b, key, sizes.kv_heads), turns)
        key = b.op("Concat", past_key, key, output=presents[0], axis=2)
        value = b.op("Concat", past_value, _heads(b, value, sizes.kv_heads), output=presents[1], axis=2)
        return _attention(b, _rotated(b, _heads(b, query, sizes.heads), turns), key, value, bias)

    _decode(b, ids, _small_normalisation(b), attend)
    return b.model(18)


def opset24(sizes: Sizes, *, weights: str = "float32", seed: int = 0) -> onnx.ModelProto:
    """Build a decoder of ONNX's own large operators on a cache of ``sizes.positions`` places.

    Args:
        sizes: The sizes; the width a multiple of 32 for weights of 4 bits.
        weights: ``"float32"`` for MatMul, ``"int4"`` for MatMulNBits.
        seed: Of the weights.

    Returns:
        A model of ``input_ids``, ``position_ids`` and ``past_key_values.N.key`` and ``.value`` to ``logits`` and the
        present, which are as large.
    """
    b = _Builder(sizes, seed, weights)
    ids = b.input("input_ids", ["batch_size", "sequence_length"])
    positions = b.input("position_ids", ["batch_size", "sequence_length"])
    tables = [b.stored(name, table) for name, table in zip(("cos_cache", "sin_cache"), angles(sizes), strict=True)]
    first = b.op("Gather", positions, b.integer(0), axis=1)
    total = b.op("Add", first, b.op("Shape", ids, start=1, end=2))

    def normalise(x: str, added: str | None, gain: str) -> tuple[str, str]:
        total = x if added is None else b.op("Add", x, added)
        return b.op("RMSNormalization", total, b.gain(gain), axis=-1, epsilon=EPSILON), total

    def turn(x: str, heads: int) -> str:
        return b.op("RotaryEmbedding", x, *tables, positions, num_heads=heads)

    def attend(layer: int, query: str, key: str, value: str) -> str:
        pasts, presents = _cache(b, layer, sizes.positions, sizes.positions)
        new = _heads(b, turn(key, sizes.kv_heads), sizes.kv_heads), _heads(b, value, sizes.kv_heads)
        for past, update, present in zip(pasts, new, presents, strict=True):
            b.op("TensorScatter", past, update, first, output=present, axis=2)
        query = _heads(b, turn(query, sizes.heads), sizes.heads)
        mixed = b.op("Attention", query, *presents, "", "", "", total, is_causal=1, scale=sizes.head**-0.5)
        return b.op("Reshape", b.op("Transpose", mixed, perm=[0, 2, 1, 3]), b.ints(0, 0, -1))

    _decode(b, ids, normalise, attend)
    return b.model(24)


def loop(sizes: Sizes, *, seed: int = 0) -> onnx.ModelProto:
    """Build a decoder that generates by itself: each turn of a Loop takes one token and extends the cache by Concat.

    Returns:
        A model of ``prompt`` ``[length]`` and ``steps`` ``[]`` to ``tokens`` ``[length + steps - 1]``, what each turn
        thought likeliest, of which the last ``steps`` continue the prompt; ``logits`` ``[1, vocabulary]`` of the last
        turn; and ``present.N.key`` and ``.value``.
    """
    b = _Builder(sizes, seed)
    prompt = b.input("prompt", ["prompt_length"])
    steps = b.input("steps", [])
    given = b.op("Shape", prompt, start=0, end=1)
    last = b.op("Sub", b.op("Squeeze", given), b.integer(1))
    count = b.op("Add", last, steps)
    caches = [f"{layer}.{kind}" for layer in range(sizes.layers) for kind in _CACHES]
    empty = b.op("ConstantOfShape", b.ints(1, sizes.kv_heads, 0, sizes.head), value=_zero(np.float32))
    nothing = b.op("ConstantOfShape", b.ints(1, sizes.vocabulary), value=_zero(np.float32))
    shape = [1, sizes.kv_heads, "past_sequence_length", sizes.head]

    body = _Builder(sizes, seed)
    turn, go_on = body.input("turn", []), body.input("go_on", [], TensorProto.BOOL)
    previous = body.input("previous", [1])
    body.input("no_logits", [1, sizes.vocabulary], TensorProto.FLOAT)
    for name in caches:
        body.input(f"past.{name}", shape, TensorProto.FLOAT)
    known = body.op("Gather", prompt, body.op("Min", turn, last), axis=0)
    ids = body.op("Where", body.op("LessOrEqual", turn, last), known, previous)
    ids = body.op("Reshape", ids, body.ints(1, 1))
    turns = _turns(body, body.op("Reshape", turn, body.ints(1, 1)))
    body.op("Identity", go_on, output="going_on")
    body.outputs.append(helper.make_tensor_value_info("going_on", TensorProto.BOOL, []))
    body.output("likeliest", [1], TensorProto.INT64)
    body.output("new_logits", [1, sizes.vocabulary])

    def attend(layer: int, query: str, key: str, value: str) -> str:
        key = _rotated(body, _heads(body, key, sizes.kv_heads), turns)
        new = [key, _heads(body, value, sizes.kv_heads)]
        for i, kind in enumerate(_CACHES):
            new[i] = body.op("Concat", f"past.{layer}.{kind}", new[i], output=f"present.{layer}.{kind}", axis=2)
            body.output(new[i], [1, sizes.kv_heads, "total_sequence_length", sizes.head])
        return _attention(body, _rotated(body, _heads(body, query, sizes.heads), turns), *new, None)

    logits = _decode(body, ids, _small_normalisation(body), attend, output="")
    body.op("Reshape", logits, body.ints(1, -1), output="new_logits")
    body.op("ArgMax", "new_logits", output="likeliest", axis=-1, keepdims=0)
    body.op("Squeeze", "likeliest", body.ints(0), output="token")
    body.output("token", [], TensorProto.INT64)

    presents = [f"present.{name}" for name in caches]
    states = [b.ints(0), nothing, *[empty] * len(caches)]
    results = ["last", "logits", *presents, "tokens"]
    b.node("Loop", [count, "", *states], results, "generate", body=body.graph("step"))
    b.output("tokens", ["turns"], TensorProto.INT64)
    b.output("logits", [1, sizes.vocabulary])
    for name in presents:
        b.output(name, [1, sizes.kv_heads, "turns", sizes.head])
    return b.model(18)


def angles(sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Return the cosines and sines ``[positions, head / 2]`` of rotary position embedding (Su et al., 2021)."""
    turned = np.arange(sizes.positions)[:, None] * _frequencies(sizes)
    return np.cos(turned).astype(np.float32), np.sin(turned).astype(np.float32)


def _frequencies(sizes: Sizes) -> np.ndarray:
    return (THETA ** (-np.arange(0, sizes.head, 2) / sizes.head)).astype(np.float32)


def _zero(dtype: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.zeros(1, dtype))


@dataclass
class _Builder:
    """Writes nodes one after another; names that it makes are unique within a graph."""

    sizes: Sizes
    seed: int
    weights: str = "float32"
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: dict[str, onnx.TensorProto] = field(default_factory=dict)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)

    def node(self, op: str, inputs: Sequence[str], outputs: Sequence[str], name: str, **attrs: Any) -> None:
        self.nodes.append(helper.make_node(op, inputs, outputs, name, **attrs))

    def op(self, op: str, *inputs: str, output: str = "", **attrs: Any) -> str:
        """Add a node with one result and return its name."""
        name = output or f"{op}_{len(self.nodes)}"
        self.node(op, inputs, [name], f"node {name}", **attrs)
        return name

    def stored(self, name: str, array: np.ndarray) -> str:
        """Store a constant once under its name."""
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(array, name)
        return name

    def ints(self, *values: int) -> str:
        return self.stored(f"ints {list(values)}", np.array(values, np.int64))

    def integer(self, value: int) -> str:
        return self.stored(f"int {value}", np.array(value, np.int64))

    def float(self, value: float) -> str:
        return self.stored(f"float {value}", np.array(value, np.float32))

    def input(self, name: str, shape: Sequence[int | str], dtype: int = TensorProto.INT64) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, name: str, shape: Sequence[int | str], dtype: int = TensorProto.FLOAT) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def gain(self, name: str) -> str:
        return self.stored(name, 1 + 0.1 * self._random(name, self.sizes.width))

    def embedding(self) -> str:
        name = "model.embed_tokens.weight"
        return self.stored(name, self._random(name, self.sizes.vocabulary, self.sizes.width))

    def linear(self, x: str, name: str, depth: int, columns: int, output: str = "") -> str:
        """Multiply rows by a weight ``[depth, columns]`` in float32 or 4 bits."""
        if self.weights != "int4":
            if name not in self.initializers:
                self.stored(name, self._random(name, depth, columns) * np.float32(depth**-0.5))
            return self.op("MatMul", x, name, output=output)
        packed, scales = f"{name}.q4", f"{name}.scales"
        if packed not in self.initializers:
            arrays = _packed(self._random(name, columns, depth) * np.float32(depth**-0.5))
            self.stored(packed, arrays[0]), self.stored(scales, arrays[1])
        return self.op(
            "MatMulNBits", x, packed, scales, output=output, domain="com.microsoft", K=depth, N=columns, bits=4,
            block_size=BLOCK, accuracy_level=4,
        )  # fmt: skip

    def _random(self, name: str, *shape: int) -> np.ndarray:
        """Return random numbers that only the seed, the name and the shape tell."""
        rng = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
        return rng.standard_normal(shape, np.float32)

    def graph(self, name: str) -> onnx.GraphProto:
        return helper.make_graph(self.nodes, name, self.inputs, self.outputs, list(self.initializers.values()))

    def model(self, opset: int) -> onnx.ModelProto:
        opsets = [helper.make_opsetid("", opset)]
        if any(node.domain for node in self.nodes):
            opsets.append(helper.make_opsetid("com.microsoft", 1))
        return helper.make_model(self.graph("decoder"), opset_imports=opsets, ir_version=10)


def _packed(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a weight ``[columns, depth]`` as codes of 4 bits around 8, and a scale per block of a column."""
    columns, depth = weight.shape
    blocks = weight.reshape(columns, depth // BLOCK, BLOCK)
    scales = np.abs(blocks).max(axis=2) / np.float32(7)
    codes = (np.rint(blocks / scales[..., None]) + 8).astype(np.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4, scales.reshape(columns, -1)


def _decode(b: _Builder, ids: str, normalise: Any, attend: Any, output: str = "logits") -> str:
    """Add a decoder from tokens to logits.

    Args:
        b: Where to.
        ids: The tokens ``[batch, sequence]``.
        normalise: Takes states, what is added to them or None, and the name of a gain; returns the normalised sum and
            the sum.
        attend: Takes the number of a layer, queries, keys and values ``[batch, sequence, heads * head]``; returns what
            they mix to.
        output: The name of the logits; empty for any, and no result of the graph.
    """
    sizes = b.sizes
    x, added = b.op("Gather", b.embedding(), ids), None
    for layer in range(sizes.layers):
        name = f"model.layers.{layer}"
        y, x = normalise(x, added, f"{name}.input_layernorm.weight")
        columns = {"q": sizes.width, "k": sizes.kv_heads * sizes.head, "v": sizes.kv_heads * sizes.head}
        parts = [b.linear(y, f"{name}.self_attn.{k}_proj.weight", sizes.width, n) for k, n in columns.items()]
        mixed = attend(layer, *parts)
        added = b.linear(mixed, f"{name}.self_attn.o_proj.weight", sizes.width, sizes.width)
        y, x = normalise(x, added, f"{name}.post_attention_layernorm.weight")
        gate, up = (b.linear(y, f"{name}.mlp.{k}_proj.weight", sizes.width, sizes.hidden) for k in ("gate", "up"))
        wide = b.op("Mul", b.op("Mul", gate, b.op("Sigmoid", gate)), up)
        added = b.linear(wide, f"{name}.mlp.down_proj.weight", sizes.hidden, sizes.width)
    y, _ = normalise(x, added, "model.norm.weight")
    logits = b.linear(y, "lm_head.weight", sizes.width, sizes.vocabulary, output)
    if output:
        b.output(output, ["batch_size", "sequence_length", sizes.vocabulary])
    return logits


def _mask(b: _Builder, length: str = "total_sequence_length") -> str:
    return b.input("attention_mask", ["batch_size", length])


def _cache(b: _Builder, layer: int, past: int | str, present: int | str) -> tuple[list[str], list[str]]:
    """Add the cache of a layer to inputs and results, and return the names."""
    names = [f"past_key_values.{layer}.{kind}" for kind in _CACHES], [f"present.{layer}.{kind}" for kind in _CACHES]
    for before, after in zip(*names, strict=True):
        b.input(before, ["batch_size", b.sizes.kv_heads, past, b.sizes.head], TensorProto.FLOAT)
        b.output(after, ["batch_size", b.sizes.kv_heads, present, b.sizes.head])
    return names


def _small_normalisation(b: _Builder) -> Any:
    """Return the normalisation by the root mean square (Zhang and Sennrich, 2019) as PyTorch exports it."""

    def normalise(x: str, added: str | None, gain: str) -> tuple[str, str]:
        total = x if added is None else b.op("Add", x, added)
        square = b.op("ReduceMean", b.op("Pow", total, b.float(2.0)), b.ints(-1), keepdims=1)
        root = b.op("Sqrt", b.op("Add", square, b.float(EPSILON)))
        factor = b.op("Div", b.float(1.0), root)
        return b.op("Mul", b.gain(gain), b.op("Mul", total, factor)), total

    return normalise


def _heads(b: _Builder, x: str, heads: int) -> str:
    """Return ``[batch, heads, sequence, head]``."""
    return b.op("Transpose", b.op("Reshape", x, b.ints(0, -1, heads, b.sizes.head)), perm=[0, 2, 1, 3])


def _turns(b: _Builder, positions: str) -> tuple[str, str]:
    """Return the cosines and sines ``[batch, 1, sequence, head]`` of positions ``[batch, sequence]``."""
    frequencies = b.stored("inv_freq", _frequencies(b.sizes)[None, :, None])
    places = b.op("Cast", b.op("Unsqueeze", positions, b.ints(1)), to=TensorProto.FLOAT)
    half = b.op("Transpose", b.op("MatMul", frequencies, places), perm=[0, 2, 1])
    whole = b.op("Concat", half, half, axis=-1)
    cos, sin = (b.op("Unsqueeze", b.op(op, whole), b.ints(1)) for op in ("Cos", "Sin"))
    return cos, sin


def _rotated(b: _Builder, x: str, turns: tuple[str, str]) -> str:
    """Return ``x * cos + rotate_half(x) * sin``."""
    half, far = b.sizes.head // 2, np.iinfo(np.int64).max
    low = b.op("Slice", x, b.ints(0), b.ints(half), b.ints(3), b.ints(1))
    high = b.op("Slice", x, b.ints(half), b.ints(far), b.ints(3), b.ints(1))
    crossed = b.op("Concat", b.op("Neg", high), low, axis=-1)
    return b.op("Add", b.op("Mul", x, turns[0]), b.op("Mul", crossed, turns[1]))


def _bias(b: _Builder, positions: str, total: str, mask: str) -> str:
    """Return what hides later tokens and padding, ``[batch, 1, sequence, total]``."""
    columns = b.op("Range", b.integer(0), b.op("Squeeze", total), b.integer(1))
    seen = b.op("LessOrEqual", columns, b.op("Unsqueeze", positions, b.ints(1, 3)))
    kept = b.op("Cast", b.op("Unsqueeze", mask, b.ints(1, 2)), to=TensorProto.BOOL)
    return b.op("Where", b.op("And", seen, kept), b.float(0.0), b.float(float(np.finfo(np.float32).min)))


def _attention(b: _Builder, query: str, key: str, value: str, bias: str | None) -> str:
    """Return attention ``[batch, sequence, width]`` of heads that share keys and values, which it repeats."""
    key, value = (_repeated(b, x) for x in (key, value))
    scores = b.op("MatMul", query, b.op("Transpose", key, perm=[0, 1, 3, 2]))
    scores = b.op("Mul", scores, b.float(b.sizes.head**-0.5))
    scores = scores if bias is None else b.op("Add", scores, bias)
    mixed = b.op("MatMul", b.op("Softmax", scores, axis=-1), value)
    return b.op("Reshape", b.op("Transpose", mixed, perm=[0, 2, 1, 3]), b.ints(0, 0, -1))


def _repeated(b: _Builder, x: str) -> str:
    """Return every head of keys or values as often as heads of queries share it."""
    sizes = b.sizes
    if sizes.heads == sizes.kv_heads:
        return x
    times = b.ints(1, 1, sizes.heads // sizes.kv_heads, 1, 1)
    wide = b.op("Tile", b.op("Unsqueeze", x, b.ints(2)), times)
    shape = b.op("Concat", b.op("Shape", x, end=1), b.ints(sizes.heads), b.op("Shape", x, start=2), axis=0)
    return b.op("Reshape", wide, shape)
