from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.emulated import ISAS, require
from tinycomp.runtime.native import Pool, available_isas


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> str:
    """An instruction set that this machine runs, or emulates through ``run_single`` and ``runner``."""
    require(request.param)
    return str(request.param)


@pytest.fixture(params=available_isas())
def native_isa(request: pytest.FixtureRequest) -> str:
    """An instruction set that this machine runs itself."""
    return str(request.param)


@pytest.fixture(scope="session")
def pool() -> Pool:
    return Pool(2)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
