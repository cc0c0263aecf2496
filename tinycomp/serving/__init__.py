"""Serving: modules behind KServe's open inference protocol, version 2, over HTTP. Needs the extra ``serve``."""

from __future__ import annotations

from tinycomp.errors import UnsupportedError

try:
    import orjson as orjson
    import prometheus_client as prometheus_client
    import starlette as starlette
except ImportError as error:
    raise UnsupportedError(
        "packages that serving needs are not installed", where="tinycomp.serving", found=str(error),
        hint='Install them: pip install "tinycomp[serve]".',
    ) from error  # fmt: skip
