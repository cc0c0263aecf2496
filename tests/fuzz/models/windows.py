"""Operators that move a window over an image: convolutions and pools of one to three dimensions; resizing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.models.build import Builder, UnsuitableError, Value


def image(b: Builder, ranks: tuple[int, ...] = (3, 4, 4, 4, 5), dtypes: tuple[str, ...] = ("float32",)) -> Value:
    """Return a value with a batch, channels, and one to three further dimensions."""
    rank = b.rng.choice(ranks)
    return b.pick_float(lambda v: v.rank == rank, dtypes)


def _window(b: Builder, sizes: tuple[int, ...], most: int = 5) -> dict[str, Any]:
    """Return the attributes of a window that fits."""
    kernel = [b.rng.randint(1, min(most, d)) for d in sizes]
    attrs: dict[str, Any] = {"kernel_shape": kernel}
    if b.rng.random() < 0.5:
        attrs["strides"] = [b.rng.randint(1, 3) for _ in sizes]
    if b.rng.random() < 0.2:
        attrs["auto_pad"] = b.rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
    elif b.rng.random() < 0.6:
        attrs["pads"] = [b.rng.randint(0, (k - 1) // 2 + (b.rng.random() < 0.2)) for k in kernel * 2]
    return attrs


def _dilations(b: Builder, sizes: tuple[int, ...], kernel: list[int]) -> list[int]:
    return [b.rng.randint(1, 2) if 2 * k - 1 <= d else 1 for k, d in zip(kernel, sizes, strict=True)]


def conv(b: Builder) -> Value:
    """Conv: dense, grouped, depthwise; dilated, strided, padded unevenly; with a bias or without."""
    x = image(b)
    channels = x.shape[1]
    attrs = _window(b, x.shape[2:])
    if b.rng.random() < 0.25 and "auto_pad" not in attrs:
        attrs["dilations"] = _dilations(b, x.shape[2:], attrs["kernel_shape"])
    group = b.rng.choice((1, 1, channels, b.rng.choice([d for d in range(1, channels + 1) if channels % d == 0])))
    outputs = group * b.rng.randint(1, max(1, 40 // group)) if group < channels else channels * b.rng.choice((1, 1, 2))
    w = b.weights("float32", (outputs, channels // group, *attrs["kernel_shape"]), 0.25)
    bias = b.weights("float32", (outputs,)) if b.rng.random() < 0.6 else None
    depth = w.size // outputs
    bound = depth * x.bound * w.bound + (bias.bound if bias else 0.0)
    step = min(x.step * w.step, bias.step if bias else 1.0)
    y = b.add("Conv", [x, w, bias], bound=bound, step=step, group=group, **attrs)
    return activated(b, y)


def activated(b: Builder, y: Value) -> Value:
    """Follow a layer by what often follows it: normalisation, an activation, a residual."""
    if b.rng.random() < 0.25:
        y = batch_norm(b, y)
    choice = b.rng.random()
    if choice < 0.4:
        op = b.rng.choice(("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid"))
        return b.add(op, [y], bound=y.bound, step=y.step if op == "Relu" else 0.0)
    if choice < 0.5:
        gate = b.add("Sigmoid", [y], bound=1.0)
        return b.add("Mul", [y, gate], bound=y.bound)
    if choice < 0.6:
        try:
            other = b.pick(lambda v: v.dtype == y.dtype and v.shape == y.shape and v is not y)
        except UnsuitableError:
            return y
        return b.add("Add", [y, other], bound=y.bound + other.bound, step=min(y.step, other.step))
    return y


def batch_norm(b: Builder, y: Value) -> Value:
    """BatchNormalization with variances that are not near zero."""
    y = b.tamed(y)
    scale, bias, mean = (b.weights("float32", (y.shape[1],)) for _ in range(3))
    variance = b.constant(np.abs(b.sample("float32", (y.shape[1],))[0]) + np.float32(0.5))
    operands = [y, scale, bias, mean, variance]
    return b.add("BatchNormalization", operands, bound=5 * y.bound + 18)


def batch_norm_alone(b: Builder) -> Value:
    """BatchNormalization of anything with channels."""
    return batch_norm(b, b.pick_float(lambda v: v.rank >= 2, ("float32",)))


def conv_transpose(b: Builder) -> Value:
    """ConvTranspose with groups, strides, and a longer result."""
    x = image(b, (3, 4, 4))
    channels = x.shape[1]
    group = b.rng.choice((1, 1, channels, b.rng.choice([d for d in range(1, channels + 1) if channels % d == 0])))
    kernel = [b.rng.randint(1, 4) for _ in x.shape[2:]]
    strides = [b.rng.randint(1, 3) for _ in kernel]
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "group": group}
    if b.rng.random() < 0.5:
        attrs["pads"] = [b.rng.randint(0, (k - 1) // 2) for k in kernel * 2]
    if b.rng.random() < 0.3:
        attrs["output_padding"] = [b.rng.randrange(s) for s in strides]
    if b.rng.random() < 0.2:
        attrs["dilations"] = [b.rng.randint(1, 2) for _ in kernel]
    w = b.weights("float32", (channels, b.rng.randint(1, max(1, 20 // group)), *kernel), 0.25)
    bias = b.weights("float32", (w.shape[1] * group,)) if b.rng.random() < 0.5 else None
    bound = channels // group * math.prod(kernel) * x.bound * w.bound + (bias.bound if bias else 0.0)
    step = min(x.step * w.step, bias.step if bias else 1.0)
    return activated(b, b.add("ConvTranspose", [x, w, bias], bound=bound, step=step, **attrs))


def pool(b: Builder) -> Value:
    """MaxPool, AveragePool, LpPool; sizes rounded up or down."""
    op = b.rng.choice(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"))
    x = image(b)
    attrs = _window(b, x.shape[2:], 4)
    if "pads" in attrs:
        attrs["pads"] = [min(p, (k - 1)) for p, k in zip(attrs["pads"], attrs["kernel_shape"] * 2, strict=True)]
    if b.rng.random() < 0.3 and attrs.get("auto_pad", "NOTSET") == "NOTSET" and (op != "LpPool" or b.opset >= 18):
        attrs["ceil_mode"] = 1
    if op == "MaxPool" and b.rng.random() < 0.2 and "auto_pad" not in attrs:
        attrs["dilations"] = _dilations(b, x.shape[2:], attrs["kernel_shape"])
    if op == "AveragePool" and b.rng.random() < 0.4:
        attrs["count_include_pad"] = 1
    if attrs.get("auto_pad", "").startswith("SAME") and _skips(attrs):
        raise UnsuitableError  # onnxruntime then pads by a negative number; ONNX and the others by none
    if "ceil_mode" in attrs and _starts_outside(x.shape[2:], attrs):
        raise UnsuitableError  # onnx's inference counts a window that implementations leave out
    if op == "LpPool":
        attrs["p"] = b.rng.choice((1, 2))
        return b.add(op, [x], bound=x.bound * math.prod(attrs["kernel_shape"]), **attrs)
    return b.add(op, [x], bound=x.bound, step=x.step if op == "MaxPool" else 0.0, **attrs)


def _skips(attrs: dict[str, Any]) -> bool:
    """Whether a window moves by more than its size."""
    return any(k < s for k, s in zip(attrs["kernel_shape"], attrs.get("strides", []), strict=False))


def _starts_outside(sizes: tuple[int, ...], attrs: dict[str, Any]) -> bool:
    """Whether the last window of any axis, where sizes are rounded up, would start behind the image."""
    rank = len(sizes)
    strides, pads = attrs.get("strides", [1] * rank), attrs.get("pads", [0] * 2 * rank)
    for size, kernel, stride, before, after in zip(
        sizes, attrs["kernel_shape"], strides, pads[:rank], pads[rank:], strict=True
    ):
        last = -(-(size + before + after - kernel) // stride) * stride
        if last >= size + before:
            return True
    return False


def max_pool_with_indices(b: Builder) -> Value:
    """MaxPool with both results; which of equal elements wins is part of it."""
    x = b.pick_float(lambda v: v.rank == 4 and v.exact, ("float32",))
    attrs = {"kernel_shape": [min(2, d) for d in x.shape[2:]], "strides": [b.rng.randint(1, 2)] * 2}
    return b.rng.choice(b.add_all("MaxPool", [x], bound=x.size, step=x.step, outputs=2, **attrs))


def global_pool(b: Builder) -> Value:
    """Pools over the whole image."""
    op = b.rng.choice(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    x = image(b)
    bound = x.bound * math.prod(x.shape[2:]) if op == "GlobalLpPool" else x.bound
    return b.add(op, [x], bound=bound, step=x.step if op == "GlobalMaxPool" else 0.0)


def lrn(b: Builder) -> Value:
    """Local response normalisation."""
    x = image(b, (4,))
    return b.add("LRN", [x], bound=x.bound, size=b.rng.choice((1, 3, 5)), alpha=0.01, beta=0.75, bias=1.0)


def resize(b: Builder) -> Value:
    """Resize by scales or to sizes, of images."""
    x = image(b, (4, 4, 4, 3))
    mode = b.rng.choice(("nearest", "linear", "linear", "cubic"))
    coordinates = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": b.rng.choice(coordinates)}
    if mode == "nearest":
        attrs["nearest_mode"] = b.rng.choice(("floor", "round_prefer_floor", "ceil", "round_prefer_ceil"))
        attrs["coordinate_transformation_mode"] = b.rng.choice(("half_pixel", "asymmetric"))
    if mode == "cubic":
        if x.rank != 4:
            raise UnsuitableError
        attrs["cubic_coeff_a"] = b.rng.choice((-0.75, -0.5))
    factors = [b.rng.choice((1.0, 2.0, 2.0, 3.0, 0.5, 4.0)) for _ in x.shape[2:]]
    if b.rng.random() < 0.5:
        scales = b.constant(np.array([1.0, 1.0, *factors], np.float32))
        operands = [x, None, scales]
    else:
        sizes = [max(1, int(d * f)) for d, f in zip(x.shape[2:], factors, strict=True)]
        operands = [x, None, None, b.constant([*x.shape[:2], *sizes])]
    step = x.step if mode == "nearest" else 0.0
    return b.add("Resize", operands, bound=2 * x.bound, step=step, **attrs)


FAMILIES = {
    conv: 10, conv_transpose: 2.5, pool: 5, max_pool_with_indices: 0.3, global_pool: 1.5, batch_norm_alone: 1, lrn: 0.3,
    resize: 2,
}  # fmt: skip
