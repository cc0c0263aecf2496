"""Define the operators that onnxruntime's tools write, those of ``com.microsoft``, by ONNX's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tinycomp.frontend.definition_body import Body, shape_of
from tinycomp.frontend.extension import Extensions, NotCoveredError, Optional, Results, covered
from tinycomp.ir.graph import Attr, Value
from tinycomp.ir.proto import NUMBER_BY_DTYPE

DOMAIN = "com.microsoft"
EXTENSIONS = Extensions(DOMAIN)
defines = EXTENSIONS.defines
_WINDOW = frozenset({"strides", "pads", "auto_pad"})
_CONV = _WINDOW | {"kernel_shape", "dilations", "group"}
_SCORES = frozenset({"scale", "unidirectional", "mask_filter_value"})


# Activations.


@defines("Gelu", since=17)
def _gelu(b: Body, x: Value) -> Value:
    error = b("Erf", b("Div", x, b.like(x, np.sqrt(np.float32(2)))))
    return _half_more(b, x, error)


@defines("BiasGelu", since=17)
def _bias_gelu(b: Body, x: Value, bias: Value) -> Results:
    return _gelu(b, b("Add", x, bias))


@defines("FastGelu", since=17)
def _fast_gelu(b: Body, x: Value, bias: Optional = None) -> Value:
    x = _biased(b, x, bias)
    cube = b("Pow", x, b.like(x, 3))
    bent = b("Add", x, b("Mul", cube, b.like(x, 0.044715)))
    share = b("Tanh", b("Mul", bent, b.like(x, 0.7978845608028654)))
    return _half_more(b, x, share)


@defines("QuickGelu", since=17)
def _quick_gelu(b: Body, x: Value, *, alpha: float = 1.702) -> Value:
    return b("Mul", x, b("Sigmoid", b("Mul", b.like(x, alpha), x)))


def _half_more(b: Body, x: Value, share: Value) -> Value:
    """Return ``x * (share + 1) / 2``."""
    return b("Mul", b("Mul", x, b("Add", share, b.like(x, 1))), b.like(x, 0.5))


def _biased(b: Body, x: Value, bias: Optional) -> Value:
    return x if bias is None else b("Add", x, bias)


def _activated(b: Body, x: Value, activation: str, alpha: float | None, beta: float | None) -> Value:
    """Return an activation by name; those that need parameters have no defaults for them."""
    if activation in ("", "Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "HardSwish"):
        return b(activation, x) if activation else x
    if alpha is None:
        raise NotCoveredError
    if activation in ("LeakyRelu", "Elu", "ThresholdedRelu"):
        return b(activation, x, alpha=alpha)
    if beta is None or activation not in ("HardSigmoid", "Clip"):
        raise NotCoveredError
    if activation == "HardSigmoid":
        return b(activation, x, alpha=alpha, beta=beta)
    return b("Clip", x, b.like(x, alpha), b.like(x, beta))


# Normalisations of sums; the sum itself is a result.


@defines("SkipLayerNormalization", since=17)
def _skip_layer_normalization(
    b: Body,
    x: Value,
    skip: Value,
    gamma: Value,
    beta: Optional = None,
    bias: Optional = None,
    *,
    epsilon: float = 1e-12,
) -> Results:
    total = b("Add", _biased(b, x, bias), skip)
    output = b("LayerNormalization", total, gamma, beta, axis=-1, epsilon=epsilon)
    mean = _mean(b, total)
    return output, mean, _inverse_deviation(b, b("Sub", total, mean), epsilon), total


@defines("SimplifiedLayerNormalization", since=23, domain="")  # onnxruntime has it among ONNX's own
def _rms_normalization(
    b: Body, x: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Value:
    return b("RMSNormalization", x, scale, axis=axis, epsilon=epsilon, stash_type=stash_type)


@defines("SkipSimplifiedLayerNormalization", since=23)
def _skip_rms_normalization(
    b: Body, x: Value, skip: Value, gamma: Value, bias: Optional = None, *, epsilon: float = 1e-12
) -> Results:
    total = b("Add", _biased(b, x, bias), skip)
    output = b("RMSNormalization", total, gamma, axis=-1, epsilon=epsilon)
    return output, _mean(b, total), _inverse_deviation(b, total, epsilon), total


@defines("EmbedLayerNormalization", since=17)
def _embed_layer_normalization(
    b: Body,
    input_ids: Value,
    segment_ids: Optional,
    words: Value,
    positions: Value,
    segments: Optional,
    gamma: Value,
    beta: Value,
    mask: Optional = None,
    position_ids: Optional = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> Results:
    if position_ids is None:
        first = b.ints(0)
        position = b("Slice", positions, first, b("Shape", input_ids, start=1, end=2), first)
    else:
        position = b("Gather", positions, position_ids)
    total = b("Add", b("Gather", words, input_ids), position)
    if segment_ids is not None:
        total = b("Add", total, b("Gather", segments, segment_ids))
    output = b("LayerNormalization", total, gamma, beta, axis=-1, epsilon=epsilon)
    if mask is None:
        lengths = b("ConstantOfShape", b("Shape", input_ids, end=1), value=np.zeros(1, np.int32))
    else:
        lengths = b("ReduceSum", mask, b.ints(1), keepdims=0)
    return output, lengths, total


def _mean(b: Body, x: Value) -> Value:
    """Return the mean of every row."""
    return b("Div", b("ReduceSum", x, b.ints(-1)), b("CastLike", b("Shape", x, start=-1), x))


def _inverse_deviation(b: Body, x: Value, epsilon: float) -> Value:
    power = _mean(b, b("Mul", x, x))
    return b("Reciprocal", b("Sqrt", b("Add", power, b.like(x, epsilon))))


# Products with what surrounds them.


@defines("FusedMatMul", since=17)
def _fused_matmul(
    b: Body,
    x: Value,
    y: Value,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Value:
    factors = (x, transBatchA, transA), (y, transBatchB, transB)
    product = b("MatMul", *(_oriented(b, _stacked(b, v, batch), turned) for v, batch, turned in factors))
    return b("Mul", product, b.like(product, alpha))


@defines("FusedGemm", since=17, passed=("alpha", "beta", "transA", "transB"))
def _fused_gemm(
    b: Body,
    x: Value,
    y: Value,
    c: Optional = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    **gemm: Attr,
) -> Value:
    product = b("Gemm", x, y, c, **gemm)
    return _activated(b, product, activation, activation_alpha, activation_beta)


@defines("FusedConv", since=17, passed=_CONV)
def _fused_conv(
    b: Body,
    x: Value,
    w: Value,
    bias: Optional = None,
    z: Optional = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    **conv: Attr,
) -> Value:
    alpha, beta, *_ = [*activation_params, None, None]
    return _activated(b, _biased(b, b("Conv", x, w, bias, **conv), z), activation, alpha, beta)


def _oriented(b: Body, x: Value, turned: int) -> Value:
    """Return a matrix, or a stack of them, or what it becomes with its last two axes exchanged."""
    if not turned or x.rank == 1:
        return x
    covered(x.rank)
    assert x.rank is not None
    return b("Transpose", x, perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2])


def _stacked(b: Body, x: Value, turned: int) -> Value:
    """Return a stack of matrices; if its first axis is that of the rows, that comes behind those of the stack."""
    if not turned:
        return x
    covered(x.rank is not None and x.rank > 2)
    assert x.rank is not None
    return b("Transpose", x, perm=[*range(1, x.rank - 1), 0, x.rank - 1])


# Attention.


@defines("Attention", since=17, passed=_SCORES)
def _attention(
    b: Body,
    x: Value,
    weights: Value,
    bias: Optional = None,
    mask_index: Optional = None,
    past: Optional = None,
    attention_bias: Optional = None,
    *,
    num_heads: int,
    qkv_hidden_sizes: Sequence[int] | None = None,
    do_rotary: int = 0,
    rotary_embedding_dim: int | None = None,
    past_present_share_buffer: int | None = None,
    **scores: Attr,
) -> Results:
    covered(past is None and not do_rotary)
    together = _biased(b, b("MatMul", x, weights), bias)
    if qkv_hidden_sizes is None:
        q, k, v = _thirds(b, together)
    else:
        q, k, v = b.several(3, "Split", together, b.ints(*qkv_hidden_sizes), axis=-1)
    return _multi_head_attention(b, q, k, v, None, mask_index, attention_bias, num_heads=num_heads, **scores)[0]


@defines("QAttention", since=17, passed=_SCORES)
def _quantized_attention(
    b: Body,
    x: Value,
    weight: Value,
    bias: Optional = None,
    input_scale: Optional = None,
    weight_scale: Optional = None,
    mask_index: Optional = None,
    input_zero_point: Optional = None,
    weight_zero_point: Optional = None,
    past: Optional = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    past_present_share_buffer: int | None = None,
    **scores: Attr,
) -> Results:
    covered(past is None and not do_rotary)
    together = _matmul_integer_to_float(
        b, x, weight, input_scale, weight_scale, input_zero_point, weight_zero_point, bias
    )
    return _multi_head_attention(b, *_thirds(b, together), None, mask_index, num_heads=num_heads, **scores)[0]


@defines("MultiHeadAttention", since=17)
def _multi_head_attention(
    b: Body,
    query: Value,
    key: Optional = None,
    value: Optional = None,
    bias: Optional = None,
    key_padding_mask: Optional = None,
    attention_bias: Optional = None,
    past_key: Optional = None,
    past_value: Optional = None,
    past_sequence_length: Optional = None,
    cache_indirection: Optional = None,
    *,
    num_heads: int,
    scale: float | None = None,
    unidirectional: int = 0,
    mask_filter_value: float = -10000.0,
) -> Sequence[Value]:
    """Return the result, and the keys and values by heads, those of the past before them."""
    # The last two are of searches with beams, whose caches onnxruntime's generation loop reorders.
    covered(past_sequence_length is None and cache_indirection is None)
    covered((past_key is None) == (past_value is None))
    covered(query.rank == 3 and key is not None and value is not None)
    assert key is not None
    assert value is not None
    if bias is not None:
        query, key, value = (b("Add", x, of) for x, of in zip((query, key, value), _thirds(b, bias), strict=True))
    covered(key.rank == 3)
    if key_padding_mask is not None:
        covered(past_key is None or key_padding_mask.rank == 2)
        hidden = b("Sub", b.float32(1), _seen_keys(b, key_padding_mask, key))
        added = b("Unsqueeze", b("Mul", hidden, b.float32(mask_filter_value)), b.ints(1, 2))
        attention_bias = _biased(b, added, attention_bias)
    if past_key is not None:
        b.require_opset(23)
        return b.several(
            3, "Attention", query, key, value, attention_bias, past_key, past_value, scale=scale,
            is_causal=unidirectional, q_num_heads=num_heads, kv_num_heads=num_heads,
        )  # fmt: skip
    q, k, v = (_heads(b, x, num_heads) for x in (query, key, value))
    if unidirectional:
        b.require_opset(23)
        heads = {"q_num_heads": num_heads, "kv_num_heads": num_heads}
        return b("Attention", query, key, value, attention_bias, scale=scale, is_causal=1, **heads), k, v
    products = b("MatMul", q, b("Transpose", k, perm=[0, 1, 3, 2]))
    scores = _biased(b, b("Mul", products, _score_scale(b, q, scale)), attention_bias)
    mixed = b("MatMul", b("Softmax", scores, axis=-1), v)
    return b("Reshape", b("Transpose", mixed, perm=[0, 2, 1, 3]), b.ints(0, 0, -1)), k, v


@defines("RotaryEmbedding", since=23)
def _rotary_embedding(
    b: Body,
    x: Value,
    position_ids: Value,
    cos_cache: Value,
    sin_cache: Value,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
    is_packed_batching: int = 0,
) -> Value:
    covered(scale == 1.0 and not is_packed_batching and x.rank in (3, 4) and position_ids.rank in (1, 2))
    if x.rank == 3 and not num_heads:
        half, width = (None if not v.shape else v.shape[-1] for v in (cos_cache, x))
        if not isinstance(half, int) or not half or not isinstance(width, int):
            raise NotCoveredError
        num_heads = width // (2 * half)
    if position_ids.rank == 1:
        position_ids = _following(
            b, position_ids, b("Shape", x, start=-2, end=-1) if x.rank == 4 else b("Shape", x, start=1, end=2), x
        )
    return b(
        "RotaryEmbedding", x, cos_cache, sin_cache, position_ids, interleaved=interleaved,
        num_heads=num_heads if x.rank == 3 else None, rotary_embedding_dim=rotary_embedding_dim,
    )  # fmt: skip


def _following(b: Body, first: Value, count: Value, x: Value) -> Value:
    """Return as many positions ``[batch, count]`` from the first one on for every entry of the batch of ``x``."""
    none = b.ints()
    steps = b("Range", b.const(np.int64(0)), b("Reshape", count, none), b.const(np.int64(1)))
    return b("Expand", b("Add", first, steps), b("Concat", b("Shape", x, end=1), count, axis=0))


def _thirds(b: Body, x: Value) -> tuple[Value, Value, Value]:
    """Return the thirds of a bias [3 * n], or of the columns of rows [batch, rows, 3 * n]."""
    covered(x.rank in (1, 3))
    axis = 0 if x.rank == 1 else 2
    parts = b("Reshape", x, b.ints(*[0] * axis, 3, -1))
    at = b.ints(axis)
    first, second, third = (
        b("Squeeze", b("Slice", parts, b.ints(i), b.ints(i + 1), at), at) for i in range(3)
    )  # fmt: skip
    return first, second, third


def _heads(b: Body, x: Value, count: int) -> Value:
    """Return columns apart by heads, which come before the rows."""
    return b("Transpose", b("Reshape", x, b.ints(0, 0, count, -1)), perm=[0, 2, 1, 3])


def _score_scale(b: Body, q: Value, scale: float | None) -> Value:
    if scale is not None:
        return b.float32(scale)
    depth = b("Gather", b("Shape", q), b.const(np.int64(-1)))
    return b("Reciprocal", b("Sqrt", b("CastLike", depth, q)))


def _seen_keys(b: Body, mask: Value, keys: Value) -> Value:
    """Return 1 for the keys that a mask [batch, keys] or lengths [batch] leave, else 0."""
    covered(mask.rank in (1, 2))
    if mask.rank == 1:
        zero, one = b.const(np.int64(0)), b.const(np.int64(1))
        places = b("Range", zero, b("Gather", b("Shape", keys), one), one)
        mask = b("Less", places, b("Unsqueeze", b("Cast", mask, to=NUMBER_BY_DTYPE["int64"]), b.ints(-1)))
    return b("Cast", mask, to=NUMBER_BY_DTYPE["float32"])


# Products with weights of 2, 4 and 8 bits in blocks.


@defines("MatMulNBits", since=21)
def _matmul_nbits(
    b: Body,
    x: Value,
    weight: Value,
    scales: Value,
    zero_points: Optional = None,
    g_idx: Optional = None,
    bias: Optional = None,
    *,
    K: int,
    N: int,
    block_size: int,
    bits: int = 4,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Value:
    covered(bits in (2, 4, 8) and not weight_prepacked)
    of_scales = zero_points is not None and zero_points.dtype == scales.dtype
    if g_idx is not None:
        covered(bits == 4 and (of_scales or zero_points is None))
        w = _grouped_weight(b, _columns(b, weight, N, bits), scales, zero_points, g_idx, K, N, bits)
        return _biased(b, b("MatMul", x, w), bias)
    points = None if of_scales else zero_points
    w = _block_weight(b, _columns(b, weight, N, bits), _rows(b, scales, N), points, K, N, block_size, bits)
    product = b("MatMul", x, w)
    if of_scales:
        away = b("Sub", b.like(scales, 1 << (bits - 1)), zero_points)
        moved = _rows(b, b("Mul", away, scales), N)
        product = b(
            "Add", product, b("MatMul", _block_sums(b, x, moved, block_size), b("Transpose", moved, perm=[1, 0]))
        )
    return _biased(b, product, bias)


@defines("GatherBlockQuantized", since=21)
def _gather_block_quantized(
    b: Body,
    data: Value,
    indices: Value,
    scales: Value,
    zero_points: Optional = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Value:
    """Gather rows of a matrix in blocks; unlike with onnxruntime, an index out of range is an error, as for Gather."""
    stored, figures = shape_of(data), shape_of(scales)
    covered(stored is not None and figures is not None and indices.rank is not None and block_size > 0)
    assert stored is not None
    assert figures is not None
    assert indices.rank is not None
    covered(len(stored) == 2 and gather_axis in (0, -2) and quantize_axis in (1, -1))
    middle = 0
    if data.dtype == "uint8":
        covered(bits in (2, 4, 8))
        middle = 1 << (bits - 1)
    else:
        covered(data.dtype in ("int4", "uint4"))
        bits, whole = 8, data.dtype.removesuffix("4") + "8"
        data, zero_points = b.cast(data, whole), None if zero_points is None else b.cast(zero_points, whole)
    width, lead = stored[1] * 8 // bits, [0] * indices.rank
    covered(figures == (stored[0], width // block_size) and width % block_size == 0)

    def codes(packed: Value, count: int) -> Value:
        """Return the first codes of the rows that are asked for, one to an element."""
        rows = b("Gather", packed, indices)
        if bits == 8:
            return rows
        # Bytes stay side by side until the end: that is what kernels are fast at.
        widths = b.const(np.arange(0, 8, bits).astype(np.uint8)[:, None])
        shifted = b("BitShift", b("Unsqueeze", rows, b.ints(-2)), widths, direction="RIGHT")
        planes = b("BitwiseAnd", shifted, b.const(np.uint8((1 << bits) - 1)))
        apart = b("Transpose", planes, perm=[*range(len(lead)), len(lead) + 1, len(lead)])
        return b("Slice", b.reshape(apart, [*lead, -1]), b.ints(0), b.ints(count), b.ints(-1))

    blocks = b.reshape(b("CastLike", codes(data, width), scales), [*lead, figures[1], block_size])
    if zero_points is not None:
        points = b("CastLike", codes(zero_points, figures[1]), scales)
        blocks = b("Sub", blocks, b("Unsqueeze", points, b.ints(-1)))
    elif middle:
        blocks = b("Sub", blocks, b.like(scales, middle))
    factors = b("Unsqueeze", b("Gather", scales, indices), b.ints(-1))
    return b.reshape(b("Mul", blocks, factors), [*lead, width])


def _rows(b: Body, x: Value, count: int) -> Value:
    return b.reshape(x, [count, -1])


def _first(b: Body, x: Value, count: int) -> Value:
    return b("Slice", x, b.ints(0), b.ints(count), b.ints(0))


def _columns(b: Body, packed: Value, columns: int, bits: int) -> Value:
    """Return the codes of every column as a row, one to a byte."""
    rows = _rows(b, packed, columns)
    if bits == 8:
        return rows
    widths = b.const(np.arange(0, 8, bits).astype(np.uint8))
    apart = b("BitShift", b("Unsqueeze", rows, b.ints(-1)), widths, direction="RIGHT")
    return b("Flatten", b("BitwiseAnd", apart, b.const(np.uint8((1 << bits) - 1))), axis=1)


def _block_weight(
    b: Body, codes: Value, scales: Value, points: Optional, depth: int, columns: int, size: int, bits: int
) -> Value:
    """Return a weight [depth, columns] with one scale and zero point per block of a column."""
    if points is None:
        middle = b.const(np.uint8(1 << (bits - 1)))
        points = b("Expand", middle, b("Shape", scales))
    else:
        points = _columns(b, points, columns, bits)
    points = b("Slice", points, b.ints(0), b("Shape", scales, start=1), b.ints(1))
    stored, zero = (_first(b, b("Transpose", codes, perm=[1, 0]), depth), b("Transpose", points, perm=[1, 0]))
    if bits != 8:
        stored, zero = (b("Cast", v, to=NUMBER_BY_DTYPE["uint4"]) for v in (stored, zero))
    return b("DequantizeLinear", stored, b("Transpose", scales, perm=[1, 0]), zero, axis=0, block_size=size)


def _grouped_weight(
    b: Body, codes: Value, scales: Value, points: Optional, g_idx: Value, depth: int, columns: int, bits: int
) -> Value:
    """Return a weight [depth, columns] whose rows name the group that has their scales and zero points."""
    if points is None:
        points = b("Expand", b.like(scales, 1 << (bits - 1)), b("Shape", scales))
    integers = b("CastLike", _first(b, b("Transpose", codes, perm=[1, 0]), depth), scales)
    groups = _first(b, g_idx, depth)
    factors, zeros = (
        b("Gather", b("Transpose", _rows(b, v, columns), perm=[1, 0]), groups) for v in (scales, points)
    )  # fmt: skip
    return b("Mul", b("Sub", integers, zeros), factors)


def _block_sums(b: Body, x: Value, like: Value, size: int) -> Value:
    """Return the sums of the blocks of every row, as many as ``like`` has columns."""
    last, width, blocks = b.ints(-1), b.ints(size), b("Shape", like, start=-1)
    missing = b("Sub", b("Mul", width, blocks), b("Shape", x, start=-1))
    whole = b("Pad", x, b("Concat", b.ints(0), missing, axis=0), None, last)
    shape = b("Concat", b("Shape", x, end=-1), blocks, width, axis=0)
    return b("ReduceSum", b("Reshape", whole, shape), last, keepdims=0)


# 8-bit integers between DequantizeLinear and QuantizeLinear.


@defines("DequantizeLinear", since=21, passed=("axis", "block_size"))
def _dequantized(b: Body, x: Value, scale: Value, point: Optional = None, **attrs: Attr) -> Value:
    return b("DequantizeLinear", x, scale, point, **attrs)


@defines("QuantizeLinear", since=21, passed=("axis", "block_size"))
def _quantized(b: Body, x: Value, scale: Value, point: Optional = None, **attrs: Attr) -> Value:
    return b("QuantizeLinear", x, scale, point, **attrs)


def _of_two(op: str) -> Callable[..., Value]:
    def define(
        b: Body, x: Value, x_scale: Value, x_point: Optional, y: Value, y_scale: Value, y_point: Optional,
        z_scale: Value, z_point: Optional = None,
    ) -> Value:  # fmt: skip
        result = b(op, _dequantized(b, x, x_scale, x_point), _dequantized(b, y, y_scale, y_point))
        return _quantized(b, result, z_scale, z_point)

    return define


defines("QLinearAdd", since=13)(_of_two("Add"))
defines("QLinearMul", since=13)(_of_two("Mul"))


@defines("QLinearSigmoid", since=13)
def _qlinear_sigmoid(
    b: Body, x: Value, x_scale: Value, x_point: Optional, y_scale: Value, y_point: Optional = None
) -> Value:
    return _quantized(b, b("Sigmoid", _dequantized(b, x, x_scale, x_point)), y_scale, y_point)


@defines("QLinearLeakyRelu", since=13)
def _qlinear_leaky_relu(
    b: Body,
    x: Value,
    x_scale: Value,
    x_point: Optional,
    y_scale: Value,
    y_point: Optional = None,
    *,
    alpha: float = 0.01,
) -> Value:
    return _quantized(b, b("LeakyRelu", _dequantized(b, x, x_scale, x_point), alpha=alpha), y_scale, y_point)


@defines("QLinearSoftmax", since=13)
def _qlinear_softmax(
    b: Body, x: Value, x_scale: Value, x_point: Optional, y_scale: Value, y_point: Optional = None,
    *, axis: int = -1, opset: int = 13,
) -> Value:  # fmt: skip
    data = _dequantized(b, x, x_scale, x_point)
    if opset < 13:
        shares = b("Reshape", b("Softmax", b("Flatten", data, axis=axis), axis=-1), b("Shape", data))
    else:
        shares = b("Softmax", data, axis=axis)
    return _quantized(b, shares, y_scale, y_point)


@defines("QLinearReduceMean", since=13)
def _qlinear_reduce_mean(
    b: Body, x: Value, x_scale: Value, x_point: Optional, y_scale: Value, y_point: Optional = None,
    *, axes: Sequence[int] | None = None, keepdims: int = 1,
) -> Value:  # fmt: skip
    data = _dequantized(b, x, x_scale, x_point)
    if axes is None:
        return _quantized(b, b("ReduceMean", data, keepdims=keepdims), y_scale, y_point)
    ones = b("ConstantOfShape", b("Shape", data), value=np.ones(1, np.float32))
    total, count = (b("ReduceSum", v, b.ints(*axes), keepdims=keepdims) for v in (data, ones))
    return _quantized(b, b("Div", total, count), y_scale, y_point)


@defines("QLinearWhere", since=13)
def _qlinear_where(
    b: Body, condition: Value, x: Value, x_scale: Value, x_point: Optional, y: Value, y_scale: Value, y_point: Optional,
    z_scale: Value, z_point: Optional = None,
) -> Value:  # fmt: skip
    result = b("Where", condition, _dequantized(b, x, x_scale, x_point), _dequantized(b, y, y_scale, y_point))
    return _quantized(b, result, z_scale, z_point)


@defines("QLinearConcat", since=13)
def _qlinear_concat(b: Body, y_scale: Value, y_point: Optional, *parts: Optional, axis: int) -> Value:
    covered(parts and len(parts) % 3 == 0)
    triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    joined = b("Concat", *(b("DequantizeLinear", *triple) for triple in triples), axis=axis)
    return _quantized(b, joined, y_scale, y_point)


_TO_FIRST, _TO_LAST = [0, 3, 1, 2], [0, 2, 3, 1]


def _channels_first(b: Body, x: Value, channels_last: int) -> Value:
    return b("Transpose", x, perm=_TO_FIRST) if channels_last else x


def _channels_last(b: Body, x: Value, channels_last: int) -> Value:
    return b("Transpose", x, perm=_TO_LAST) if channels_last else x


@defines("QLinearAveragePool", since=13, passed=_WINDOW | {"ceil_mode", "count_include_pad"})
def _qlinear_average_pool(
    b: Body, x: Value, x_scale: Value, x_point: Optional, y_scale: Value, y_point: Optional = None,
    *, kernel_shape: Sequence[int], channels_last: int = 0, **pool: Attr,
) -> Value:  # fmt: skip
    data = _channels_first(b, _dequantized(b, x, x_scale, x_point), channels_last)
    mean = b("AveragePool", data, kernel_shape=kernel_shape, **pool)
    return _quantized(b, _channels_last(b, mean, channels_last), y_scale, y_point)


@defines("QLinearGlobalAveragePool", since=13)
def _qlinear_global_average_pool(
    b: Body, x: Value, x_scale: Value, x_point: Optional, y_scale: Value, y_point: Optional = None,
    *, channels_last: int = 0,
) -> Value:  # fmt: skip
    data = _channels_first(b, _dequantized(b, x, x_scale, x_point), channels_last)
    return _quantized(b, _channels_last(b, b("GlobalAveragePool", data), channels_last), y_scale, y_point)


@defines("NhwcMaxPool", since=13, passed=_WINDOW | {"dilations", "ceil_mode"})
def _nhwc_max_pool(b: Body, x: Value, *, kernel_shape: Sequence[int], **pool: Attr) -> Value:
    return _channels_last(b, b("MaxPool", _channels_first(b, x, 1), kernel_shape=kernel_shape, **pool), 1)


@defines("QLinearConv", since=13, passed=_CONV)
def _qlinear_conv(
    b: Body, x: Value, x_scale: Value, x_point: Value, w: Value, w_scale: Value, w_point: Value, y_scale: Value,
    y_point: Value, bias: Optional = None, *, channels_last: int = 0, **conv: Attr,
) -> Value:  # fmt: skip
    operands = x_scale, x_point, w, w_scale, w_point, y_scale, y_point, bias
    return _channels_last(b, b("QLinearConv", _channels_first(b, x, channels_last), *operands, **conv), channels_last)


@defines("QGemm", since=13)
def _qgemm(
    b: Body, x: Value, x_scale: Value, x_point: Optional, w: Value, w_scale: Value, w_point: Optional,
    c: Optional = None, y_scale: Optional = None, y_point: Optional = None,
    *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Value:  # fmt: skip
    data = _dequantized(b, x, x_scale, x_point)
    scale = b("Mul", b.float32(alpha), w_scale)
    weight = _dequantized(b, w, scale, w_point, axis=0 if transB else 1)
    bias = None if c is None else b("DequantizeLinear", c, b("Mul", x_scale, scale), axis=-1)
    result = b("Gemm", data, weight, bias, transA=transA, transB=transB)
    return result if y_scale is None else _quantized(b, result, y_scale, y_point)


@defines("MatMulIntegerToFloat", since=13)
def _matmul_integer_to_float(
    b: Body, x: Value, w: Value, x_scale: Optional, w_scale: Optional, x_point: Optional = None,
    w_point: Optional = None, bias: Optional = None,
) -> Value:  # fmt: skip
    sums = b("Cast", b("MatMulInteger", x, w, x_point, w_point), to=NUMBER_BY_DTYPE["float32"])
    return _biased(b, b("Mul", sums, b("Mul", x_scale, w_scale)), bias)


@defines("DynamicQuantizeMatMul", since=13)
def _dynamic_quantize_matmul(
    b: Body, x: Value, w: Value, w_scale: Value, w_point: Optional = None, bias: Optional = None
) -> Results:
    data, scale, point = b.several(3, "DynamicQuantizeLinear", x)
    return _matmul_integer_to_float(b, data, w, scale, w_scale, point, w_point, bias)
