"""A small language model from nothing: trained with numpy, exported as ONNX with a cache, continued, and put into int4.

The model is a transformer of two layers that reads and writes bytes. It learns the licence of this project by heart, or
the text of a file that is named. A folder ``language-model`` is left behind for ``tinycomp generate``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import onnx

import tinycomp
from tinycomp.generation import Decoder, perplexity
from tinycomp.ir import Graph, TensorType

FOLDER = Path("language-model")
TEXT = Path(__file__).resolve().parents[1] / "LICENSE"
BYTES, WIDTH, HEADS, LAYERS = 256, 64, 4, 2
SIZE = WIDTH // HEADS
SLOPES = 2.0 ** -np.arange(1, 2 * HEADS, 2, dtype=np.float32)[:, np.newaxis, np.newaxis]
"""How fast each head forgets: biases that grow with the distance stand for positions (ALiBi, Press et al. 2022)."""
BATCH, LENGTH, STEPS, RATE = 4, 64, 400, 6e-3


def initial(rng):
    """Return random weights by name."""
    shapes = {"embedding": (BYTES, WIDTH), "head": (WIDTH, BYTES)}
    for i in range(LAYERS):
        shapes |= {f"qkv{i}": (WIDTH, 3 * WIDTH), f"mix{i}": (WIDTH, WIDTH)}
        shapes |= {f"up{i}": (WIDTH, 4 * WIDTH), f"down{i}": (4 * WIDTH, WIDTH)}
    return {name: (rng.standard_normal(s) * s[0] ** -0.5).astype(np.float32) for name, s in shapes.items()}


def normed(x):
    """Return x with a mean square of 1, and what it was multiplied by."""
    scale = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5)
    return x * scale, scale


def normed_back(dy, y, scale):
    """Return the gradient of what was normed."""
    return scale * (dy - y * (dy * y).mean(axis=-1, keepdims=True))


def heads(x):
    """Return [batch, heads, tokens, size] of [batch, tokens, width]."""
    return x.reshape(*x.shape[:2], HEADS, SIZE).transpose(0, 2, 1, 3)


def joined(x):
    """Return the inverse of heads."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], WIDTH)


def softmax(x):
    """Return x as probabilities along the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def product_back(dy, x, weight):
    """Return the gradients of x and the weight in x @ weight."""
    return dy @ weight.T, x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1])


def loss_and_gradients(w, ids, targets):
    """Return the mean loss of a batch [batch, tokens], and the gradients by name."""
    distance = np.arange(ids.shape[1])[:, np.newaxis] - np.arange(ids.shape[1])
    bias = np.where(distance < 0, np.float32(-1e9), -SLOPES * distance.astype(np.float32))
    x, kept = w["embedding"][ids], []
    for i in range(LAYERS):
        n, r = normed(x)
        q, k, v = map(heads, np.split(n @ w[f"qkv{i}"], 3, axis=-1))
        p = softmax(q @ k.swapaxes(2, 3) * SIZE**-0.5 + bias)
        mixed = joined(p @ v)
        x = x + mixed @ w[f"mix{i}"]
        m, s = normed(x)
        up = np.maximum(m @ w[f"up{i}"], 0)
        x = x + up @ w[f"down{i}"]
        kept.append((n, r, q, k, v, p, mixed, m, s, up))
    y, t = normed(x)
    shares = softmax(y @ w["head"])
    at = (*np.indices(ids.shape), targets)
    loss = -np.log(shares[at]).mean()

    g = {}
    shares[at] -= 1
    dy, g["head"] = product_back(shares / np.float32(ids.size), y, w["head"])
    dx = normed_back(dy, y, t)
    for i, (n, r, q, k, v, p, mixed, m, s, up) in reversed(list(enumerate(kept))):
        dup, g[f"down{i}"] = product_back(dx, up, w[f"down{i}"])
        dm, g[f"up{i}"] = product_back(dup * (up > 0), m, w[f"up{i}"])
        dx = dx + normed_back(dm, m, s)
        dmixed, g[f"mix{i}"] = product_back(dx, mixed, w[f"mix{i}"])
        dout = heads(dmixed)
        dp = dout @ v.swapaxes(2, 3)
        ds = p * (dp - (dp * p).sum(axis=-1, keepdims=True)) * SIZE**-0.5
        parts = ds @ k, ds.swapaxes(2, 3) @ q, p.swapaxes(2, 3) @ dout
        dn, g[f"qkv{i}"] = product_back(np.concatenate([joined(d) for d in parts], axis=-1), n, w[f"qkv{i}"])
        dx = dx + normed_back(dn, n, r)
    g["embedding"] = np.zeros_like(w["embedding"])
    np.add.at(g["embedding"], ids, dx)
    return float(loss), g


def trained(text, rng):
    """Return weights after some steps of Adam (Kingma and Ba, 2015)."""
    w = initial(rng)
    mean, square = ({name: np.zeros_like(a) for name, a in w.items()} for _ in range(2))
    for step in range(1, STEPS + 1):
        starts = rng.integers(0, len(text) - LENGTH - 1, BATCH)
        pieces = text[starts[:, np.newaxis] + np.arange(LENGTH + 1)]
        loss, gradients = loss_and_gradients(w, pieces[:, :-1], pieces[:, 1:])
        rate = RATE * min(1, step / 20) * (1 - step / (STEPS + 1)) * np.sqrt(1 - 0.98**step) / (1 - 0.9**step)
        for name, g in gradients.items():
            mean[name] += 0.1 * (g - mean[name])
            square[name] += 0.02 * (g * g - square[name])
            w[name] -= np.float32(rate) * mean[name] / (np.sqrt(square[name]) + 1e-8)
        if step % 100 == 0:
            print(f"step {step}: loss {loss:.2f}")
    return w


def exported(w):
    """Return the model in ONNX; keys and values of earlier tokens come in as past and go out as present."""
    graph = Graph("language-model", opsets={"": 18})

    def op(name, *inputs, **attrs):
        operands = [graph.add_const(np.asarray(v)) if isinstance(v, (np.ndarray, np.generic)) else v for v in inputs]
        return graph.add(name, operands, attrs).output

    def norm(x):
        square = op("ReduceMean", op("Mul", x, x), np.int64([-1]))
        return op("Div", x, op("Sqrt", op("Add", square, np.float32(1e-5))))

    def split_heads(x):
        return op("Transpose", op("Reshape", x, np.int64([0, -1, HEADS, SIZE])), perm=[0, 2, 1, 3])

    ids = graph.add_input("input_ids", TensorType("int64", ("batch", "sequence")))
    cache = TensorType("float32", ("batch", HEADS, "past", SIZE))
    pasts = {(i, kind): graph.add_input(f"past_key_values.{i}.{kind}", cache)
             for i in range(LAYERS) for kind in ("key", "value")}  # fmt: skip
    zero, one = np.int64(0), np.int64(1)
    before = op("Squeeze", op("Shape", pasts[0, "key"], start=2, end=3))
    total = op("Add", before, op("Squeeze", op("Shape", ids, start=1, end=2)))
    rows, columns = op("Range", before, total, one), op("Range", zero, total, one)
    distance = op("Sub", op("Unsqueeze", rows, np.int64([1])), op("Unsqueeze", columns, np.int64([0])))
    bias = op("Mul", op("Cast", distance, to=onnx.TensorProto.FLOAT), -SLOPES)
    bias = op("Where", op("Less", distance, zero), np.float32(-1e9), bias)
    x, presents = op("Gather", w["embedding"], ids), {}
    for i in range(LAYERS):
        n = norm(x)
        query, key, value = (split_heads(op("MatMul", n, part)) for part in np.split(w[f"qkv{i}"], 3, axis=1))
        key = presents[f"present.{i}.key"] = op("Concat", pasts[i, "key"], key, axis=2)
        value = presents[f"present.{i}.value"] = op("Concat", pasts[i, "value"], value, axis=2)
        scores = op("MatMul", query, op("Transpose", key, perm=[0, 1, 3, 2]))
        shares = op("Softmax", op("Add", op("Mul", scores, np.float32(SIZE**-0.5)), bias), axis=-1)
        mixed = op("Transpose", op("MatMul", shares, value), perm=[0, 2, 1, 3])
        x = op("Add", x, op("MatMul", op("Reshape", mixed, np.int64([0, -1, WIDTH])), w[f"mix{i}"]))
        x = op("Add", x, op("MatMul", op("Relu", op("MatMul", norm(x), w[f"up{i}"])), w[f"down{i}"]))
    logits = op("MatMul", norm(x), w["head"])
    graph.set_outputs([logits, *presents.values()], ["logits", *presents])
    return tinycomp.to_onnx(graph)


def main():
    """Train, export, continue, quantise."""
    text = (Path(sys.argv[1]) if sys.argv[1:] else TEXT).read_bytes()
    started = time.perf_counter()
    weights = trained(np.frombuffer(text, np.uint8).astype(np.int64), np.random.default_rng(0))
    print(f"trained on {len(text):,} bytes in {time.perf_counter() - started:.0f} s")
    model = exported(weights)
    FOLDER.mkdir(exist_ok=True)
    onnx.save(model, FOLDER / "model.onnx")

    module = tinycomp.compile(model, threads=1)
    prompt = b"You may reproduce "
    tokens = list(tinycomp.generate(module, list(prompt), max_new_tokens=30))
    print(f"{prompt.decode()}|{bytes(tokens).decode(errors='replace')}")

    seen = [Decoder(module).feeds([*text[start : start + 256]]) for start in range(0, len(text) - 256, 1024)]
    judged = list(text[:1024])
    print(f"float32: {len(model.SerializeToString()):,} bytes, perplexity {perplexity(module, judged, window=256):.3f}")
    for method in ("minmax", "mse", "gptq"):
        small = tinycomp.quantize(model, seen, weights="int4", method=method, progress=False)
        score = perplexity(tinycomp.compile(small, threads=1), judged, window=256)
        print(f"int4 by {method}: {len(small.SerializeToString()):,} bytes, perplexity {score:.3f}")
    onnx.save(small, FOLDER / "model-int4.onnx")


if __name__ == "__main__":
    main()
