"""``python -m tinycomp`` is the command line."""

from __future__ import annotations

import sys

from tinycomp.cli import main

if __name__ == "__main__":
    sys.exit(main())
