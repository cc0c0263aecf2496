"""Tests, and commands that measure and fuzz."""

import os

os.environ.setdefault("TINYCOMP_LOWERING_ERRORS", "1")  # what a user is only warned of is an error here
