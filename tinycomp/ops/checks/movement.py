"""Operators that move elements: their sizes must add up."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ops.facts import Facts
from tinycomp.ops.matmul import check_shapes


def _reshape(facts: Facts) -> None:
    if (facts.rank(1) or 1) != 1:
        facts.fail("the shape is not a vector", expected="one dimension", found=f"{facts.rank(1)}")
    wanted, sizes = facts.ints(1, "shape"), facts.sizes(0)
    if wanted is None or sizes is None:
        return
    if any(d < -1 for d in wanted) or wanted.count(-1) > 1:
        facts.fail("not a shape", expected="sizes of 0 or more and at most one -1", found=wanted)
    if not facts.attr("allowzero", 0):
        if any(d == 0 and i >= len(sizes) for i, d in enumerate(wanted)):
            facts.fail("a 0 copies a dimension that is not there", expected=f"zeros among the first {len(sizes)}",
                       found=wanted)  # fmt: skip
        wanted = [sizes[i] if d == 0 else d for i, d in enumerate(wanted)]
    total, known = math.prod(sizes), math.prod(d for d in wanted if d != -1)
    if total != known if -1 not in wanted else known == 0 or total % known:
        facts.fail("the sizes do not fit", expected=f"{total} elements as in {list(sizes)}", found=f"shape {wanted}")


def _expand(facts: Facts) -> None:
    wanted = facts.const(1)
    if wanted is not None and wanted.size and int(wanted.min()) < 0:
        facts.fail("a size is negative", expected="sizes of 0 or more", found=wanted.tolist())


def _pad(facts: Facts) -> None:
    pads, shape = facts.ints(1, "pads"), facts.shape(0)
    if pads is None or shape is None:
        return
    axes = facts.ints(3, "axes")
    if axes is None and facts.operand(3) is not None:
        return
    chosen = range(len(shape)) if axes is None else axes
    for axis in chosen:
        facts.require_axis(axis, len(shape), "an entry of axes")
    facts.require_distinct(list(chosen), len(shape))
    if len(pads) != 2 * len(chosen):
        facts.fail("pads has the wrong length", expected=f"{2 * len(chosen)} values", found=pads)
    for i, axis in enumerate(chosen):
        size = shape[axis]
        if isinstance(size, int) and size + pads[i] + pads[i + len(chosen)] < 0:
            facts.fail("negative pads remove more than there is", expected=f"pads for axis {axis} of {size} elements",
                       found=pads)  # fmt: skip


def _slice(facts: Facts) -> None:
    steps = facts.const(4)
    if steps is not None and steps.size and not steps.all():
        facts.fail("a step is 0", expected="steps other than 0", found=steps.tolist())
    lengths = {len(v) for v in (facts.ints(1, "starts"), facts.ints(2, "ends"), facts.ints(3, "axes")) if v is not None}
    if len(lengths) > 1:
        facts.fail("starts, ends and axes differ in length", expected="one length", found=sorted(lengths))
    axes, rank = facts.ints(3, "axes"), facts.rank(0)
    if axes is not None and rank is not None:
        facts.require_distinct(axes, rank)


def _split(facts: Facts) -> None:
    sizes, parts = facts.ints(1, "split"), facts.attr("num_outputs")
    if sizes is not None and any(s < 0 for s in sizes):
        facts.fail("a size is negative", expected="sizes of 0 or more", found=sizes)
    if parts is not None and parts < len(facts.node.outputs):
        facts.fail("num_outputs does not fit the node", expected=f"at least {len(facts.node.outputs)}", found=parts)
    if sizes is not None and parts is not None:
        facts.fail("both sizes and num_outputs are given", expected="one of them", found=f"{sizes} and {parts}")


def _range(facts: Facts) -> None:
    delta = facts.const(2)
    if delta is not None and delta.size and not delta.reshape(-1)[0]:
        facts.fail("the step is 0", expected="a delta other than 0", found=delta.reshape(-1)[0])


def _one_hot(facts: Facts) -> None:
    depth = facts.const(1)
    if depth is not None and depth.size and not float(depth.reshape(-1)[0]) >= 0:
        facts.fail("the depth is negative", expected="0 or more", found=depth.reshape(-1)[0])


def _top_k(facts: Facts) -> None:
    k = facts.ints(1, "k_") if facts.node.version >= 10 else [int(facts.attr("k", 0))]
    size = facts.dim(0, int(facts.attr("axis", -1)))
    if k and k[0] < 0:
        facts.fail("k is negative", expected="0 or more", found=k[0])
    if k and size is not None and k[0] > size:
        facts.fail("k is larger than the axis", expected=f"at most {size}", found=k[0])


def _scatter_elements(facts: Facts) -> None:
    indices, updates = facts.sizes(1), facts.sizes(2)
    if indices is not None and updates is not None and indices != updates:
        facts.fail("updates and indices differ in shape", expected=str(list(indices)), found=list(updates))


def _scatter_nd(facts: Facts) -> None:
    shape, indices, updates = facts.sizes(0), facts.sizes(1), facts.sizes(2)
    if shape is None or indices is None or updates is None or not indices or indices[-1] > len(shape):
        return
    wanted = indices[:-1] + shape[indices[-1] :]
    if updates != wanted:
        facts.fail("updates has the wrong shape", expected=f"{list(wanted)}", found=list(updates))


def _blocks(space: bool) -> Callable[[Facts], None]:
    def check(facts: Facts) -> None:
        block = int(facts.attr("blocksize", 0))
        if block < 1:
            facts.fail("blocksize is out of range", expected="1 or more", found=block)
        for axis in (2, 3) if space else (1,):
            size, step = facts.dim(0, axis), block if space else block * block
            if size is not None and size % step:
                facts.fail("the blocks do not fit", expected=f"axis {axis} a multiple of {step}", found=size)

    return check


def _einsum(facts: Facts) -> None:
    shapes = [facts.shape(i) for i in range(len(facts.node.inputs))]
    if any(s is None for s in shapes):
        return
    try:
        check_shapes(str(facts.attr("equation", "")), [s for s in shapes if s is not None])
    except ExecutionError as error:
        facts.fail(error.message, expected=error.expected, found=error.found)


def _constant_of_shape(facts: Facts) -> None:
    sizes, value = facts.const(0), facts.attr("value")
    if sizes is not None and sizes.size and int(sizes.min()) < 0:
        facts.fail("a size is negative", expected="sizes of 0 or more", found=sizes.tolist())
    if isinstance(value, np.ndarray) and value.size != 1:
        facts.fail("value is not one element", expected="one element", found=f"shape {list(value.shape)}")


CHECKS: dict[str, Callable[[Facts], None]] = {
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _blocks(space=False),
    "Einsum": _einsum,
    "Expand": _expand,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "SpaceToDepth": _blocks(space=True),
    "Split": _split,
    "TopK": _top_k,
}
