"""Matrix products: MatMul in all its broadcast forms, Gemm, Einsum, products of integers, recurrent layers."""

from __future__ import annotations

import numpy as np

from tests.fuzz.models.build import Builder, UnsuitableError, Value

DTYPES = ("float32", "float32", "float32", "float64")


def product(b: Builder, op: str, x: Value, y: Value, depth: int, **attrs: object) -> Value:
    """Add a node that sums ``depth`` products."""
    return b.add(op, [x, y], bound=depth * x.bound * y.bound, step=x.step * y.step, **attrs)


def matmul(b: Builder) -> Value:
    """MatMul by constants or by another value, with and without dimensions in front."""
    x = b.pick_float(lambda v: v.rank >= 1, DTYPES)
    depth = x.shape[-1]
    if b.rng.random() < 0.4:
        try:
            y = b.pick(lambda v: v.dtype == x.dtype and v.rank >= 2 and v.shape[-2] == depth)
            return product(b, "MatMul", x, y, depth)
        except UnsuitableError:
            pass
    shape = [depth, b.rng.randint(1, 40)]
    choice = b.rng.random()
    if choice < 0.1:
        shape = [depth]
    elif choice < 0.25:
        shape = [b.rng.choice((1, d)) for d in x.shape[:-2]] + shape
    elif choice < 0.3:
        shape = [b.rng.randint(1, 3)] + [1] * max(x.rank - 2, 0) + shape
    return product(b, "MatMul", x, b.weights(x.dtype, shape, 0.25), depth)


def matmul_of_two(b: Builder) -> Value:
    """Attention's products: a value times the transpose of another."""
    x = b.pick_float(lambda v: v.rank >= 2, DTYPES)
    y = b.pick(lambda v: v.dtype == x.dtype and v.rank == x.rank and v.shape[-1] == x.shape[-1])
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    turned = b.add("Transpose", [y], bound=y.bound, step=y.step, perm=perm)
    return product(b, "MatMul", x, turned, x.shape[-1])


def gemm(b: Builder) -> Value:
    """Gemm, transposed or not, with every form of its third operand."""
    x = b.pick_float(lambda v: v.rank == 2, DTYPES)
    trans_a, trans_b = b.rng.random() < 0.2, b.rng.random() < 0.5
    rows, depth = x.shape[::-1] if trans_a else x.shape
    columns = b.rng.randint(1, 40)
    w = b.weights(x.dtype, (columns, depth) if trans_b else (depth, columns), 0.25)
    c = None
    if b.rng.random() < 0.8:
        c = b.weights(x.dtype, b.rng.choice(([columns], [1, columns], [rows, 1], [rows, columns], [], [1])))
    alpha, beta = b.rng.choice((1.0, 1.0, 0.5)), b.rng.choice((1.0, 1.0, 2.0))
    attrs = {"transA": int(trans_a), "transB": int(trans_b), "alpha": alpha, "beta": beta}
    bound = depth * x.bound * w.bound + (0.0 if c is None else beta * c.bound)
    step = min(alpha * x.step * w.step, 1.0 if c is None else c.step)
    return b.add("Gemm", [x, w, c], bound=bound, step=step, **attrs)


def einsum(b: Builder) -> Value:
    """A few equations that networks have."""
    x = b.pick_float(lambda v: v.rank in (2, 3, 4), ("float32",))
    letters = "bijk"[: x.rank]
    w = b.weights(x.dtype, (x.shape[-1], b.rng.randint(1, 9)), 0.25)
    last = letters[-1]
    equation = b.rng.choice(
        (f"{letters},{last}n->{letters[:-1]}n", f"{letters},{last}n->n{letters[:-1]}", f"...{last},{last}n->...n")
    )
    bound = x.shape[-1] * x.bound * w.bound
    return b.add("Einsum", [x, w], bound=bound, step=x.step * w.step, equation=equation)


def recurrent(b: Builder) -> Value:
    """LSTM, GRU and RNN in all directions, with and without bias and initial states."""
    x = b.pick_float(lambda v: v.rank == 3 and v.size < 2000, ("float32",))
    op, gates = b.rng.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    _, batch, width = x.shape
    hidden, direction = b.rng.randint(1, 9), b.rng.choice(("forward", "reverse", "bidirectional"))
    ways = 1 + (direction == "bidirectional")
    w, r = (b.weights("float32", (ways, gates * hidden, n), 0.125) for n in (width, hidden))
    bias = b.weights("float32", (ways, 2 * gates * hidden), 0.25) if b.rng.random() < 0.7 else None
    start = b.weights("float32", (ways, batch, hidden), 0.25) if b.rng.random() < 0.3 else None
    attrs: dict[str, object] = {"hidden_size": hidden, "direction": direction}
    if op == "GRU":
        attrs["linear_before_reset"] = b.rng.randint(0, 1)
    outputs = b.rng.randint(1, 3 if op == "LSTM" else 2)
    found = b.add_all(op, [x, w, r, bias, None, start], bound=1.0 + 4 * (op == "LSTM"), outputs=outputs, **attrs)
    return b.rng.choice(found)


def matmul_integer(b: Builder) -> Value:
    """MatMulInteger and ConvInteger, with zero points or without."""
    x = b.pick(lambda v: v.dtype == "uint8" and v.rank >= 2)
    zero = b.constant(np.array(b.rng.randint(0, 5), np.uint8)) if b.rng.random() < 0.5 else None
    if x.rank == 4 and b.rng.random() < 0.5:
        w = b.weights("int8", (b.rng.randint(1, 12), x.shape[1], 1, b.rng.randint(1, min(3, x.shape[3]))))
        return b.add("ConvInteger", [x, w, zero], bound=1e6)
    w = b.weights("int8", (x.shape[-1], b.rng.randint(1, 40)))
    return b.add("MatMulInteger", [x, w, zero], bound=1e6)


FAMILIES = {matmul: 4, matmul_of_two: 1.5, gemm: 2.5, einsum: 0.4, recurrent: 0.4, matmul_integer: 1}
