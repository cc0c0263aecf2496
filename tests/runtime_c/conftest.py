from __future__ import annotations

import zlib

import numpy as np
import pytest

from tests.runtime_c.emulated import EMULATED, ISAS, every, require
from tinycomp.runtime.native.executor import Pool
from tinycomp.runtime.native.processor import available_isas


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {item for item in items if not _is_chosen(item)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _isa_of(item: pytest.Item) -> object:
    """The instruction set of a test with the fixture ``isa`` or ``emulated``; None for any other test."""
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return parameters.get("isa", parameters.get("emulated"))


def _is_chosen(item: pytest.Item) -> bool:
    return zlib.crc32(item.nodeid.encode()) % every(_isa_of(item)) == 0


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> str:
    """An instruction set that this machine runs, or emulates through ``run_single`` and ``runner``."""
    require(request.param)
    return str(request.param)


@pytest.fixture(params=EMULATED)
def emulated(request: pytest.FixtureRequest) -> str:
    """An instruction set that this machine emulates through ``EmulatedProgram``."""
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
