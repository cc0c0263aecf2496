from __future__ import annotations

from pathlib import Path

import pytest

from tests.backend.summary import pytest_terminal_summary
from tests.golden import pytest_addoption, pytest_collect_file
from tests.models import MISSING, models_folder

__all__ = ["pytest_addoption", "pytest_collect_file", "pytest_terminal_summary"]

pytest_plugins = ["pytester"]


@pytest.fixture(scope="session")
def models() -> Path:
    """The optional folder of larger models; skips the test where there is none."""
    folder = models_folder()
    if folder is None:
        pytest.skip(MISSING)
    return folder
