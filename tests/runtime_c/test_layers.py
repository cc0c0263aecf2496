"""The files of the C runtime lie in layers: each calls only what lies below it."""

from __future__ import annotations

import re
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "runtime_c" / "src"
LAYERS = (
    ("platform_posix", "platform_windows"), ("base",), ("cpu", "isa"), ("kernel", "prepare"), ("nd", "rows", "window"),
    ("formulas", "records", "weights", "pool", "peak"), ("instance",), ("build",), ("build_control",),
    ("initialised",), ("plan",), ("reading",), ("context",), ("fit",), ("run",), ("archive",), ("module",),
    ("session",),
)  # fmt: skip
"""The files without their ends, the lowest first; those of a layer may call each other."""
_DEFINED = re.compile(r"^(?!static|typedef|#)[A-Za-z_][\w *]*?\b(tc_\w+)\([^;]*?\)\s*\{", re.MULTILINE)
_NOTHING = re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"\\])*\"", re.DOTALL)


def test_files_call_what_lies_below_them() -> None:
    texts = {path.stem: _NOTHING.sub("", path.read_text("utf-8")) for path in SOURCES.glob("*.c")}
    height = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    assert {name for name in texts if not name.startswith("isa_")} == height.keys()
    defined = {function: name for name in height for function in _DEFINED.findall(texts[name])}
    assert len(defined) > 100
    upwards = [
        f"{name}.c calls {function} of {defined[function]}.c"
        for name in height
        for function in sorted({*re.findall(r"\b(tc_\w+)\(", texts[name])} & defined.keys())
        if height[defined[function]] > height[name]
    ]
    assert not upwards
