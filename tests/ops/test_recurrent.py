"""RNN, GRU and LSTM against onnxruntime."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tests.ops.harness import check, run_ours, sample
from tinycomp.errors import ExecutionError
from tinycomp.ops import OPS

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
OUTPUTS = {"RNN": 2, "GRU": 2, "LSTM": 3}
STEPS, BATCH, WIDTH, HIDDEN = 5, 3, 4, 6
ORT = ("onnxruntime",)


def operands(op, ways=1, bias=True, lengths=None, states=True, peepholes=False, layout=0, dtype="float32"):
    """Return all inputs of a recurrent node."""
    rows = GATES[op] * HIDDEN
    shape = (BATCH, STEPS, WIDTH) if layout else (STEPS, BATCH, WIDTH)
    state = (BATCH, ways, HIDDEN) if layout else (ways, BATCH, HIDDEN)
    inputs = [
        sample(dtype, shape, 0),
        sample(dtype, (ways, rows, WIDTH), 1, -1, 1),
        sample(dtype, (ways, rows, HIDDEN), 2, -1, 1),
        sample(dtype, (ways, 2 * rows), 3, -1, 1) if bias else None,
        None if lengths is None else np.array(lengths, np.int32),
        sample(dtype, state, 4, -1, 1) if states else None,
    ]
    if op == "LSTM":
        inputs.append(sample(dtype, state, 5, -1, 1) if states else None)
        inputs.append(sample(dtype, (ways, 3 * HIDDEN), 6, -1, 1) if peepholes else None)
    while inputs[-1] is None:
        inputs.pop()
    return inputs


def compare(op, inputs, attrs, version=14):
    return check(op, inputs, {"hidden_size": HIDDEN, **attrs}, version, OUTPUTS[op], against=ORT, atol=1e-4)[0]


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("version", [7, 14])
def test_without_bias(op, version):
    compare(op, operands(op, bias=False, states=False), {}, version)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("ways", [1, 2])
def test_layout(op, ways):
    """Layout 1, which onnxruntime lacks, is layout 0 with batch and time or directions swapped."""
    attrs = {"hidden_size": HIDDEN, "direction": "bidirectional" if ways == 2 else "forward"}
    time_first = operands(op, ways)
    batch_first = [x if i in (1, 2, 3, 4) or x is None else x.swapaxes(0, 1) for i, x in enumerate(time_first)]
    want = run_ours(op, time_first, attrs, 14, OUTPUTS[op])
    got = run_ours(op, batch_first, {**attrs, "layout": 1}, 14, OUTPUTS[op])
    np.testing.assert_array_equal(got[0], want[0].transpose(2, 0, 1, 3))
    for g, w in zip(got[1:], want[1:], strict=True):
        np.testing.assert_array_equal(g, w.swapaxes(0, 1))


def test_parameters_go_to_the_activations_that_take_them():
    attrs = {
        "activations": ["HardSigmoid", "Tanh", "ScaledTanh"],
        "activation_alpha": [0.3, 0.8],
        "activation_beta": [0.6, 0.5],
    }
    names = operands("LSTM")
    got = run_ours("LSTM", names, attrs, 14, 3)
    hard = {**attrs, "activations": ["hardsigmoid", "TANH", "scaledtanh"]}
    for g, w in zip(got, run_ours("LSTM", names, hard, 14, 3), strict=True):
        np.testing.assert_array_equal(g, w)
    compare("LSTM", names, attrs)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(op, dtype):
    inputs = operands(op, dtype=dtype)
    got = run_ours(op, inputs, {}, 22, OUTPUTS[op])
    want = run_ours(op, [x if x is None else x.astype(np.float32) for x in inputs], {}, 22, OUTPUTS[op])
    tolerance = {"float16": 1e-3, "bfloat16": 1e-2, "float64": 1e-5}[dtype]
    for g, w in zip(got, want, strict=True):
        assert g.dtype == inputs[0].dtype
        np.testing.assert_allclose(g.astype(np.float32), w, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize(("steps", "batch"), [(0, 3), (5, 0)])
def test_empty(op, steps, batch):
    rows = GATES[op] * HIDDEN
    inputs = [np.zeros((steps, batch, WIDTH), np.float32)]
    inputs += [sample("float32", (1, rows, WIDTH), 1), sample("float32", (1, rows, HIDDEN), 2)]
    y, h = run_ours(op, inputs, {}, 14, 2)
    assert (y.shape, h.shape) == ((steps, 1, batch, HIDDEN), (1, batch, HIDDEN))


def test_sequences_of_length_zero_keep_their_state():
    inputs = operands("GRU", lengths=[0, 5, 2])
    y, h = run_ours("GRU", inputs, {}, 14, 2)
    np.testing.assert_array_equal(h[0, 0], inputs[5][0, 0])
    assert not y[:, 0, 0].any()
    assert not y[2:, 0, 2].any()


@pytest.mark.parametrize("op", GATES)
def test_errors(op):
    inputs = operands(op)
    with pytest.raises(ExecutionError, match=r"unknown direction; expected one of .*; found 'backward'"):
        run_ours(op, inputs, {"direction": "backward"})
    with pytest.raises(ExecutionError, match="axis 1 of the weight W has the wrong size"):
        run_ours(op, inputs, {"hidden_size": 7})
    with pytest.raises(ExecutionError, match="axis 0 of the weight W has the wrong size; expected 2; found 1"):
        run_ours(op, inputs, {"direction": "bidirectional"})
    count = {"RNN": 1, "GRU": 2, "LSTM": 3}[op]
    with pytest.raises(ExecutionError, match=f"wrong number of activations; expected {count}; found 4"):
        run_ours(op, inputs, {"activations": ["Tanh"] * 4})
    with pytest.raises(ExecutionError, match=r"unknown activation; .*found 'Tanhh'. Did you mean \"tanh\""):
        run_ours(op, inputs, {"activations": ["Tanhh"] * count})
    with pytest.raises(ExecutionError, match=r"operand 0 has the wrong rank; expected 3 dimensions; .*5, 4"):
        run_ours(op, [inputs[0][:, 0], *inputs[1:]])
    with pytest.raises(ExecutionError, match="axis 0 of sequence_lens has the wrong size; expected 3; found 2"):
        run_ours(op, [*inputs[:4], np.array([1, 1], np.int32), *inputs[5:]])
    for lengths in ([6, 1, 1], [-1, 1, 1]):
        with pytest.raises(ExecutionError, match=rf"{op}: bad sequence_lens; expected lengths in \[0, 5\]"):
            run_ours(op, [*inputs[:4], np.array(lengths, np.int32), *inputs[5:]])


def test_macs():
    shapes = [(5, 3, 4), (2, 24, 4), (2, 24, 6)]
    node = SimpleNamespace(inputs=[SimpleNamespace(type=SimpleNamespace(shape=s)) for s in shapes])
    assert OPS.find("LSTM").macs(node) == 5 * 3 * 2 * 24 * (4 + 6)
