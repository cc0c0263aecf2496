"""Models from and to ONNX."""

from tinycomp.frontend.onnx_export import export_model
from tinycomp.frontend.onnx_import import import_model

__all__ = ["export_model", "import_model"]
