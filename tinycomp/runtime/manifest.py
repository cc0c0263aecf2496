"""What the description of a saved module holds, as forms (:mod:`tinycomp.runtime.forms`)."""

from __future__ import annotations

from typing import Any

from tinycomp.runtime.forms import COUNT, NUMBER, OneOf, form_of
from tinycomp.runtime.report import Report

_SPEC = {"name": str, "dtype": str, "reason?": str, "shape": OneOf((None, [OneOf((None, COUNT, str))]))}
_MADE = {
    "symbol": str, "shapes": [[OneOf((None, COUNT, str))]], "program?": COUNT,
    "blob?": {"target": str, "version": str, "options": {str: Any}, "data": str, "arrays": {str: str}},
    "source?": {
        "text": str, "function": str, "scratch_bytes": COUNT, "constants": [str], "flags": [str], "libraries": [str],
        "include_dirs": [str], "library_dirs": [str],
    },
}  # fmt: skip
ARCHIVE = {"format": NUMBER, "arrays": {str: {"dtype": str, "shape": [COUNT]}}}
MODULE = {
    "inputs": [_SPEC], "outputs": [_SPEC], "defaults": {str: str},
    "native": bool, "targets?": [str], "options?": {str: {str: Any}}, "report": form_of(Report),
    "threads?": OneOf((None, range(1, 1 << 63))), "passes?": OneOf((None, str)), "specialize?": bool,
    "devices?": {str: [COUNT]}, "interface?": [_SPEC], "general?": OneOf((None, str)),
    "faults?": {str: {"retries": COUNT, "fallback": bool, "timeout": OneOf((None, COUNT, float))}},
    "bounds?": {str: (NUMBER, OneOf((None, NUMBER)))}, "programs?": [_MADE], "constants?": {str: str},
}  # fmt: skip
