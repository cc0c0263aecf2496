"""Whether the tools of the targets tosa and ethos_u are there, in this environment or in one of their own."""

from __future__ import annotations

import functools
import subprocess

import pytest

from tinycomp.targets.tosa.tools import PYTHON, environment, interpreter


@functools.cache
def installed(module: str) -> bool:
    """Tell whether the interpreter that the targets would use has a module."""
    command = [interpreter(), "-c", f"import {module}"]
    return subprocess.run(command, capture_output=True, check=False, env=environment()).returncode == 0


def needs(*modules: str) -> pytest.MarkDecorator:
    """Skip a test without these modules."""
    missing = [module for module in modules if not installed(module)]
    return pytest.mark.skipif(bool(missing), reason=f"{interpreter()} has no {', '.join(missing)}; see {PYTHON}")


needs_tosa = needs("tosa_serializer", "tosa_reference_model")
needs_vela = needs("tosa_serializer", "tosa_reference_model", "ethosu.vela")
