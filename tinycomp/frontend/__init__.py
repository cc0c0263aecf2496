"""Models from and to ONNX."""

from tinycomp.frontend.onnx_export import export_model
from tinycomp.frontend.onnx_import import ModelSource, import_model
from tinycomp.frontend.shapes import Given, Shapes, bounds_of, checked_shapes, fixed_symbols

__all__ = [
    "Given", "ModelSource", "Shapes", "bounds_of", "checked_shapes", "export_model", "fixed_symbols", "import_model",
]  # fmt: skip
