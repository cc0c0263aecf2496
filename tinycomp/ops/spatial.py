"""Window geometry shared by convolution and pooling: kernels, strides, dilations, pads and output sizes.

A :class:`Window` is made once per call by :func:`make_window`; rules of operators count its windows by
:func:`window_counts`, where sizes may be expressions or unknown. Source: ONNX operator documentation of Conv and
MaxPool.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from math import prod
from typing import Any, Generic, TypeVar

import numpy as np

from tinycomp.errors import ModelError
from tinycomp.ops.numeric import Array
from tinycomp.ops.rule import Facts
from tinycomp.records import dataclass
from tinycomp.symbolic import Size, maximum, minimum

S = TypeVar("S", bound=Size)
"""Sizes: ``int`` where all are known."""
R = TypeVar("R")

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
WINDOW = frozenset({"strides", "dilations", "pads", "auto_pad"})
"""Attributes that shape a window, as keywords of :func:`make_window`."""
POOLING = WINDOW | {"ceil_mode"}
"""Those of poolings."""


@dataclass(frozen=True)
class Window(Generic[S]):
    """A sliding window over the spatial axes; every field has one entry per spatial axis.

    Attributes:
        sizes: Input sizes.
        kernel: Kernel sizes, without dilation.
        strides: Steps between windows.
        dilations: Steps between the taps of one window.
        before: Padding in front.
        after: Padding behind, as the attributes ask for it.
        output: Number of windows.
    """

    sizes: tuple[S, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[S, ...]
    after: tuple[S, ...]
    output: tuple[S, ...]

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.kernel)

    @property
    def extents(self) -> tuple[int, ...]:
        """Cells from the first tap to the last one."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def is_pointwise(self) -> bool:
        """Whether each window is exactly one input cell and the output has the input's size."""
        return prod(self.kernel) == 1 and set(self.strides) <= {1} and not any(self.before) and not any(self.after)

    def taps(self) -> Iterator[tuple[int, ...]]:
        """Yield the kernel positions in row-major order."""
        return np.ndindex(*self.kernel)

    @property
    def interior(self: Window[int]) -> tuple[Any, ...]:
        """The index of the unpadded cells in a padded array."""
        return (..., *(slice(b, b + size) for b, size in zip(self.before, self.sizes, strict=True)))

    def tap_index(self, tap: Sequence[int]) -> tuple[Any, ...]:
        """Return the index into the padded input that holds, for each window, its cell under ``tap``."""
        starts = [t * d for t, d in zip(tap, self.dilations, strict=True)]
        return (
            ...,
            *(
                slice(start, start + (n - 1) * step + 1, step)
                for start, n, step in zip(starts, self.output, self.strides, strict=True)
            ),
        )


def spatial_tuple(
    op: str, name: str, values: Sequence[int] | None, rank: int, default: int, least: int
) -> tuple[int, ...]:
    """Return an attribute with one integer per spatial axis, checked.

    Raises:
        ModelError: If the number of entries is wrong or one is below ``least``.
    """
    if values is None or len(values) == 0:
        return (default,) * rank
    if len(values) != rank:
        raise ModelError(
            f"{op}: attribute {name} has the wrong length", expected=f"{rank} entries", found=str(list(values))
        )
    if min(values) < least:
        raise ModelError(
            f"{op}: attribute {name} is out of range", expected=f"entries >= {least}", found=str(list(values))
        )
    return tuple(int(v) for v in values)


def make_window(
    op: str,
    sizes: Sequence[S],
    kernel: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: bool = False,
) -> Window[S]:
    """Check the attributes of a convolution or pooling and return its geometry.

    Args:
        op: Operator name, for messages.
        sizes: Spatial input sizes.
        kernel: Kernel sizes.
        strides: Steps; 1 by default.
        dilations: Tap distances; 1 by default.
        pads: All paddings in front, then all behind; 0 by default, and only used when ``auto_pad`` is ``NOTSET``.
        auto_pad: ``NOTSET``, ``SAME_UPPER``, ``SAME_LOWER`` or ``VALID``.
        ceil_mode: Whether a last, partly filled window counts, as long as it starts inside the input or front padding.

    Raises:
        ModelError: If an attribute is out of range or an output size would not be positive.
    """
    given = [None if values is None else tuple(values) for values in (strides, dilations, pads)]
    return _window(op, tuple(sizes), tuple(kernel), *given, auto_pad, ceil_mode)


@functools.lru_cache(maxsize=1024)
def _window(
    op: str,
    sizes: tuple[Size, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dilations: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    auto_pad: str,
    ceil_mode: int,
) -> Window[Any]:
    """See :func:`make_window`; a model has few different windows, and many questions are asked about each."""
    kernel = spatial_tuple(op, "kernel_shape", kernel, len(sizes), 1, 1)
    steps, dilation, front, back = window_steps(op, len(sizes), strides, dilations, pads, auto_pad)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    axes = zip(sizes, extents, steps, front, back, strict=True)
    before, after, output = zip(*[_along_axis(*axis, auto_pad, ceil_mode) for axis in axes], strict=True)
    if any(isinstance(size, int) and size <= 0 for size in output):
        raise ModelError(
            f"{op}: the output would be empty",
            expected="every spatial output size > 0",
            found=f"{list(output)} for input sizes {list(sizes)}, kernel {list(kernel)}, dilations {list(dilation)}, "
            f"pads {list(before + after)}",
        )
    return Window(sizes, kernel, steps, dilation, before, after, output)


def window_counts(
    facts: Facts, sizes: Sequence[Size | None], kernel: Sequence[Size | None], *, ceil_mode: int = 0
) -> list[Size | None]:
    """Return the number of windows along each spatial axis, and demand that there are some.

    Args:
        facts: Of a convolution or pooling, whose attributes are checked.
        sizes: Spatial input sizes.
        kernel: Kernel sizes.
        ceil_mode: See :func:`make_window`.
    """
    given = window_attributes(facts.node.attrs)
    steps, dilation, front, back = attempt(facts, window_steps, len(sizes), **given)
    auto_pad, counts = given.get("auto_pad", "NOTSET"), list[Size | None]()
    for axis, (size, own) in enumerate(zip(sizes, kernel, strict=True)):
        if size is None or (own is None and not auto_pad.startswith("SAME")):
            counts.append(None)
            continue
        extent = 1 if own is None else (own - 1) * dilation[axis] + 1
        before, after, count = _along_axis(size, extent, steps[axis], front[axis], back[axis], auto_pad, ceil_mode)
        if isinstance(count, int) and count < 1:
            pads = f" between pads of {before} and {after}" if before != 0 or after != 0 else ""
            facts.fail("the output would be empty", expected="every spatial output size > 0",
                       found=f"{count} windows of {extent} in {size}{pads} along spatial axis {axis}")  # fmt: skip
        facts.require_at_least(count, 1, "the output would be empty")
        counts.append(count)
    return counts


def window_steps(
    op: str,
    rank: int,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
) -> tuple[tuple[int, ...], ...]:
    """Return the checked strides, dilations and pads in front and behind."""
    check_auto_pad(op, auto_pad)
    before, after = split_pads(op, pads if auto_pad == "NOTSET" else None, rank)
    return (
        spatial_tuple(op, "strides", strides, rank, 1, 1),
        spatial_tuple(op, "dilations", dilations, rank, 1, 1),
        before,
        after,
    )


def _along_axis(
    size: Size, extent: Size, step: int, before: int, after: int, auto_pad: str, ceil_mode: int
) -> tuple[Size, Size, Size]:
    """Return the padding in front and behind, and the number of windows."""
    if auto_pad.startswith("SAME"):
        count = -(-size // step)
        total = maximum((count - 1) * step + extent - size, 0)
        less, more = total // 2, total - total // 2
        return (less, more, count) if auto_pad == "SAME_UPPER" else (more, less, count)
    room = size + before + after - extent
    if not ceil_mode:
        return before, after, room // step + 1
    count = -(-room // step) + 1
    # A window that would start in the padding behind sees no input at all and is dropped.
    late = (count - 1) * step - (size + before) + 1
    return before, after, count - maximum(minimum(late, 1), 0)


def check_auto_pad(op: str, auto_pad: str) -> None:
    """Raise a ModelError unless ``auto_pad`` is one of the four modes."""
    if auto_pad not in AUTO_PADS:
        raise ModelError(f"{op}: unknown auto_pad", expected=f"one of {list(AUTO_PADS)}", found=repr(auto_pad))


def split_pads(op: str, pads: Sequence[int] | None, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the checked paddings in front and behind; ONNX lists all fronts first."""
    both = spatial_tuple(op, "pads", pads, 2 * rank, 0, 0)
    return both[:rank], both[rank:]


def pad_for(x: Array, window: Window[int], value: Any = 0) -> Array:
    """Return ``x`` (batch, channels, spatial…) padded with ``value`` so that every tap of every window exists.

    With ``ceil_mode`` the last window may reach past the padding that was asked for, so this may pad more than
    ``window.after``; cells that no window reaches are cut off behind.
    """
    reach = [(n - 1) * s + e for n, s, e in zip(window.output, window.strides, window.extents, strict=True)]
    behind = [r - size - b for r, size, b in zip(reach, window.sizes, window.before, strict=True)]
    if not any(window.before) and max(behind) <= 0:
        return x
    shape = x.shape[:2] + tuple(
        size + b + max(a, 0) for size, b, a in zip(window.sizes, window.before, behind, strict=True)
    )
    padded: Array = np.full(shape, value, dtype=x.dtype)
    padded[window.interior] = x
    return padded


def sliding_view(padded: Array, window: Window[int]) -> Array:
    """Return a read-only view of shape (batch, channels, *kernel, *output) onto a padded input."""
    batch, channel, *spatial = padded.strides
    tap_strides = [s * d for s, d in zip(spatial, window.dilations, strict=True)]
    window_strides = [s * step for s, step in zip(spatial, window.strides, strict=True)]
    return np.lib.stride_tricks.as_strided(
        padded,
        shape=(*padded.shape[:2], *window.kernel, *window.output),
        strides=(batch, channel, *tap_strides, *window_strides),
        writeable=False,
    )


def window_attributes(attrs: Mapping[str, Any], names: Set[str] = WINDOW) -> dict[str, Any]:
    """Return those of the attributes that shape a window, as keywords of :func:`make_window`."""
    return {name: value for name, value in attrs.items() if name in names}


def attempt(facts: Facts, compute: Callable[..., R], *args: Any, **attrs: Any) -> R:
    """Return what a function of an operator's name gives, and let it refuse in the name of the node.

    Raises:
        TinycompError: If it refuses.
    """
    try:
        return compute(facts.node.op, *args, **attrs)
    except ModelError as error:
        facts.fail(error.message.removeprefix(f"{facts.node.op}: "), expected=error.expected, found=error.found)
