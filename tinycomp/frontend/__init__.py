"""Models from and to ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinycomp.frontend.onnx_import import ModelSource, import_model
from tinycomp.frontend.shapes import Given, Shapes, bounds_of, checked_shapes, fixed_symbols, with_symbols
from tinycomp.lazy import from_modules

if TYPE_CHECKING:
    from tinycomp.frontend.onnx_export import export_model
else:
    __getattr__ = from_modules(__name__, {"export_model": ".onnx_export"})

__all__ = [
    "Given", "ModelSource", "Shapes", "bounds_of", "checked_shapes", "export_model", "fixed_symbols", "import_model",
    "with_symbols",
]  # fmt: skip
