"""Saved modules hold the parameters of kernels and a report: neither may change unless the format version does."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator

from tinycomp.remark import Remark
from tinycomp.runtime.archive import FORMAT
from tinycomp.runtime.native.library import kernel_named, kernel_names
from tinycomp.runtime.report import Report
from tinycomp.runtime.rows import (
    CompositeRow,
    ConversionRow,
    CopyRow,
    DeviceRow,
    HostRow,
    LayerRow,
    RegionRow,
    ViolationRow,
)

WRITTEN = (7, "126bc4262c0b")
"""The format version, and the fingerprint of what files of that version hold."""


def lines() -> Iterator[str]:
    """What files hold: of kernels the parameters, of reports the fields."""
    for name in sorted(kernel_names()):
        kernel = kernel_named(name)
        fields = [f"{field}:{kind.__name__}" for field, kind in kernel.fields.items()]
        yield f"{name} {kernel.signature} {' '.join(fields)}"
    for part in (Report, RegionRow, CompositeRow, HostRow, LayerRow, ConversionRow, CopyRow, DeviceRow, ViolationRow):
        # What reports are not compared by, their adviser, is not written either.
        yield f"{part.__name__} {' '.join(field.name for field in dataclasses.fields(part) if field.compare)}"
    yield f"Reason {' '.join(Remark().to_dict())}"


def test_what_files_hold_changes_only_with_the_format_version() -> None:
    found = hashlib.sha256("\n".join(lines()).encode()).hexdigest()[:12]
    hint = "If it is released, raise FORMAT in tinycomp/runtime/archive.py; then write down"
    assert (FORMAT, found) == WRITTEN, f"files of format {FORMAT} hold something else now. {hint} {(FORMAT, found)}."
