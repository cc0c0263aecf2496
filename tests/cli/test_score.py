"""``tinycomp score``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tinycomp.cli import exits
from tinycomp.data import digits

pa = pytest.importorskip("pyarrow", reason="scoring needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="scoring needs pyarrow")


def test_score(call, tmp_path: Path) -> None:
    images = [*digits()[0][:20].reshape(-1, 64)]
    table = pa.table({"pixels": [*images[:9], None, *images[9:]], "id": range(21), "note": ["-"] * 21})
    pq.write_table(table, tmp_path / "d.parquet")
    arguments = ["score", "digits", tmp_path, "-o", tmp_path / "out", "--columns", "image=pixels", "--workers", 1]
    result = call(*arguments, "--keep", "id")
    assert result.code == exits.OK, result.err
    assert f"Wrote 20 rows into {tmp_path}/out: 1 files; " in " ".join(result.out.split())
    assert f"1 rows failed; the reasons are in {tmp_path}/out/_rejects." in " ".join(result.out.split())
    assert pq.read_table(tmp_path / "out").column_names == ["id", "probabilities"]
    again = call(*arguments, "--keep", "id", "--json").json
    assert again.pop("seconds") > 0
    assert again == {"output": f"{tmp_path}/out", "rows": 20, "failed": 1, "parts": 1, "resumed": 1}
    result = call(*arguments)
    assert result.code == exits.USAGE
    assert "the folder holds results of another run" in result.error
    result = call("score", "digits", tmp_path, "-o", tmp_path / "other", "--columns", "pixels")
    assert result.code == exits.USAGE
    assert "cannot read a column" in result.error
