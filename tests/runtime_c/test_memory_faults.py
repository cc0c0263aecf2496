"""Every allocation of the C runtime fails once: a MemoryError each time, and everything works afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Only the runtime uses aligned_alloc in this process, so that failing it leaves the interpreter alone.
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
static int countdown = -1;
__attribute__((visibility("default"))) void fail_after(int calls) { countdown = calls; }
__attribute__((visibility("default"))) void *aligned_alloc(size_t alignment, size_t size) {
  static void *(*real)(size_t, size_t);
  if (!real) real = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "aligned_alloc");
  if (countdown >= 0 && countdown-- == 0) return NULL;
  return real(alignment, size);
}
"""

SCRIPT = """
import ctypes
import numpy as np
from tests.runtime_c.test_execution import expected, feed, perceptron, run
from tinycomp.runtime.native import NativeProgram, Pool

fail_after = ctypes.CDLL(None).fail_after
program = perceptron()
x = feed(program)
failures = 0
while True:
    fail_after(failures)
    try:
        runner = NativeProgram(program, Pool(2))
    except MemoryError as error:
        assert "no memory" in str(error), error
        failures += 1
        continue
    break
np.testing.assert_allclose(run(runner, x), expected(program, x), rtol=1e-4, atol=1e-5)
print(failures)
"""


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and a C compiler")
@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="another library is preloaded already")
def test_every_allocation_fails_once(tmp_path):
    source, library = tmp_path / "shim.c", tmp_path / "shim.so"
    source.write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": root}
    result = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, cwd=root)
    assert result.returncode == 0, result.stderr
    # The pool, six packed weights, the arena and the scratch.
    assert int(result.stdout) == 9
