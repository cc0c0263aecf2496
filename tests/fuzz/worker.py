"""A process that runs cases: seeds come in on standard input, one reply per line goes out on standard output.

A reply is JSON: ``facts`` of a case that went well, or ``wrong`` with the traceback and ``where`` with its last place.
A request is ``check SEED`` or ``save SEED``. Whatever ends the process or stops it is for the parent to notice; what
Python knows about it then (``faulthandler``) goes to standard error.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

from tests.fuzz.harness import Harness, limit_memory
from tests.fuzz.registry import find


def main() -> None:
    """Serve until standard input ends. Arguments: harness, folder for saved cases."""
    harness, folder = find(sys.argv[1]), Path(sys.argv[2])
    # What libraries print must not end up among the replies.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    limit_memory(harness.memory)
    print(json.dumps({"ready": harness.name}), file=replies)
    for line in sys.stdin:
        command, seed = line.split()
        faulthandler.dump_traceback_later(0.9 * harness.seconds)
        reply = _check(harness, int(seed)) if command == "check" else _save(harness, int(seed), folder)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(reply), file=replies)


def _check(harness: Harness, seed: int) -> dict[str, Any]:
    try:
        return {"facts": dict(harness.check(seed))}
    except Exception as error:
        return {"wrong": traceback.format_exc(limit=-12)[-6000:], "where": _place(error)}


def _place(error: Exception) -> str:
    """Return where an error comes from, so that equal findings can be counted as one."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "tests/fuzz" not in f.filename]
    at = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else str(error).partition("\n")[0][:80]
    return f"{type(error).__name__} at {at}"


def _save(harness: Harness, seed: int, folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        harness.save(seed, folder, f"{harness.name}-{seed}")
    except Exception:
        return {"wrong": traceback.format_exc(limit=-12), "where": "save"}
    return {"facts": {}}


if __name__ == "__main__":
    faulthandler.enable()
    main()
