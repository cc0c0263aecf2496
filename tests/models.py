"""The real models at hand: those in the onnx package, those shipped with tinycomp, and an optional folder."""

from __future__ import annotations

import os
from pathlib import Path

import onnx.backend.test

import tinycomp

ROOT = Path(__file__).resolve().parents[1]
MISSING = "no model folder; set TINYCOMP_MODELS to one"


def light_models() -> list[Path]:
    """The small whole networks that the onnx package carries for its own backend tests."""
    return sorted((Path(onnx.backend.test.__file__).parent / "data" / "light").glob("light_*.onnx"))


def shipped_models() -> list[Path]:
    """The models inside the tinycomp package."""
    return sorted((Path(tinycomp.__file__).parent / "data").glob("*.onnx"))


def models_folder() -> Path | None:
    """The optional folder of larger models, or None."""
    folder = Path(os.environ.get("TINYCOMP_MODELS", ROOT.parent / "shared" / "models"))
    return folder if folder.is_dir() else None


def folder_models() -> list[Path]:
    """The models of the optional folder; empty without one."""
    folder = models_folder()
    return [] if folder is None else sorted(folder.rglob("*.onnx"))


def all_models() -> list[Path]:
    """Every model at hand, the small ones first."""
    return [*shipped_models(), *light_models(), *folder_models()]
