"""The ways to compute a call: several kernels or forms of one may do, some of them much faster than others.

A call without what its speed does not depend on is a :class:`Problem`; what may solve it are its candidates, each with
the parameters that it decides and an estimate of its time (:mod:`cost`). :mod:`choices` takes one for every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from tinycomp.records import dataclass, field, replace
from tinycomp.runtime.native.library import lib
from tinycomp.runtime.native.program import ALGORITHMS, Instruction
from tinycomp.symbolic import Expression, Size, typical
from tinycomp.targets.c.codegen.element_program import TYPES
from tinycomp.targets.c.tuning import cost

DIRECT, LINES, COLUMNS = lib.TC_CONV_DIRECT, lib.TC_CONV_LINES, lib.TC_CONV_COLUMNS
WINOGRAD_2, WINOGRAD_4 = lib.TC_CONV_WINOGRAD_2, lib.TC_CONV_WINOGRAD_4
"""Algorithms by the numbers of :data:`ALGORITHMS`."""

_OUT = {WINOGRAD_2: 2, WINOGRAD_4: 4}
_ROUNDED = MappingProxyType(
    {
        "conv2d_f32": "conv2d_bf16_f32",
        "conv2d_winograd_f32": "conv2d_winograd_bf16_f32",
        "gemm_f32": "gemm_bf16_f32",
    }
)
"""The kernel that rounds the factors to bfloat16, by the one that does not."""
_MOST_LINES = 64
"""From this number of channels on, reading whole lines of a window gains nothing."""
_FEWEST_TAPS, _FEWEST_VECTORS, _DEEPEST, _FARTHEST = 3, 4, 256, 128
"""Where vectors of columns gain: positions of a window, vectors of a line, channels of all lines of a window, and
columns from the first of a window to the last (``conv2d_columns.h`` of the runtime)."""
_MOST_EXACT_CHANNELS = 1827
"""The most channels whose sums of 8-bit products stay exact in Winograd's algorithm."""
_NO_SHAPES = frozenset({"algorithm", "type"})
"""Parameters of candidates that say nothing about blocks."""
WINOGRAD_GAIN = 0.1
"""The share of its time that Winograd's algorithm must be expected to save: it costs memory, and the last bits."""


@dataclass(slots=True)
class Candidate:
    """One way to compute a call.

    Attributes:
        kernel: The kernel.
        params: The parameters that it decides, by name; all others are the call's.
        weight_bytes: What its packed weights take.
    """

    kernel: str
    params: Mapping[str, int]
    weight_bytes: int = 0

    @property
    def algorithm(self) -> int:
        """The number of the algorithm; 0 where the kernel has only one."""
        return self.params.get("algorithm", 0)

    @property
    def is_winograd(self) -> bool:
        """Whether it is one of Winograd's forms."""
        return self.algorithm in _OUT

    @property
    def is_rounded(self) -> bool:
        """Whether it rounds the factors of products to bfloat16."""
        return self.kernel in _ROUNDED.values()

    @property
    def is_shaped(self) -> bool:
        """Whether it takes the shapes of blocks out of the kernel's hands."""
        return any(value for name, value in self.params.items() if name not in _NO_SHAPES)

    @property
    def name(self) -> str:
        """Its name in a tuning log, for example ``Winograd F(4x4, 3x3), block_rows=24``."""
        shapes = [f"{name}={value}" for name, value in self.params.items() if value and name not in _NO_SHAPES]
        algorithm = ALGORITHMS.get(self.algorithm, self.kernel)
        rounded = " of bfloat16" if self.is_rounded and self.algorithm else ""
        return ", ".join([algorithm + rounded, *shapes])


@dataclass(slots=True)
class Problem:
    """A call reduced to the properties that its speed depends on.

    Attributes:
        family: The kernels that can compute it: ``conv2d``, ``qconv2d``, ``gemm`` or ``matmul``.
        sizes: Its sizes, by the names of the kernel's parameters.
        adjacent: Of a convolution: whether the pixels of its input lie side by side.
        rounded: Whether factors may be rounded to bfloat16.
    """

    family: str
    sizes: Mapping[str, int]
    adjacent: bool = field(default=True, compare=False)
    rounded: bool = False

    @property
    def key(self) -> str:
        """Its name in a tuning log, for example ``gemm m=1 n=1000 k=512``."""
        rounded = ["bf16"] if self.rounded else []
        return " ".join([self.family, *(f"{name}={size}" for name, size in self.sizes.items()), *rounded])

    def candidates(self, lanes: int, shaped: bool = False) -> tuple[Candidate, ...]:
        """Return the ways to compute it, the plainest first.

        Args:
            lanes: Floats of a vector, for the size of packed weights.
            shaped: Whether to include blocks of other shapes than the kernel's own.
        """
        return tuple(_FAMILIES[self.family].candidates(self, lanes, shaped))

    def seconds(self, candidate: Candidate, on: cost.Processor) -> float:
        """Return the estimated time of a candidate whose blocks the kernel shapes."""
        return _FAMILIES[self.family].seconds(self, candidate, on)


@dataclass(frozen=True)
class _Family:
    """What problems of one family have in common.

    Attributes:
        sizes: The parameters that make a problem.
        candidates: All candidates of a problem.
        seconds: The estimate of one.
    """

    sizes: tuple[str, ...]
    candidates: Callable[[Problem, int, bool], Iterator[Candidate]]
    seconds: Callable[[Problem, Candidate, cost.Processor], float]


def problem_of(call: Instruction, rounding: bool = False) -> Problem | None:
    """Return the problem that a call solves; None if there is only one way to compute it.

    Args:
        call: The call.
        rounding: Whether its factors may be rounded to bfloat16.
    """
    family = _FAMILY_OF.get(call.kernel)
    if family is None or call.params.get("type") == TYPES["bfloat16"]:
        return None
    params = call.params
    sizes = {name: _typical(params[name]) for name in _FAMILIES[family].sizes if name in params}
    if family == "matmul":
        sizes |= {"turned_a": int(params["a_column"] != 1), "turned_b": int(params["b_column"] != 1)}
    rounded = (rounding and family in _ROUNDING_FAMILIES) or call.kernel in _ROUNDED.values()
    return Problem(family, sizes, params.get("x_pixel_stride") == params.get("channels"), rounded)


def _typical(parameter: float | Size) -> int:
    """Return a size or, if it is symbolic, its typical value, because one choice must serve all sizes."""
    return typical(parameter) if isinstance(parameter, Expression) else int(parameter)


# Families ----------------------------------------------------------------------------------------------------------

_QUAD = 4
"""8-bit integers that are multiplied and added at once; what a line of a window has fewer is packed as zeros."""
_BLOCK_ROWS = (24, 48, 96, 192)
_BLOCK_TILES = (12, 24, 48)
_GROUPS = (64, 128, 256)
_BOTH_ORDERS = (1, 2)


def _shapes(block_rows: Iterable[int], **others: Sequence[int]) -> Iterator[dict[str, int]]:
    """Return every combination of these parameters."""
    ((name, values),) = others.items()
    for rows in block_rows:
        yield from ({"block_rows": rows, name: value} for value in values)


def _conv_candidates(problem: Problem, lanes: int, shaped: bool) -> Iterator[Candidate]:
    for algorithm in _conv_algorithms(problem, lanes):
        make = _winograd_candidate if algorithm in _OUT else _direct_candidate
        own = {"algorithm": algorithm, "block_rows": 0, "panel_order": 0, "group_channels": 0}
        shapes = _conv_shapes(problem, algorithm) if shaped and algorithm != COLUMNS else ()
        made = [make(problem, lanes, params) for params in (own, *(own | shape for shape in shapes))]
        yield from made
        if problem.rounded and problem.sizes["groups"] == 1 and algorithm not in (WINOGRAD_4, COLUMNS):
            yield from (_rounded_conv(problem, lanes, c) for c in made if c.params["panel_order"] != 2)


def _conv_algorithms(problem: Problem, lanes: int) -> Iterator[int]:
    s = problem.sizes
    yield DIRECT
    if (
        s["groups"] == 1
        and problem.adjacent
        and s["dilation_width"] == 1 < s["kernel_width"]
        and s["channels"] < _MOST_LINES
    ):
        yield LINES
    if _fits_columns(problem, lanes):
        yield COLUMNS
    if _is_3x3(problem):
        yield WINOGRAD_2
        yield WINOGRAD_4


def _fits_columns(problem: Problem, lanes: int) -> bool:
    """Tell whether vectors may hold columns, because there are too few filters for them."""
    s = problem.sizes
    return (
        s["groups"] == s["stride_width"] == 1
        and 0 < s["out_channels"] <= lanes // 2
        and (s["kernel_height"] == 1 or s["dilation_height"] == 1)
        and _taps(problem) >= _FEWEST_TAPS
        and 0 < s["channels"] * s["kernel_height"] <= _DEEPEST
        and (s["kernel_width"] - 1) * s["dilation_width"] <= _FARTHEST
        and s["out_width"] >= _FEWEST_VECTORS * lanes
    )


def _is_3x3(problem: Problem) -> bool:
    """Tell whether Winograd's algorithms can compute a convolution."""
    s = problem.sizes
    steps = (s["stride_height"], s["stride_width"], s["dilation_height"], s["dilation_width"])
    return s["groups"] == 1 and (s["kernel_height"], s["kernel_width"]) == (3, 3) and set(steps) == {1}


def _conv_shapes(problem: Problem, algorithm: int) -> Iterator[dict[str, int]]:
    s = problem.sizes
    if algorithm in _OUT:
        tiles, channels = _tiles(problem, _OUT[algorithm]), s["out_channels"]
        groups = [g for g in _GROUPS if g < channels] + [channels]
        return _shapes(_fitting(_BLOCK_TILES, tiles), group_channels=groups)
    return _shapes(_fitting(_BLOCK_ROWS, _pixels(problem)), panel_order=_BOTH_ORDERS)


def _fitting(sizes: Sequence[int], whole: int) -> list[int]:
    """Return the sizes of blocks up to the first that holds everything."""
    return [*(n for n in sizes if n < whole), *[n for n in sizes if n >= whole][:1]]


def _pixels(problem: Problem) -> int:
    return problem.sizes["batch"] * problem.sizes["out_height"] * problem.sizes["out_width"]


def _tiles(problem: Problem, out: int) -> int:
    s = problem.sizes
    return s["batch"] * math.ceil(s["out_height"] / out) * math.ceil(s["out_width"] / out)


def _taps(problem: Problem) -> int:
    return problem.sizes["kernel_height"] * problem.sizes["kernel_width"]


def _direct_candidate(problem: Problem, lanes: int, params: Mapping[str, int]) -> Candidate:
    s = problem.sizes
    depth, columns = s["channels"] // s["groups"] * _taps(problem), s["out_channels"] // s["groups"]
    return Candidate("conv2d_f32", params, s["groups"] * cost.packed_bytes(depth, columns, lanes))


def _rounded_conv(problem: Problem, lanes: int, candidate: Candidate) -> Candidate:
    """Return the same with factors that are rounded, whose blocks come in one order only."""
    s = problem.sizes
    depth = s["channels"] * s["kernel_width"] if candidate.algorithm == LINES else s["channels"]
    taps = s["kernel_height"] if candidate.algorithm == LINES else _taps(problem)
    taps = (_OUT[candidate.algorithm] + 2) ** 2 if candidate.is_winograd else taps
    size = cost.packed_bytes(taps * -(-depth // 2), s["out_channels"], lanes)
    return Candidate(_ROUNDED[candidate.kernel], {**candidate.params, "panel_order": 0}, size)


def _winograd_candidate(problem: Problem, lanes: int, params: Mapping[str, int]) -> Candidate:
    s = problem.sizes
    products = (_OUT[params["algorithm"]] + 2) ** 2
    size = products * cost.packed_bytes(s["channels"], s["out_channels"], lanes)
    return Candidate("conv2d_winograd_f32", params, size)


def _of_one_image(problem: Problem) -> Problem:
    return replace(problem, sizes={**problem.sizes, "batch": 1})


def _conv_seconds(problem: Problem, candidate: Candidate, on: cost.Processor) -> float:
    """Estimate one image, so that a model keeps its algorithms and packed weights whatever the batch."""
    problem = _of_one_image(problem)
    s = problem.sizes
    if candidate.is_winograd:
        out = _OUT[candidate.algorithm]
        estimate = cost.rounded_winograd if candidate.is_rounded else cost.winograd
        seconds = estimate(out, _tiles(problem, out), s["channels"], s["out_channels"], on)
        return seconds * (1 + WINOGRAD_GAIN)
    taps, depth, columns = _taps(problem), s["channels"] // s["groups"], s["out_channels"] // s["groups"]
    if candidate.algorithm == LINES:
        taps, depth = s["kernel_height"], s["kernel_width"] * depth
    if candidate.algorithm == COLUMNS:
        return cost.columns(_pixels(problem), taps, depth, columns, on)
    if candidate.is_rounded:
        return cost.rounded_product(_pixels(problem), taps, depth, columns, on)
    return cost.direct(_pixels(problem), taps, depth, columns, s["groups"], on)


def _qconv_candidates(problem: Problem, lanes: int, shaped: bool) -> Iterator[Candidate]:
    s = problem.sizes
    line, columns = s["channels"] // s["groups"] * s["kernel_width"], s["out_channels"] // s["groups"]
    depth = s["kernel_height"] * -(-line // _QUAD) * _QUAD
    own = cost.BYTE if s["weight_type"] == TYPES["int8"] else cost.SHORT
    size = s["groups"] * cost.packed_bytes(depth, columns, lanes, own)
    yield from _blocks("qconv2d", DIRECT, _BLOCK_ROWS, _pixels(problem), size, shaped)
    if _is_3x3(problem) and s["weight_type"] == TYPES["int8"] and s["channels"] <= _MOST_EXACT_CHANNELS:
        size = 16 * cost.packed_bytes(s["channels"], s["out_channels"], lanes, cost.SHORT)
        yield from _blocks("qconv2d_winograd", WINOGRAD_2, _BLOCK_TILES, _tiles(problem, 2), size, shaped)


def _blocks(
    kernel: str, algorithm: int, sizes: Sequence[int], whole: int, weight_bytes: int, shaped: bool
) -> Iterator[Candidate]:
    """Yield one algorithm with the kernel's own blocks, and with others."""
    for rows in (0, *(_fitting(sizes, whole) if shaped else ())):
        yield Candidate(kernel, {"algorithm": algorithm, "block_rows": rows}, weight_bytes)


def _qconv_seconds(problem: Problem, candidate: Candidate, on: cost.Processor) -> float:
    """Estimate one image, as for floats."""
    problem = _of_one_image(problem)
    s = problem.sizes
    if candidate.is_winograd:
        return cost.quantized_winograd(_tiles(problem, 2), s["channels"], s["out_channels"], on) * (1 + WINOGRAD_GAIN)
    taps, depth, columns = _taps(problem), s["channels"] // s["groups"], s["out_channels"] // s["groups"]
    return cost.quantized_direct(_pixels(problem), taps, depth, columns, s["groups"], on)


def _gemm_candidates(problem: Problem, lanes: int, shaped: bool) -> Iterator[Candidate]:
    s = problem.sizes
    size = cost.packed_bytes(s["k"], s["n"], lanes)
    yield Candidate("gemm_f32", {"block_rows": 0, "panel_order": 0}, size)
    if shaped:
        shapes = _shapes(_fitting(_BLOCK_ROWS, s["m"]), panel_order=_BOTH_ORDERS)
        yield from (Candidate("gemm_f32", shape, size) for shape in shapes)
    if problem.rounded:
        size = cost.packed_bytes(-(-s["k"] // 2), s["n"], lanes)
        for rows in (0, *(_fitting(_BLOCK_ROWS, s["m"]) if shaped else ())):
            params = {"block_rows": rows, "panel_order": 0, "type": TYPES["float32"]}
            yield Candidate(_ROUNDED["gemm_f32"], params, size)


def _gemm_seconds(problem: Problem, candidate: Candidate, on: cost.Processor) -> float:
    if candidate.is_rounded:
        return cost.rounded_product(problem.sizes["m"], 1, problem.sizes["k"], problem.sizes["n"], on)
    return cost.product(problem.sizes["m"], problem.sizes["k"], problem.sizes["n"], on)


def _matmul_candidates(problem: Problem, lanes: int, shaped: bool) -> Iterator[Candidate]:
    yield Candidate("matmul_f32", {"block_rows": 0})
    if shaped:
        for rows in _fitting(_BLOCK_ROWS, problem.sizes["m"]):
            yield Candidate("matmul_f32", {"block_rows": rows})


def _matmul_seconds(problem: Problem, candidate: Candidate, on: cost.Processor) -> float:
    s = problem.sizes
    return s["batch0"] * s["batch1"] * cost.product(s["m"], s["k"], s["n"], on)


_CONVOLUTION = (
    "batch", "height", "width", "channels", "out_height", "out_width", "out_channels",
    "kernel_height", "kernel_width", "stride_height", "stride_width", "dilation_height", "dilation_width",
    "pad_top", "pad_left", "groups",
)  # fmt: skip
_FAMILIES = MappingProxyType(
    {
        "conv2d": _Family(
            _CONVOLUTION,
            _conv_candidates,
            _conv_seconds,
        ),
        "qconv2d": _Family((*_CONVOLUTION, "weight_type"), _qconv_candidates, _qconv_seconds),
        "gemm": _Family(("m", "n", "k"), _gemm_candidates, _gemm_seconds),
        "matmul": _Family(("batch0", "batch1", "m", "n", "k"), _matmul_candidates, _matmul_seconds),
    }
)
_FAMILY_OF = MappingProxyType(
    {
        "conv2d_f32": "conv2d",
        "conv2d_winograd_f32": "conv2d",
        "conv2d_bf16_f32": "conv2d",
        "conv2d_winograd_bf16_f32": "conv2d",
        "qconv2d": "qconv2d",
        "qconv2d_winograd": "qconv2d",
        "gemm_f32": "gemm",
        "gemm_bf16_f32": "gemm",
        "matmul_f32": "matmul",
    }
)
_ROUNDING_FAMILIES = frozenset({"conv2d", "gemm"})
