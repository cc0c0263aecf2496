"""The package beside tinycomp, as if it were installed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.examples.environments import EXAMPLES

tomllib = pytest.importorskip("tomllib", reason="Python has it from 3.11 on")
SOURCE = EXAMPLES / "dnnl"


@pytest.fixture(scope="module", autouse=True)
def offered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Offer the package's entry points to this process and its children; other tests must not see them."""
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = tmp_path_factory.mktemp("offered")
    info = folder / f"tinycomp_dnnl-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = (
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    )
    (info / "entry_points.txt").write_text("".join(groups))
    paths = [str(folder), str(SOURCE / "src"), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        yield
