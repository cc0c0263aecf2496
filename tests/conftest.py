from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import sampling
from tests.backend.summary import pytest_terminal_summary
from tests.golden import add_option, pytest_collect_file
from tests.models import MISSING, models_folder

__all__ = ["pytest_collect_file", "pytest_terminal_summary"]

pytest_plugins = ["pytester"]


def pytest_addoption(parser: pytest.Parser) -> None:
    add_option(parser)
    sampling.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    sampling.settle(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell has its background jobs ignore it; tests that interrupt a run would wait for ever.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    sampling.leave_out(config, items)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking at tens of thousands of tests whenever it runs."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def models() -> Path:
    """The optional folder of larger models; skips the test where there is none."""
    folder = models_folder()
    if folder is None:
        pytest.skip(MISSING)
    return folder


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep what tests compile out of the user's cache folder."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINYCOMP_CACHE", str(folder))
        yield folder
