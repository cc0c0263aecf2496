"""What is known of every kernel, from ``kernels.json``: a row each.

``params`` and ``absent`` are a valid call, which ``elementwise`` has none of, as its program is a constant; ``work``
what that call has to do; ``refusals`` how often each message answers changes of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("kernels.json")
KERNELS: list[dict[str, Any]] = json.loads(FILE.read_text())
CALLS = [row for row in KERNELS if "params" in row]
