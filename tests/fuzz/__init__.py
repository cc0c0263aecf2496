"""Fuzzing: random and broken inputs for every part that takes any. Run as ``python -m tests.fuzz --minutes N``."""

import os

from tinycomp.target.decline import VARIABLE

os.environ.setdefault(VARIABLE, "1")  # a lowering that fails is a finding
