"""The variants of kernels that a project needs: tiles that none of its calls takes are left out of the code."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from tinycomp.export_c.actions import Call
from tinycomp.runtime.native.library import lib

_PAIRS = frozenset({"qmatmul", "qconv2d_winograd"})
"""Kernels that multiply pairs of 16 bits whatever their weights are."""
_TILED = frozenset(itertools.product((3, 5), (1, 2), (False, True)))
"""The tiles of depthwise convolutions: size, stride, and whether results are bytes by the float rule."""


def definitions_of(calls: Iterable[Call]) -> Mapping[str, str]:
    """Return the macros that say which variants some calls take, by name."""
    tiles: set[tuple[int, int, bool]] = set()
    is_wide, operations = False, 0
    for call in calls:
        params = call.params
        if call.kernel == "qdwconv2d":
            fused = params["rule"] == lib.TC_REQUANTIZE_FLOAT and params["type"] in (lib.TC_TYPE_I8, lib.TC_TYPE_U8)
            tiles.add((int(params["kernel_width"]), int(params["stride_width"]), fused))
        if call.kernel == "qbinary":
            operations |= 1 << int(params["op"])
        is_wide |= call.kernel in _PAIRS or params.get("weight_type") == lib.TC_TYPE_I16
    tiled = [f"QDW_TILED({size}, {stride}, {str(fused).lower()})" for size, stride, fused in sorted(tiles & _TILED)]
    return {"QDW_TILED_LIST": " ".join(tiled), "Q8_HAS_WIDE": str(int(is_wide)), "QBINARY_OPS": str(operations)}
