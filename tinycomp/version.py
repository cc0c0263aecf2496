"""The installed version of tinycomp, which stands in files, keys of caches and what the command line says."""

from __future__ import annotations

import functools
from importlib import metadata


@functools.cache
def installed_version() -> str:
    """Return the version, or an empty text for a checkout that is not installed."""
    try:
        return metadata.version("tinycomp")
    except metadata.PackageNotFoundError:
        return ""
