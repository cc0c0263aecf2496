"""Functions of tensors at the edges of what eager code allows: values, types, aliases, writes; PyTorch judges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.pytorch.cases import base, inference

functional, T = torch.nn.functional, torch.tensor


def steps(text: str) -> Callable[..., Any]:
    """A function of x and y whose body is a few statements, the last of which gives the result."""
    *before, last = text.split("; ")
    lines = ["def function(x, y=None):", *(f"    {line}" for line in before), f"    return {last}"]
    scope = {"torch": torch, "functional": functional, "T": T, "base": base}
    exec("\n".join(lines), scope)
    return scope["function"]


def of(*kinds: Any) -> list[Any]:
    return [base(torch.int64).abs().to(kind) if kind is torch.uint8 else base(kind) for kind in kinds]


INDEX = {
    "-1": lambda: [base(), T([0, -1])],
    "beyond": lambda: [base(), T([0, 4])],
    "right": lambda: [base(), T([0, 3])],
}
ROW = {name: (lambda make=make: [(pair := make())[0], pair[1][None]]) for name, make in INDEX.items()}
WHOLE = {"by 0": lambda: [T([6, -7]), T([2, 0])], "by others": lambda: [T([6, -7]), T([2, 3])]}
NONE = {"none": lambda: [torch.zeros(0)], "some": lambda: [base()]}
ONE = {"": lambda: [base()]}
TWO = {"": lambda: [base(), base() + 1]}
TURNED = ONE | {"turned": lambda: [base(torch.float32, 6, 4).t()], "of inference mode": lambda: [inference()]}
TYPES = {
    str(kind)[6:]: (lambda kind=kind: of(kind)) for kind in (torch.int64, torch.int8, torch.float16, torch.float64)
}
MIXED = {
    f"{a}, {b}": (lambda a=a, b=b: of(getattr(torch, a), getattr(torch, b)))
    for a, b in (
        ("int64", "float32"), ("int8", "uint8"), ("float16", "bfloat16"), ("int64", "float16"), ("float32", "float64"),
    )
}  # fmt: skip
LINES: dict[str, dict[str, Callable[[], list[Any]]]] = {
    "x // y": WHOLE, "x % y": WHOLE, "torch.fmod(x, y)": WHOLE, "x / y": WHOLE, "x // (y - y)": WHOLE,
    "torch.div(x, y, rounding_mode='trunc')": WHOLE, "x.floor_divide_(y); x + 1": WHOLE, "x.add_(1); x // y": WHOLE,
    "x // 0": {"": lambda: [T([6, 7])]}, "x ** -1": {"": lambda: [T([2, 3])]}, "x // y, x % y": TWO,
    "functional.embedding(y, x)": INDEX, "functional.embedding(y - 1, x)": INDEX, "x[y]": INDEX,
    "torch.take(x, y)": INDEX,
    "torch.index_select(x, 0, y)": INDEX, "x.index_add(0, y, torch.ones(2, 6))": INDEX, "torch.gather(x, 0, y)": ROW,
    "x.index_copy(0, y, torch.ones(2, 6))": INDEX, "x.scatter(0, y, 1.0)": ROW, "functional.one_hot(y, 4)": INDEX,
    "x.scatter_add(0, y, torch.ones(1, 2))": ROW, "functional.nll_loss(x[:2], y)": INDEX,
    "functional.cross_entropy(x, y)": {"ignored": lambda: [base(), T([0, 1, -100, 5])]},
    "x.max()": NONE, "x.min()": NONE, "x.argmax()": NONE, "x.sum(), x.prod()": NONE,
    "x += y; (x, x * 2)": TWO | MIXED, "x.addcmul_(y, y, value=2); (x, x + 1)": TWO | MIXED, "x + y, x * y": MIXED,
    "torch.where(x > 0, x, y), torch.cat([x, y])": MIXED, "x.mul_(2.5); x + 1": TYPES,
    "x * 2.5, x + True, x / 2": TYPES,
    "x.sum(), x.cumsum(0), (x > 0).sum()": TYPES, "True - x": TYPES | {"bool": lambda: [T([True])]},
    "torch.mul(x, 2, out=y); y + 1": TWO, "x[1:3, ::2] = y[1:3, ::2]; x.sum()": TWO, "x[1:].copy_(x[:-1]); x + 0": ONE,
    "x[1:].copy_(x[:-1].clone()); x + 0": ONE, "x[:2].add_(1); x[2:].mul_(2); (x * 1, x[:2])": TURNED,
    "t = x[0].clone(); x[0] = x[1]; x[1] = t; x + 0": TURNED, "x[x > 0] = 0; x + 1": TURNED,
    "y = x.clone(); z = y[:1].expand(4, 6); y[0] += 5; (z + 0, y)": ONE,
    "y = x * 2; z = y.detach(); z.add_(1); (y, z)": ONE,
    "y = x.contiguous(); y.add_(1); (x + 0, y)": TURNED, "y = x.reshape(24); y.add_(1); (x + 0, y)": TURNED,
    "y = x.to(torch.float64); y.add_(1); (x + 0, y)": TURNED, "y = x + 0; y.t_(); (y, y * 2)": TURNED,
    "a, b = x.chunk(2, 1); a.add_(b); (x + 0, a)": TURNED, "y = x * 1; y.narrow(1, 1, 2).fill_(3); y": TURNED,
    "y = torch.zeros(4, 6, dtype=torch.int64); y[0] = 2.7; y.copy_(x); (y, y + 0.5)": TURNED,
}  # fmt: skip
EDGES = {(line, name): make for line, makes in LINES.items() for name, make in makes.items()}
SAID = {
    ("x.max()", "none"): "there are no elements to choose one of; found aten.max.default",
    ("True - x", "int64"): "types of its operands; found aten.rsub.Scalar, Subtraction, the `-` operator, with a bool",
    ("x ** -1", ""): "aten.pow.Tensor_Scalar, Integers to negative integer powers are not allowed",
    ("x[1:].copy_(x[:-1]); x + 0", ""): "written from others, some of which are the same; found aten.copy_",
}
"""What refusals say where PyTorch refuses, too."""
