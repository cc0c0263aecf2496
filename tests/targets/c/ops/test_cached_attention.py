"""Attention with a cache: equal to onnxruntime and to the host, errors of lengths, and caches extended in place."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import tinycomp
from tinycomp.errors import ExecutionError, FeedError, TinycompError, TinycompWarning

GROUPED = ("query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos_cache",
           "sin_cache", "position_ids", "attention_bias", "head_sink")  # fmt: skip
MULTI_HEAD = ("query", "key", "value", "bias", "key_padding_mask", "attention_bias", "past_key", "past_value")
PLAIN = ("q", "k", "v", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")

Arrays = dict[str, np.ndarray]


def model(op: str, order: tuple[str, ...], feeds: Arrays, outputs: dict[str, Any], attrs: dict[str, Any]) -> bytes:
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    names = [name if name in feeds else "" for name in order]
    while not names[-1]:
        names.pop()
    domain = "" if op == "Attention" else "com.microsoft"
    node = helper.make_node(op, names, list(outputs), name="attention", domain=domain, **attrs)
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in outputs.items()]
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(helper.make_graph([node], "g", inputs, results), opset_imports=opsets, ir_version=10)
    return proto.SerializeToString()


def kernels(module: tinycomp.Module) -> list[str]:
    programs = [step.run.program for step in module._parts.plan.steps]
    return [call.kernel for program in programs for call in program.instructions]


# ---- GroupQueryAttention ----


def grouped(
    *, batch=1, rows=4, heads=4, key_heads=2, size=16, past=0, capacity=None, lengths=None, longest=None, packed=False,
    rotary=None, positions=False, bias=None, sink=False, **attrs,
):  # fmt: skip
    """Feeds, shapes of results and attributes; ``past`` rows as a growing past, or ``capacity`` of a shared buffer."""
    rng = np.random.default_rng(11)

    def draw(*shape):
        return rng.standard_normal(shape, np.float32)

    widths = [heads * size, key_heads * size, key_heads * size]
    if packed:
        feeds = {"query": draw(batch, rows, sum(widths))}
    else:
        feeds = {name: draw(batch, rows, n) for name, n in zip(("query", "key", "value"), widths, strict=True)}
    room = past if capacity is None else capacity
    if room:
        feeds |= {name: draw(batch, key_heads, room, size) for name in ("past_key", "past_value")}
    lengths = np.array([past + rows - 1] * batch if lengths is None else lengths, np.int32)
    total = int(lengths.max()) + 1 if longest is None else longest
    feeds |= {"seqlens_k": lengths, "total_sequence_length": np.array(total, np.int32)}
    if rotary is not None:
        angles = np.arange(max(total, rows) + 3)[:, None] * 0.5 ** np.arange(size // 2)
        feeds |= {"cos_cache": np.cos(angles).astype(np.float32), "sin_cache": np.sin(angles).astype(np.float32)}
        attrs |= {"do_rotary": 1, "rotary_interleaved": rotary}
    if positions:
        feeds["position_ids"] = np.tile(np.arange(total - rows, total), (batch, 1))
    if bias is not None:
        feeds["attention_bias"] = draw(*bias, rows, total)
    if sink:
        feeds["head_sink"] = draw(heads)
    present = [batch, key_heads, max(total, room), size]
    outputs = {"y": [batch, rows, heads * size], "present_key": present, "present_value": present}
    return feeds, outputs, {"num_heads": heads, "kv_num_heads": key_heads, **attrs}


GROUPED_CASES: dict[str, dict[str, Any]] = {
    "prompt": {},
    "packed": {"packed": True},
    "one token": {"rows": 1, "past": 7},
    "a few tokens": {"rows": 3, "past": 7},
    "prompts of different lengths": {"batch": 3, "rows": 5, "lengths": [4, 2, 0]},
    "prompts into a buffer": {"batch": 3, "rows": 5, "lengths": [4, 2, 0], "capacity": 12},
    "tokens at different lengths": {"batch": 3, "rows": 1, "lengths": [4, 8, 2], "past": 8},
    "tokens into a buffer": {"batch": 3, "rows": 1, "lengths": [4, 8, 2], "capacity": 16},
    "rotated": {"rotary": 0},
    "rotated pairs": {"rotary": 1},
    "rotated token": {"rotary": 0, "rows": 1, "past": 7, "batch": 2},
    "rotated tokens": {"rotary": 1, "rows": 3, "past": 7},
    "rotated in a buffer": {"rotary": 0, "batch": 3, "rows": 1, "lengths": [4, 8, 2], "capacity": 16},
    "rotated prompts": {"rotary": 0, "batch": 3, "rows": 5, "lengths": [4, 2, 0]},
    "positions": {"rotary": 0, "positions": True, "rows": 1, "past": 7},
    "packed and rotated": {"rotary": 0, "packed": True, "rows": 1, "lengths": [700], "capacity": 1024},
    "window": {"rows": 9, "local_window_size": 3},
    "window of a token": {"rows": 1, "past": 9, "local_window_size": 3},
    "window of tokens": {"rows": 3, "past": 9, "local_window_size": 4},
    "window in a long past": {"rows": 1, "past": 1600, "local_window_size": 700},
    "soft cap": {"softcap": 2.0},
    "soft cap of a token": {"softcap": 2.0, "rows": 1, "past": 6},
    "scale": {"scale": 0.7},
    "smooth": {"smooth_softmax": 1},
    "sink": {"sink": True},
    "sink of a token": {"sink": True, "rows": 1, "past": 6, "heads": 8},
    "sink of a long past": {"sink": True, "rows": 2, "past": 1100, "heads": 8},
    "bias": {"bias": (1, 4), "rows": 3, "past": 4},
    "one bias": {"bias": (1, 1), "batch": 2, "rows": 1, "past": 4},
    "bias and soft cap": {"bias": (1, 4), "softcap": 1.5},
    "both ways": {"causal": 0},
    "both ways with a past": {"causal": 0, "rows": 3, "past": 4},
    "long past": {"rows": 1, "past": 1300, "heads": 8, "size": 24},
    "long past and many tokens": {"rows": 300, "past": 100, "size": 40},
    "one head of keys": {"rows": 1, "past": 900, "heads": 8, "key_heads": 1},
    "as many heads of keys": {"rows": 2, "past": 30, "heads": 3, "key_heads": 3, "size": 8},
}


def in_onnxruntime(data: bytes, feeds: Arrays, outputs: dict[str, Any]) -> Arrays:
    """Run a model; a past that has room for the present is that, as only such a past may be longer than valid."""
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    kept = {name: array.copy() for name, array in feeds.items()}
    if "past_key" not in feeds or outputs["present_key"][2] != feeds["past_key"].shape[2]:
        return dict(zip(outputs, session.run(list(outputs), kept), strict=True))
    binding = session.io_binding()
    values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in kept.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y")
    for kind in ("key", "value"):
        binding.bind_ortvalue_output(f"present_{kind}", values[f"past_{kind}"])
    session.run_with_iobinding(binding)
    return {name: np.array(v.numpy()) for name, v in zip(outputs, binding.get_outputs(), strict=True)}


def assert_valid_rows_equal(found: Arrays, wanted: Arrays, feeds: Arrays, tolerance: float = 2e-5) -> None:
    """Compare what the lengths call valid: queries behind the end of a prompt, and rows of a cache, are anything."""
    rows = feeds["query"].shape[1]
    is_prompt = rows == int(feeds["total_sequence_length"])
    for batch, length in enumerate(feeds["seqlens_k"] + 1):
        seen = min(length, rows) if is_prompt else rows
        np.testing.assert_allclose(found["y"][batch, :seen], wanted["y"][batch, :seen], tolerance, 2e-6)
        for name in ("present_key", "present_value"):
            np.testing.assert_allclose(found[name][batch, :, :length], wanted[name][batch, :, :length], tolerance, 2e-6)


@pytest.mark.parametrize("name", GROUPED_CASES)
def test_grouped_queries_equal_onnxruntime_and_the_host(name):
    feeds, outputs, attrs = grouped(**GROUPED_CASES[name])
    data = model("GroupQueryAttention", GROUPED, feeds, outputs, attrs)
    module, host = tinycomp.compile(data), tinycomp.compile(data, "host")
    assert set(kernels(module)) <= {"cache_append_f32", "cached_attention_f32", "attention_combine_f32"}
    result, reference = module.run(feeds), host.run(feeds)
    assert_valid_rows_equal(result, in_onnxruntime(data, feeds, outputs), feeds)
    for output, array in reference.items():
        np.testing.assert_allclose(result[output], array, 2e-5, 2e-6)


@pytest.mark.parametrize("declared", [5, 8, 20, 32])
def test_a_present_that_is_declared_in_another_length_is_as_long_as_it_is(declared):
    """Whatever the model says: it is as long as the past's buffer or the longest sequence, whichever is greater."""
    feeds, outputs, attrs = grouped(rows=1, capacity=8, lengths=[5])
    wrong = {n: [*shape[:2], declared, shape[3]] if "present" in n else shape for n, shape in outputs.items()}
    reference = tinycomp.compile(model("GroupQueryAttention", GROUPED, feeds, outputs, attrs), "host").run(feeds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TinycompWarning)
        found = tinycomp.compile(model("GroupQueryAttention", GROUPED, feeds, wrong, attrs)).run(feeds)
    for output, array in reference.items():
        np.testing.assert_allclose(found[output], array, 2e-5, 2e-6)


def test_several_tokens_of_sequences_of_different_lengths():
    """Which onnxruntime does not take: the host says what is right."""
    feeds, outputs, attrs = grouped(batch=3, rows=3, lengths=[5, 9, 2], longest=11, capacity=12, rotary=0)
    data = model("GroupQueryAttention", GROUPED, feeds, outputs, attrs)
    reference = tinycomp.compile(data, "host").run(feeds)
    for output, array in tinycomp.compile(data).run(feeds).items():
        np.testing.assert_allclose(array, reference[output], 2e-5, 2e-6)


@pytest.mark.parametrize("target", ["c", "host"])
@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"rows": 1, "capacity": 8, "lengths": [8], "longest": 8}, "the cache is full: a sequence is longer than"),
        ({"rows": 3, "capacity": 8, "lengths": [1], "longest": 8}, "a sequence is shorter than its new rows"),
        ({"rows": 3, "capacity": 8, "lengths": [-7], "longest": 3}, "a sequence is shorter than its new rows"),
    ],
)
def test_lengths_that_do_not_fit(target, case, message):
    feeds, outputs, attrs = grouped(**case)
    module = tinycomp.compile(model("GroupQueryAttention", GROUPED, feeds, outputs, attrs), target)
    with pytest.raises(ExecutionError, match=message) as caught:
        module.run(feeds)
    assert "attention" in str(caught.value)


def test_positions_behind_the_caches_of_angles():
    feeds, outputs, attrs = grouped(rows=1, past=7, rotary=0, positions=True)
    module = tinycomp.compile(model("GroupQueryAttention", GROUPED, feeds, outputs, attrs))
    with pytest.raises(ExecutionError, match="a position lies behind the end of the cos and sin caches"):
        module.run(feeds | {"position_ids": np.int64([[11]])})


REFUSED = {
    "scores": ({"qk_output": 1}, "qk_output is not covered"),
    "integers": ({"kv_cache_bit_width": 8}, "kv_cache_bit_width is not covered"),
    "a window that slides": ({"sliding_window_cache": 1}, "sliding_window_cache is not covered"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_covered_says_why(name):
    attrs, message = REFUSED[name]
    feeds, outputs, others = grouped(rows=1, past=4)
    module = tinycomp.compile(model("GroupQueryAttention", GROUPED, feeds, outputs, others | attrs))
    with pytest.raises(TinycompError, match=message):
        module.run(feeds)


def test_heads_that_do_not_fit():
    feeds, outputs, attrs = grouped()
    with pytest.raises(TinycompError, match=r"num_heads, a multiple of kv_num_heads.*found 4 and 3"):
        tinycomp.compile(model("GroupQueryAttention", GROUPED, feeds, outputs, attrs | {"kv_num_heads": 3}))


# ---- in place ----


def bound(data: bytes, feeds: Arrays, outputs: dict[str, Any]) -> tuple[Arrays, Any]:
    module = tinycomp.compile(data)
    given = {name: array.copy() for name, array in feeds.items()}
    results = {"y": np.empty(outputs["y"], np.float32)}
    results |= {f"present_{kind}": given[f"past_{kind}"] for kind in ("key", "value")}
    return given, module.bind(given, results)


@pytest.mark.parametrize(
    "case",
    [
        {"rows": 1, "capacity": 700, "lengths": [640], "rotary": 0},
        {"batch": 2, "rows": 1, "capacity": 9, "lengths": [3, 8]},
        {"rows": 40, "capacity": 64, "lengths": [39], "packed": True, "rotary": 1},
    ],
    ids=["long", "batch", "prompt"],
)
def test_a_cache_is_extended_where_it_lies(case):
    feeds, outputs, attrs = grouped(**case)
    data = model("GroupQueryAttention", GROUPED, feeds, outputs, attrs)
    apart = tinycomp.compile(data).run(feeds)
    given, run = bound(data, feeds, outputs)
    y, keys, values = run()
    assert keys is given["past_key"]
    for found, name in ((y, "y"), (keys, "present_key"), (values, "present_value")):
        np.testing.assert_array_equal(found, apart[name])


def test_only_what_a_past_becomes_may_share_its_memory():
    feeds, outputs, attrs = grouped(rows=1, capacity=8, lengths=[5])
    module = tinycomp.compile(model("GroupQueryAttention", GROUPED, feeds, outputs, attrs))
    key, value = feeds["past_key"], feeds["past_value"]
    y = np.empty(outputs["y"], np.float32)
    module.bind(feeds, {"y": y, "present_key": key, "present_value": value})
    module.bind(feeds, {"y": y, "present_key": key, "present_value": value.copy()})
    for presents in ([value, key], [key, key]):
        results = {"y": y, "present_key": presents[0], "present_value": presents[1]}
        with pytest.raises(FeedError, match=r"(?s)shares its memory with another array.*memory of its own"):
            module.bind(feeds, results)
    shifted = np.empty(key.size + 1, np.float32)
    with pytest.raises(FeedError, match="shares its memory"):
        module.bind(
            feeds | {"past_key": shifted[:-1].reshape(key.shape)},
            {"y": y, "present_key": shifted[1:].reshape(key.shape), "present_value": value},
        )


def test_a_growing_past_has_memory_of_its_own():
    feeds, outputs, attrs = grouped(rows=1, past=5)
    module = tinycomp.compile(model("GroupQueryAttention", GROUPED, feeds, outputs, attrs))
    room = np.zeros(outputs["present_key"], np.float32)
    past = room.reshape(-1)[: feeds["past_key"].size].reshape(feeds["past_key"].shape)
    results = {"y": np.empty(outputs["y"], np.float32), "present_key": room, "present_value": room.copy()}
    with pytest.raises(FeedError, match="shares its memory"):
        module.bind(feeds | {"past_key": past}, results)


def test_a_past_that_something_else_reads_has_memory_of_its_own():
    feeds, outputs, attrs = grouped(rows=1, capacity=8, lengths=[5])
    proto = onnx.ModelProto.FromString(model("GroupQueryAttention", GROUPED, feeds, outputs, attrs))
    proto.graph.node.append(helper.make_node("Neg", ["past_key"], ["negative"]))
    proto.graph.output.append(helper.make_tensor_value_info("negative", TensorProto.FLOAT, outputs["present_key"]))
    module = tinycomp.compile(proto)
    results = {"y": np.empty(outputs["y"], np.float32), "negative": np.empty(outputs["present_key"], np.float32)}
    results |= {"present_key": feeds["past_key"], "present_value": feeds["past_value"]}
    with pytest.raises(FeedError, match=r'output "present_key"(?s:.*)memory of "past_key"'):
        module.bind(feeds, results)
    apart = {f"present_{kind}": np.empty_like(feeds["past_key"]) for kind in ("key", "value")}
    module.bind(feeds, results | apart)


# ---- MultiHeadAttention ----


def multi_head(*, batch=2, rows=3, past=5, heads=4, size=16, bias=False, mask=0, added=None, presents=True, **attrs):
    rng = np.random.default_rng(5)

    def draw(*shape):
        return rng.standard_normal(shape, np.float32)

    total = past + rows
    feeds = {name: draw(batch, rows, heads * size) for name in ("query", "key", "value")}
    if bias:
        feeds["bias"] = draw(3 * heads * size)
    if mask:
        seen = (rng.random((batch, total)) < 0.7).astype(np.int32)
        feeds["key_padding_mask"] = seen if mask == 2 else np.int32([total, 2])
    if added is not None:
        feeds["attention_bias"] = draw(*added, rows, total)
    if past:
        feeds |= {f"past_{kind}": draw(batch, heads, past, size) for kind in ("key", "value")}
    outputs = {"y": [batch, rows, heads * size]}
    if presents:
        outputs |= {f"present_{kind}": [batch, heads, total, size] for kind in ("key", "value")}
    return feeds, outputs, {"num_heads": heads, **attrs}


MULTI_HEAD_CASES: dict[str, dict[str, Any]] = {
    "past": {},
    "bias": {"bias": True},
    "masked keys": {"mask": 2},
    "added": {"added": (1, 1)},
    "added to every head": {"added": (2, 4)},
    "causal": {"unidirectional": 1},
    "causal, masked and biased": {"unidirectional": 1, "mask": 2, "bias": True},
    "long past": {"rows": 1, "past": 600, "size": 40},
    "no past": {"past": 0},
    "no past, one result": {"past": 0, "presents": False},
    "no past, causal": {"past": 0, "unidirectional": 1},
    "no past, lengths": {"past": 0, "mask": 1, "unidirectional": 1},
    "scale": {"scale": 0.3},
}


@pytest.mark.parametrize("name", MULTI_HEAD_CASES)
def test_many_heads_equal_onnxruntime_and_the_host(name):
    feeds, outputs, attrs = multi_head(**MULTI_HEAD_CASES[name])
    data = model("MultiHeadAttention", MULTI_HEAD, feeds, outputs, attrs)
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    wanted = dict(zip(outputs, session.run(list(outputs), feeds), strict=True))
    module = tinycomp.compile(data)
    assert {step.tier for step in module._parts.plan.steps} == {"c"}
    result, reference = module.run(feeds), tinycomp.compile(data, "host").run(feeds)
    for output, array in wanted.items():
        np.testing.assert_allclose(result[output], array, 2e-5, 2e-6)
        np.testing.assert_allclose(reference[output], array, 2e-5, 2e-6)


# ---- Attention of ONNX ----


def plain(
    *, rank=4, batch=2, rows=5, keys=7, heads=4, key_heads=4, size=8, value_size=8, past=0, mask=None, dtype="float32",
    lengths=None, presents=True, **attrs,
):  # fmt: skip
    rng = np.random.default_rng(3)

    def draw(*shape):
        return rng.standard_normal(shape, np.float32)

    def stored(count, length, width):
        return draw(batch, count, length, width) if rank == 4 else draw(batch, length, count * width)

    feeds = {
        "q": stored(heads, rows, size),
        "k": stored(key_heads, keys, size),
        "v": stored(key_heads, keys, value_size),
    }
    if mask is not None:
        feeds["attn_mask"] = rng.random(mask) < 0.6 if dtype == "bool" else draw(*mask)
    if past:
        feeds |= {
            "past_key": draw(batch, key_heads, past, size),
            "past_value": draw(batch, key_heads, past, value_size),
        }
    if lengths is not None:
        feeds["nonpad_kv_seqlen"] = np.int64(lengths)
    if rank == 3:
        attrs |= {"q_num_heads": heads, "kv_num_heads": key_heads}
    y = [batch, heads, rows, value_size] if rank == 4 else [batch, rows, heads * value_size]
    outputs = {"y": y}
    if presents:
        outputs |= {"pk": [batch, key_heads, past + keys, size], "pv": [batch, key_heads, past + keys, value_size]}
    return feeds, outputs, attrs


PLAIN_CASES: dict[str, dict[str, Any]] = {
    "rank 4": {},
    "rank 3": {"rank": 3},
    "one result": {"rank": 3, "presents": False},
    "grouped": {"rank": 3, "key_heads": 2},
    "wider values": {"rank": 3, "value_size": 24},
    "past": {"past": 6},
    "past, rank 3, causal": {"past": 6, "rank": 3, "is_causal": 1, "rows": 3, "keys": 3},
    "causal": {"is_causal": 1},
    "causal, more queries than keys": {"is_causal": 1, "rows": 9, "keys": 4},
    "mask of a matrix": {"mask": (5, 7)},
    "mask of heads": {"mask": (1, 4, 5, 7)},
    "mask of batches": {"mask": (2, 1, 1, 7), "is_causal": 1},
    "mask of truths": {"mask": (2, 1, 5, 7), "dtype": "bool"},
    "truths that end early": {"mask": (5, 4), "dtype": "bool"},
    "mask that ends early": {"mask": (5, 4)},
    "mask and past": {"mask": (2, 4, 5, 13), "past": 6},
    "soft cap": {"softcap": 1.5, "mask": (5, 7)},
    "scale": {"scale": 0.9},
    "lengths": {"lengths": [3, 7]},
    "lengths, causal": {"lengths": [6, 7], "is_causal": 1},
    "lengths, causal, one query": {"lengths": [6, 0], "is_causal": 1, "rows": 1},
    "long": {"rows": 1, "keys": 1300, "key_heads": 1, "is_causal": 0},
    "many": {"rows": 200, "keys": 300, "past": 40, "is_causal": 1, "rank": 3, "size": 20},
    "no queries": {"rows": 0},
    "no keys": {"keys": 0},
}


@pytest.mark.parametrize("name", PLAIN_CASES)
def test_attention_equals_the_host(name):
    feeds, outputs, attrs = plain(**PLAIN_CASES[name])
    data = model("Attention", PLAIN, feeds, outputs, attrs)
    module = tinycomp.compile(data)
    assert "cached_attention_f32" in kernels(module)
    result, reference = module.run(feeds), tinycomp.compile(data, "host").run(feeds)
    for output, array in reference.items():
        np.testing.assert_allclose(result[output], array, 2e-5, 2e-6)


APART = {"scores": ({"scores": [2, 4, 5, 13]}, {}), "double precision": ({}, {"softmax_precision": TensorProto.DOUBLE})}


@pytest.mark.parametrize("name", APART)
def test_what_no_kernel_does_runs_as_onnx_defines_it(name):
    more, attrs = APART[name]
    feeds, outputs, others = plain(past=6)
    data = model("Attention", PLAIN, feeds, outputs | more, others | attrs)
    module = tinycomp.compile(data)
    assert "cached_attention_f32" not in kernels(module)
    reference = tinycomp.compile(data, "host").run(feeds)
    for output, array in module.run(feeds).items():
        np.testing.assert_allclose(array, reference[output], 2e-5, 2e-6)


@pytest.mark.parametrize("causal", [0, 1])
def test_lengths_beyond_any_sequence_are_as_many_positions_as_there_are(causal):
    shapes = {"q": (2, 2, 3, 8), "k": (2, 2, 5, 8), "v": (2, 2, 5, 8)}
    feeds = {
        name: np.random.default_rng(i).standard_normal(s, np.float32) for i, (name, s) in enumerate(shapes.items())
    }
    text = "g (float[2,2,3,8] q, float[2,2,5,8] k, float[2,2,5,8] v, int64[2] n) => (y)"
    node = f"y = Attention<is_causal={causal}>(q, k, v, , , , n)"
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 24]> {text} {{ {node} }}')
    results = [
        tinycomp.compile(made, target).run({**feeds, "n": np.array(lengths)})["y"]
        for target in ("c", "host") for lengths in ([2**62 + 5, 2**63 - 1], [8, 8])
    ]  # fmt: skip
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-5, atol=1e-6)
