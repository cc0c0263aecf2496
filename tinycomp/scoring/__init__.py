"""Scoring: a model over the rows of Parquet files, in several processes or on a Ray cluster. Needs pyarrow."""

from __future__ import annotations

from tinycomp.errors import UnsupportedError

try:
    import pyarrow as pyarrow
except ImportError as error:
    raise UnsupportedError(
        "pyarrow is needed to read Parquet files", where="tinycomp.scoring", found=str(error),
        hint='Install it: pip install "tinycomp[score]".',
    ) from error  # fmt: skip
