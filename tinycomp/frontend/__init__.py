"""Models from and to ONNX."""

from tinycomp.frontend.onnx_import import import_model

__all__ = ["import_model"]
