"""What the description of a saved module holds, as forms (:mod:`tinycomp.runtime.forms`)."""

from __future__ import annotations

from typing import Any

from tinycomp.runtime.forms import COUNT, NUMBER, OneOf, form_of
from tinycomp.runtime.native.program import SPACES
from tinycomp.runtime.report import Report

SIZE = OneOf((NUMBER, str))
_SPEC = {"name": str, "dtype": str, "reason?": str, "shape": OneOf((None, [OneOf((None, COUNT, str))]))}
_BUFFER = {"name": str, "dtype": str, "shape": [SIZE], "elements?": [OneOf((None, str))]}
_OPERAND = (frozenset(SPACES), NUMBER, SIZE)
_NUMBER = OneOf((NUMBER, float, frozenset(("inf", "-inf", "nan")), (str,)))
PROGRAM: dict[str, Any] = {
    "name": str, "inputs": [_BUFFER], "outputs": [_BUFFER], "arena_bytes": COUNT, "arena_bound?": COUNT,
    "left?": [(COUNT, _OPERAND)], "arena?": [(SIZE, [NUMBER])], "tables?": [(COUNT, COUNT, SIZE)],
    "conditions?": [(SIZE, str, str)], "setup?": COUNT, "blocks?": [[NUMBER]], "named?": {str: str},
    "constants?": [str], "texts?": {"inputs": [COUNT], "outputs": [(COUNT, range(-1, 1 << 63))], "prefix": str},
    "instructions": [{
        "kernel": str, "operands": [_OPERAND], "params": {str: _NUMBER}, "source": [str],
        "macs": SIZE, "found?": (str, COUNT, OneOf((None, SIZE))),
        "control?": {
            "bodies": [lambda: PROGRAM], "carried": COUNT, "shapes": [[SIZE]], "results": [OneOf((None, SIZE))],
        },
    }],
}  # fmt: skip
_PLAN = {
    "inputs": [_SPEC], "outputs": [_SPEC], "slots": COUNT, "constants": {str: str}, "input_slots": [COUNT],
    "output_slots": [COUNT],
    "steps": [{
        "label": str, "op": str, "tier": str, "sources": [str], "reads": [COUNT], "writes": [COUNT], "frees": [COUNT],
        "program": PROGRAM | {"constants": [str]},
    }],
}  # fmt: skip
_MADE = {
    "symbol": str, "shapes": [[OneOf((None, COUNT, str))]], "program?": PROGRAM | {"constants": [str]},
    "blob?": {"target": str, "version": str, "options": {str: Any}, "data": str, "arrays": {str: str}},
    "source?": {
        "text": str, "function": str, "scratch_bytes": COUNT, "constants": [str], "flags": [str], "libraries": [str],
        "include_dirs": [str], "library_dirs": [str],
    },
}  # fmt: skip
ARCHIVE = {"format": NUMBER, "arrays": {str: {"dtype": str, "shape": [COUNT]}}}
MODULE = {
    "inputs": [_SPEC], "outputs": [_SPEC], "defaults": {str: str},
    "plan": OneOf((None, _PLAN)), "targets?": [str], "options?": {str: {str: Any}}, "report": form_of(Report),
    "threads?": OneOf((None, range(1, 1 << 63))), "passes?": OneOf((None, str)), "specialize?": bool,
    "devices?": {str: [COUNT]}, "interface?": [_SPEC], "general?": OneOf((None, str)),
    "faults?": {str: {"retries": COUNT, "fallback": bool, "timeout": OneOf((None, COUNT, float))}},
    "bounds?": {str: (NUMBER, OneOf((None, NUMBER)))}, "programs?": [_MADE], "constants?": {str: str},
}  # fmt: skip
