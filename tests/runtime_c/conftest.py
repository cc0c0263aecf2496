from __future__ import annotations

import numpy as np
import pytest

from tinycomp.runtime.native import Pool, available_isas


@pytest.fixture(params=available_isas())
def isa(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def pool() -> Pool:
    return Pool(2)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
