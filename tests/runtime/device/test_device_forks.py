"""A forked child opens devices of its own, and refuses those that its parent was given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FORKING = """
import os, signal, sys
import numpy as np, tinycomp
from tests.runtime.device.units import Listening, chain, data, unit
own = tinycomp.compile(chain("Neg"), unit("npu", "Neg"), devices=2)
given = tinycomp.compile(chain("Neg"), unit("npu", "Neg"), devices=[Listening("given")])
for module in (own, given):
    module.run_async({"x0": data()}).result()
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(30)  # a run that hangs ends the child with another code
try:
    assert (own.run_async({"x0": data()}).result()["y"] == -data()).all()
    given(data())
except tinycomp.DeviceFault as fault:
    os._exit(7 if "given: the device was opened by another process" in str(fault) else 1)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_has_devices_of_its_own() -> None:
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", FORKING], cwd=ROOT, check=False).returncode == 7
