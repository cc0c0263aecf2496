"""Fresh environments with a package of the examples installed; all else comes from the environment of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

import tinycomp

BUILDERS = {name: find_spec(name) for name in ("pip", "setuptools")}
MISSING = [name for name, spec in BUILDERS.items() if spec is None]
needs_pip = pytest.mark.skipif(bool(MISSING), reason=f"building and installing the package needs {MISSING}")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PACKAGES = Path(tinycomp.__file__).resolve().parents[1]


def environment_with(source: Path, folder: Path) -> Path:
    """Install the package in ``source`` into an environment in ``folder``; return its interpreter."""
    venv.create(folder / "env", with_pip=False, symlinks=True)
    python = folder / "env" / "bin" / "python"
    site = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # The packages of the tests may lie elsewhere than where their interpreter installs some.
    builders = {str(Path(spec.origin).parents[1]) for spec in BUILDERS.values() if spec is not None and spec.origin}
    around = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), str(PACKAGES), *builders}
    (site / "around.pth").write_text("".join(f"{path}\n" for path in sorted(around)))
    # A build leaves files behind, and would take up what an earlier one left.
    shutil.copytree(source, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    call(python, "-m", "pip", "install", *options, folder / "source")
    return python


def call(python: Path, *arguments: object, cwd: Path | None = None) -> str:
    """Return what a command of an interpreter prints; it must succeed, and sees no other environment's packages."""
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}}
    done = subprocess.run(
        [python, *map(str, arguments)], capture_output=True, text=True, env=environment, cwd=cwd, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
